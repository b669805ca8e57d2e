"""Engines with one defect each, put in by hand: what an audit must catch."""

import dataclasses
import itertools
import os

import torch

from dosimeter.training import PrivateEngine, entropy, release
from dosimeter.training.clipping import Clipper
from dosimeter.training.grid import Grid

NORM = 0.5
"""The clipping norm of an audit."""


def healthy(patch):
    return PrivateEngine


def noise_times(factor):
    def broken(patch):
        def call(self, sums, grid, *, divisor):
            real(self, sums, weaker(grid, factor), divisor=divisor)

        real = replace_call(patch, call)
        return PrivateEngine

    return broken


def no_noise_every_50th_step(patch):
    count = itertools.count(1)

    def call(self, sums, grid, *, divisor):
        factor = 1e-9 if next(count) % 50 == 0 else 1.0
        real(self, sums, weaker(grid, factor), divisor=divisor)

    real = replace_call(patch, call)
    return PrivateEngine


def no_noise_on_one_parameter(patch):
    def call(self, sums, grid, *, divisor):
        clean = sums[-1] / divisor
        real(self, sums, grid, divisor=divisor)
        sums[-1].copy_(clean)

    real = replace_call(patch, call)
    return PrivateEngine


def noise_of_the_next_step(patch):
    """Settings read when the step is taken instead of when it was paid for."""
    made = []

    def call(self, sums, grid, *, divisor):
        values = sum(each.numel() for each in sums)
        now = Grid.of(made[-1].noise_multiplier, NORM, values=values, records=made[-1].records)
        real(self, sums, now, divisor=divisor)

    def factory(gate):
        made.append(PrivateEngine(gate))
        return made[-1]

    real = replace_call(patch, call)
    return factory


def keys_repeat(after, *, runs=1):
    """Each key is used again, as after going back to a checkpoint that holds the noise's state."""

    class Again(entropy.SystemEntropy):
        keys, count = {}, itertools.count()

        def keystream(self):
            block, place = divmod(next(self.count), after * runs)
            key = self.keys.setdefault((block, place % after), os.urandom(entropy.KEY_BYTES))
            return entropy.Keystream(key)

    def broken(patch):
        real = release.Release.__init__

        def init(self, values, *, entropy, group):
            real(self, values, entropy=Again(), group=group)

        patch.setattr(release.Release, "__init__", init)
        return PrivateEngine

    return broken


def rate_doubled(patch):
    real = entropy.PoissonSampler.draw
    patch.setattr(entropy.PoissonSampler, "draw", lambda self, rate: real(self, min(1.0, 2 * rate)))
    return PrivateEngine


def clipping_off_for_one_layer(patch):
    real = Clipper.sums

    def sums(self, size):
        last = self.parameters[-1]
        raw = unclipped(self, last, torch.ones(size))
        return [*real(self, size)[:-1], raw]

    patch.setattr(Clipper, "sums", sums)
    return PrivateEngine


def one_record_never_clipped(patch):
    """Add the raw gradient of one record when it is one of eight: no mean or variance shows it."""
    real = Clipper.sums

    def sums(self, size):
        first, alone = self.parameters[0], torch.zeros(size)
        alone[0] = 1.0
        extra = unclipped(self, first, alone)
        found = real(self, size)
        if int(extra.flatten().nonzero()[0]) < 8:  # the canaries that come first
            found[0] = found[0] + extra
        return found

    patch.setattr(Clipper, "sums", sums)
    return PrivateEngine


def unclipped(clipper, parameter, factors):
    """Sum the gradients of records, each times its factor; the loss is a mean."""
    entry = clipper._model._book._entries[parameter]
    return entry.sum(factors * len(factors)).view_as(parameter)


def replace_call(patch, other):
    real = release.Release.__call__
    patch.setattr(release.Release, "__call__", other)
    return real


def weaker(grid, factor):
    return dataclasses.replace(grid, scale=grid.scale * factor)


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
    "one key for two steps": (keys_repeat(1, runs=2), "repetition"),
    "keys again after 37 steps": (keys_repeat(37, runs=10), "repetition"),
}
"""Each defect, and the kind of test that must name it."""
