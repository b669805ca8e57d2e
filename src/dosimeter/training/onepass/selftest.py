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

from dosimeter.errors import TicketError
from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.records import choose, outputs, record_dimension, selected, tensors

if TYPE_CHECKING:
    from dosimeter.training.onepass.module import OnePassModule

FEW = 3
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
        named = [(name, p) for name, p in self._plain.named_parameters() if p.requires_grad]
        self._names, self._parameters = zip(*named, strict=True)
        self._seed = int(torch.randint(2**31, (), generator=_generator()).item())

    def run(self) -> None:
        """Raises if the model mixes records, or if the recorder gets a gradient wrong."""
        before = [p.grad for p in self._parameters]
        try:
            with torch.enable_grad():
                self._require_apart()
                self._require_same_gradients()
        finally:
            for parameter, grad in zip(self._parameters, before, strict=True):
                parameter.grad = grad

    def _require_apart(self) -> None:
        if self._few < 2:
            return
        with torch.no_grad(), self._repeatable():
            one = self._rows(self._plain(*self._inputs[0], **self._inputs[1]))
        with torch.no_grad(), self._repeatable():
            other = self._rows(self._plain(*self._changed[0], **self._changed[1]))
        if any(_differ(a[:-1], b[:-1]) for a, b in zip(one, other, strict=True)):
            raise TicketError(
                "model must not mix the records of a batch, got outputs of a record that change "
                f"with another one, first at {self._first_mixing()}. Leave that layer out, or "
                "put one in its place that treats each record by itself."
            )

    def _require_same_gradients(self) -> None:
        with self._repeatable():
            book = Book(self._few)
            found = self._outputs(
                self._module.recorded(book, *self._inputs[0], **self._inputs[1])
            )  # fmt: skip
        weights = [torch.randn(out.shape, generator=_generator(self._seed)) for out in found]
        weights = [w.to(out.device, out.dtype) for w, out in zip(weights, found, strict=True)]
        torch.autograd.backward(found, weights)
        self._require_no_other_use()
        rows = self._brute_force(weights)
        book.settle()
        norms = book.norms()
        true = torch.stack([row.norm(dim=1) for row in rows]).norm(dim=0)
        for name, parameter, row in zip(self._names, self._parameters, rows, strict=True):
            mine = book.gradients(parameter)
            apart = (mine - row).norm(dim=1)
            if bool((apart > TOLERANCE * true + 1e-12).any()):
                raise self._wrong(name)
        if bool((norms < true * (1 - TOLERANCE)).any()):
            raise self._wrong("the whole model")
        self._require_same_sum(book, rows, norms)

    def _require_same_sum(self, book: Book, rows: list[Tensor], norms: Tensor) -> None:
        bound = float(norms.median()) / 2
        if not bound > 0:
            return
        factors = (bound / norms).clamp(max=1.0).unsqueeze(1)
        sums = book.clipped_sums(self._parameters, bound)
        for name, row, mine in zip(self._names, rows, sums, strict=True):
            if float(((row * factors).sum(0) - mine.flatten()).norm()) > 3 * TOLERANCE * bound:
                raise self._wrong(name)

    def _brute_force(self, weights: list[Tensor]) -> list[Tensor]:
        """The gradient of each record for each parameter, in double precision."""
        with self._repeatable():
            found = self._outputs(self._plain(*self._inputs[0], **self._inputs[1]))
        rows: list[list[Tensor]] = []
        for record in range(self._few):
            parts = [(out[record] * w[record]).sum() for out, w in zip(found, weights, strict=True)]
            grads = torch.autograd.grad(
                parts, self._parameters, retain_graph=True, allow_unused=True
            )
            rows.append(
                [
                    (torch.zeros_like(p) if g is None else g).double().flatten()
                    for p, g in zip(self._parameters, grads, strict=True)
                ]
            )
        return [torch.stack(each) for each in zip(*rows, strict=True)]

    def _require_no_other_use(self) -> None:
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if parameter.grad is not None:
                raise TicketError(
                    f"every parameter must meet the records in a way that keeps them apart, got "
                    f"{name!r} used by an operation without a rule. Keep records in the first "
                    "dimension, or use grad_sampling='hooks'."
                )

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

    def _wrong(self, name: str) -> TicketError:
        return TicketError(
            f"the gradient of every record must be autograd's own, got another for {name!r}: rows "
            "that are not in the order of the batch, or records that meet. Keep one row for each "
            "record, in the first dimension and in order."
        )

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
