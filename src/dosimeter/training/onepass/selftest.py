# SPDX-License-Identifier: Apache-2.0
"""The self-test of a model: records that stay apart, and gradients that are autograd's.

A few records of the batch are run again with random weights on their outputs: through the
recorder, and plainly with autograd for one record after the other. Their gradients, norms and
clipped sum must agree, and an output must not change when another record does. It costs a few
records' passes on the first batches and, at random, on few of the later ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from dosimeter.errors import TicketError
from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.records import choose, outputs, record_dimension, selected, tensors

if TYPE_CHECKING:
    from dosimeter.training.onepass.module import OnePassModule

FEW = 5
"""How many records are run again."""

TOLERANCE = 1e-3
"""How far rounding may take two roads apart, relative to the norm of a gradient."""


class SelfTest:
    """One self-test of a wrapped model on a few records of a batch."""

    def __init__(self, module: OnePassModule, records: int, args: Any, kwargs: Any) -> None:
        self._module, self._plain = module, module.inner
        chosen = choose(records, FEW)
        self._few = len(chosen)
        self._inputs = selected((args, kwargs), records, chosen)
        # The last record is replaced by the first: nothing may change for the others.
        self._changed = selected((args, kwargs), records, [*chosen[:-1], chosen[0]])
        self._seed = int(torch.randint(2**31, (), generator=_generator()).item())

    def run(self) -> None:
        """Raises if the model mixes records, or if the recorder gets a gradient wrong."""
        parameters = [p for p in self._plain.parameters() if p.requires_grad]
        before = [p.grad for p in parameters]
        try:
            with torch.enable_grad():
                self._require_apart()
                # Rounding may turn a maximum over; in double precision it does not.
                if self._first_wrong(torch.float32) and (name := self._first_wrong(torch.float64)):
                    raise TicketError(
                        "the gradient of every record must be autograd's own, got another for "
                        f"{name!r}: an operation without a rule, rows that are not in the order of "
                        "the batch, or records that meet. Keep one row for each record, in the "
                        "first dimension and in order."
                    )
        finally:
            for parameter, grad in zip(parameters, before, strict=True):
                parameter.grad = grad

    def _require_apart(self) -> None:
        if self._few < 2:
            return
        rows = []
        for args, kwargs in (self._inputs, self._changed):
            with torch.no_grad(), self._repeatable():
                rows.append(self._rows(self._plain(*args, **kwargs)))
        if any(_differ(a[:-1], b[:-1]) for a, b in zip(*rows, strict=True)):
            raise TicketError(
                "model must not mix the records of a batch, got outputs of a record that change "
                f"with another one, first at {self._first_mixing()}. Leave that layer out, or "
                "put one in its place that treats each record by itself."
            )

    def _first_wrong(self, dtype: torch.dtype) -> str | None:
        """The first parameter whose gradients are not autograd's, or None."""
        twin = _Twin(self._plain, dtype)
        inputs = _cast(self._inputs, dtype)
        book = Book(self._few)
        with self._repeatable():
            found = self._outputs(self._module.recording(book, twin, *inputs[0], **inputs[1]))
        weights = [torch.randn(out.shape, generator=_generator(self._seed)) for out in found]
        weights = [w.to(out.device, out.dtype) for w, out in zip(weights, found, strict=True)]
        torch.autograd.backward(found, weights)
        for name, parameter in twin.trained.items():
            if parameter.grad is not None:
                return name
        with self._repeatable():
            rows = self._brute_force(self._outputs(twin(*inputs[0], **inputs[1])), weights, twin)
        book.settle()
        return _compare(book, list(twin.trained), list(twin.trained.values()), rows)

    def _brute_force(self, found: list[Tensor], weights: list[Tensor], twin: _Twin) -> list[Tensor]:
        """The gradient of each record for each parameter, in double precision."""
        parameters = list(twin.trained.values())
        rows: list[list[Tensor]] = []
        for record in range(self._few):
            parts = [(out[record] * w[record]).sum() for out, w in zip(found, weights, strict=True)]
            grads = torch.autograd.grad(parts, parameters, retain_graph=True, allow_unused=True)
            rows.append(
                [
                    (torch.zeros_like(p) if g is None else g).double().flatten()
                    for p, g in zip(parameters, grads, strict=True)
                ]
            )
        return [torch.stack(each) for each in zip(*rows, strict=True)]

    def _outputs(self, value: Any) -> list[Tensor]:
        found = outputs(value, self._few)
        if not found:
            raise TicketError(
                "model must give an output with one row for each record, got none that depends on "
                "its parameters. Compute the loss outside of the model."
            )
        return found

    def _rows(self, value: Any) -> list[Tensor]:
        dimensions = [(tensor, record_dimension(tensor, self._few)) for tensor in tensors(value)]
        return [tensor.movedim(d, 0) for tensor, d in dimensions if d is not None]

    @contextmanager
    def _repeatable(self) -> Iterator[None]:
        """Draws dropout anew, alike each time, and gives the generators back as they were."""
        with torch.random.fork_rng():
            torch.manual_seed(self._seed)
            yield

    def _first_mixing(self) -> str:
        """The name of the first layer whose output for one record changes with another."""
        seen: list[list[tuple[str, list[Tensor]]]] = []
        for args, kwargs in (self._inputs, self._changed):
            trace: list[tuple[str, list[Tensor]]] = []
            handles = [
                module.register_forward_hook(self._tracing(trace, name or "the model itself"))
                for name, module in self._plain.named_modules()
            ]
            try:
                with torch.no_grad(), self._repeatable():
                    self._plain(*args, **kwargs)
            finally:
                for handle in handles:
                    handle.remove()
            seen.append(trace)
        for (name, one), (_, other) in zip(*seen, strict=False):
            if any(_differ(a[:-1], b[:-1]) for a, b in zip(one, other, strict=False)):
                return repr(name)
        return "an unknown layer"

    def _tracing(self, trace: list[tuple[str, list[Tensor]]], name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            trace.append((name, [row.clone() for row in self._rows(output)]))

        return hook


class _Twin:
    """The model with its own parameters, or with copies of them in another precision."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._model = model
        self.trained: dict[str, Tensor] = {}
        self._others: dict[str, Tensor] = {}
        self._same = dtype == torch.float32
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            copy = tensor if self._same or not tensor.is_floating_point() else _copied(tensor)
            (self.trained if tensor.requires_grad else self._others)[name] = copy

    @property
    def constants(self) -> list[Tensor]:
        """Buffers and frozen parameters."""
        return list(self._others.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._same:
            return self._model(*args, **kwargs)
        values = {**self.trained, **self._others}
        return torch.func.functional_call(self._model, values, args, kwargs)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    def of(leaf: Any) -> Any:
        floating = isinstance(leaf, Tensor) and leaf.is_floating_point()
        return leaf.double() if floating and dtype == torch.float64 else leaf

    return pytree.tree_map(of, value)


def _compare(
    book: Book, names: list[str], parameters: list[Tensor], rows: list[Tensor]
) -> str | None:
    """The first parameter whose gradients, or whose clipped sum, are not as they should be."""
    norms = book.norms()
    true = torch.stack([row.norm(dim=1) for row in rows]).norm(dim=0)
    # Not-a-number fails no comparison: such records are left out of the sum.
    bound = float(true.median()) / 2
    for name, parameter, row in zip(names, parameters, rows, strict=True):
        apart = (book.gradients(parameter) - row).norm(dim=1)
        if bool((apart > TOLERANCE * true + 1e-12).any()):
            return name
    factors = (bound / norms).clamp(max=1.0).unsqueeze(1)
    sums = book.clipped_sums(parameters, bound) if bound > 0 else [None] * len(rows)
    for name, row, mine in zip(names, rows, sums, strict=True):
        if mine is None or not bool(row.isfinite().all()):
            continue
        if float(((row * factors).sum(0) - mine.flatten()).norm()) > 3 * TOLERANCE * bound:
            return name
    return names[0] if bool((norms < true * (1 - TOLERANCE)).any()) else None


def _differ(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return True
    if not one.is_floating_point():
        return not torch.equal(one, other)
    scale = torch.nan_to_num(one).abs().amax() if one.numel() else 0.0
    apart = torch.nan_to_num(one) - torch.nan_to_num(other)
    return bool((apart.abs() > 1e-4 * scale).any())


def _generator(seed: int | None = None) -> torch.Generator:
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
