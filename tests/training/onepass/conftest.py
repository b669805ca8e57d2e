"""Brute force: one record at a time, by autograd alone, in double precision."""

import copy

import pytest
import torch

from dosimeter.training.onepass import Book, OnePassModule


def pick(value, index):
    """One record of a tensor or of a tuple of tensors."""
    if isinstance(value, torch.Tensor):
        return value[index : index + 1]
    return tuple(pick(item, index) for item in value)


def cast(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return tuple(cast(item, dtype) for item in value)


@pytest.fixture
def brute_force():
    """The gradient of each record, for the sum of its outputs times `weights`."""

    def gradients(model, inputs, weights):
        twin = copy.deepcopy(model).double()
        parameters = [p for p in twin.parameters() if p.requires_grad]
        rows = []
        for i in range(len(weights)):
            loss = (twin(*pick(cast(inputs, torch.float64), i)) * weights[i : i + 1].double()).sum()
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
            flat = [
                torch.zeros_like(p).flatten() if g is None else g.flatten()
                for p, g in zip(parameters, grads, strict=True)
            ]
            rows.append(torch.cat(flat))
        return torch.stack(rows)

    return gradients


@pytest.fixture
def one_pass():
    """Clipped sum as the engine has it, norms, and the parameters it left a gradient on."""

    def run(model, inputs, weights, bound):
        book = Book(len(weights))
        wrapped = OnePassModule(model)
        (wrapped.recorded(book, *inputs) * weights).sum().backward()
        parameters = [p for p in model.parameters() if p.requires_grad]
        left = [name for name, p in model.named_parameters() if p.grad is not None]
        book.settle()
        norms = book.norms()
        sums = book.clipped_sums(parameters, bound)
        return torch.cat([s.flatten() for s in sums]), norms, left

    return run
