"""Engines with one defect each, put in by hand: what an audit must catch."""

import dataclasses
import itertools
import os

import torch

from dosimeter.training import PrivateEngine, clipping, entropy, optimizer
from dosimeter.training.grid import Grid

NORM = 0.5
"""The clipping norm of an audit."""


def healthy(patch):
    return PrivateEngine


def noise_times(factor):
    def broken(patch):
        def release(sums, grid, **rest):
            return real(sums, dataclasses.replace(grid, scale=grid.scale * factor), **rest)

        real = _replace_release(patch, release)
        return PrivateEngine

    return broken


def no_noise_every_50th_step(patch):
    count = itertools.count(1)

    def release(sums, grid, **rest):
        factor = 1e-9 if next(count) % 50 == 0 else 1.0
        return real(sums, dataclasses.replace(grid, scale=grid.scale * factor), **rest)

    real = _replace_release(patch, release)
    return PrivateEngine


def no_noise_on_one_parameter(patch):
    def release(sums, grid, *, divisor, **rest):
        clean = sums[-1].clone() / divisor
        return [*real(sums, grid, divisor=divisor, **rest)[:-1], clean]

    real = _replace_release(patch, release)
    return PrivateEngine


def noise_of_the_next_step(patch):
    """Settings read when the step is taken instead of when it was paid for."""
    made = []

    def release(sums, grid, **rest):
        now = made[-1].noise_multiplier
        values, records = sum(each.numel() for each in sums), made[-1].records
        return real(sums, Grid.of(now, NORM, values=values, records=records), **rest)

    def factory(gate):
        made.append(PrivateEngine(gate))
        return made[-1]

    real = _replace_release(patch, release)
    return factory


def one_key_for_two_steps(patch):
    class Twice(entropy.SystemEntropy):
        def keystream(self):
            if drawn["count"] % 2 == 0:
                drawn["key"] = os.urandom(entropy.KEY_BYTES)
            drawn["count"] += 1
            return entropy.Keystream(drawn["key"])

    def release(sums, grid, *, entropy, **rest):
        return real(sums, grid, entropy=twice, **rest)

    drawn = {"count": 0, "key": bytes(entropy.KEY_BYTES)}
    twice = Twice()
    real = _replace_release(patch, release)
    return PrivateEngine


def one_key_for_two_steps_far_apart(patch):
    """As after going back to a checkpoint that holds the state of the noise."""
    keys = [os.urandom(entropy.KEY_BYTES) for _ in range(37)]
    count = itertools.count()

    class Round(entropy.SystemEntropy):
        def keystream(self):
            return entropy.Keystream(keys[next(count) % len(keys)])

    def release(sums, grid, *, entropy, **rest):
        return real(sums, grid, entropy=again, **rest)

    again = Round()
    real = _replace_release(patch, release)
    return PrivateEngine


def rate_doubled(patch):
    real = entropy.PoissonSampler.draw
    patch.setattr(entropy.PoissonSampler, "draw", lambda self, rate: real(self, min(1.0, 2 * rate)))
    return PrivateEngine


def clipping_off_for_one_layer(patch):
    real = clipping.SampleClipper.sums

    def sums(self, size):
        raw = self.parameters[-1].grad_sample.sum(dim=0)
        return [*real(self, size)[:-1], raw]

    patch.setattr(clipping.SampleClipper, "sums", sums)
    return PrivateEngine


def one_record_never_clipped(patch):
    """One of a thousand: no mean or variance shows it."""
    real = clipping.SampleClipper.sums

    def sums(self, size):
        first = self.parameters[0]
        whole = first.grad_sample.flatten(1)
        row = int(torch.nonzero(whole.sum(dim=0))[0])
        extra = torch.zeros_like(first)
        if row < 8:  # the canaries that come first
            extra[row] = whole[0, row]
        found = real(self, size)
        return [found[0] + extra, *found[1:]]

    patch.setattr(clipping.SampleClipper, "sums", sums)
    return PrivateEngine


def _replace_release(patch, other):
    real = optimizer.release
    patch.setattr(optimizer, "release", other)
    return real


DEFECTS = {
    "noise x 0.5": (noise_times(0.5), "noise"),
    "noise x 0.9": (noise_times(0.9), "noise"),
    "noise x 1.1": (noise_times(1.1), "noise"),
    "sample rate doubled": (rate_doubled, "rate and clipping"),
    "no noise every 50th step": (no_noise_every_50th_step, "noise"),
    "no noise on one parameter": (no_noise_on_one_parameter, "noise"),
    "noise of the next step": (noise_of_the_next_step, "noise"),
    "no clipping of one layer": (clipping_off_for_one_layer, "rate and clipping"),
    "one record never clipped": (one_record_never_clipped, "reach"),
    "one key for two steps": (one_key_for_two_steps, "repetition"),
    "keys again after 37 steps": (one_key_for_two_steps_far_apart, "repetition"),
}
"""Each defect, and the kind of test that must name it."""
