# SPDX-License-Identifier: Apache-2.0
"""The self-test of a loss: change one record, and no other record's gradient may change.

What a training loop computes from the outputs of the model is written on a tape. Before the
backward pass the tape is played again, once as it was and once with the row of one record
replaced by that of another wherever there are rows: outputs and labels. The gradients of all
other records must be the same. What was computed from labels before they met an output is not
on the tape and cannot be seen.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dosimeter.errors import TicketError
from dosimeter.training.onepass.records import choose
from dosimeter.training.onepass.rules.other import writes

TOLERANCE = 1e-5
"""How far rounding may move a gradient, relative to the largest."""


class Watched(Tensor):
    """An output of the model that writes down what is done with it."""

    tape: Tape

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.backward:
            cls.tape.examine(args[0])
        result = super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        cls.tape.add(func, args, kwargs, result)
        return result


class Tape:
    """What was done with the outputs for `records` records, and their gradients."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._outputs: list[Tensor] = []
        self._calls: list[tuple[Any, Any, Any, Any]] = []
        self._kind = type("Watched", (Watched,), {"tape": self})
        self._open = True
        self.examined = False
        """Whether the loss was tested, or is one that takes each record by itself."""

    def watch(self, value: Any) -> Any:
        """The outputs of the model as tensors that write on this tape."""

        def of(leaf: Any) -> Any:
            if type(leaf) is not Tensor or not leaf.requires_grad or not self._has_rows(leaf):
                return leaf
            watched: Tensor = leaf.as_subclass(self._kind)
            self._outputs.append(watched)
            return watched

        return pytree.tree_map(of, value)

    def add(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Writes down a call; one that writes to its arguments cannot be played again."""
        hooks = func is Tensor.register_hook or getattr(func, "__name__", "") == "__set__"
        if hooks or writes(func, kwargs):
            self._open = False
        if self._open and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
            self._calls.append((func, args, kwargs, result))

    def examine(self, loss: Tensor) -> None:
        """Raises if one record's gradient depends on another record."""
        playable, self._open = self._open, False
        calls, self._calls = self._calls, []
        if not playable:
            raise _unseen("an operation in place (loss += ...) or a hook on the way")
        if loss.numel() != 1:
            raise _unseen(f"a loss of shape {tuple(loss.shape)}")
        with torch.random.fork_rng(), torch._C.DisableTorchFunctionSubclass():
            seed = torch.initial_seed()
            before = self._gradients(calls, loss, None, seed)
            for record, source in self._changes(calls):
                after = self._gradients(calls, loss, (record, source), seed)
                for one, two in zip(before, after, strict=True):
                    self._require_same(one, two, record)
        self.examined = True

    def _changes(self, calls: list[Any]) -> list[tuple[int, int]]:
        """Which to replace by which: the ends of all outputs and labels, and two at random."""
        if self._records < 2:
            return []
        record, source = choose(self._records, 2)
        found = [(record, source)]
        made = {id(leaf) for call in calls for leaf in pytree.tree_leaves(call[3])}
        given = [
            leaf for _, args, kwargs, _ in calls for leaf in pytree.tree_leaves((args, kwargs))
        ]
        for leaf in [*self._outputs, *given]:
            if isinstance(leaf, Tensor) and id(leaf) not in made and self._has_rows(leaf):
                made.add(id(leaf))
                sizes = leaf.detach().double().reshape(self._records, -1).sum(1)
                low, high = int(sizes.argmin()), int(sizes.argmax())
                found.extend([(low, high), (high, low)] if low != high else [])
        return found

    def _has_rows(self, tensor: Tensor) -> bool:
        return tensor.dim() > 0 and len(tensor) == self._records

    def _require_same(self, one: Tensor, two: Tensor, record: int) -> None:
        apart = (torch.nan_to_num(one) - torch.nan_to_num(two)).abs()
        apart[record] = 0.0
        if bool((apart > TOLERANCE * torch.nan_to_num(one).abs().amax()).any()):
            raise TicketError(
                "the loss of a record must not depend on the other records, got a gradient that "
                "changes with another record: shapes that broadcast, such as (B, 1) and (B,), a "
                "mean over labels that count, or a loss between records. Use loss_fn = "
                "engine.private_loss(loss_fn), which takes each record by itself."
            )

    def _gradients(
        self, calls: list[Any], loss: Tensor, change: tuple[int, int] | None, seed: int
    ) -> list[Tensor]:
        """The gradients at the outputs, with one record's row replaced by another's."""
        torch.manual_seed(seed)
        values: dict[int, Any] = {}
        leaves = []
        for output in self._outputs:
            leaf = self._changed(output.detach().as_subclass(Tensor), change)
            leaves.append(leaf.requires_grad_())
            values[id(output)] = leaf

        def now(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in values:
                plain = value.detach().as_subclass(Tensor)
                values[id(value)] = self._changed(plain, change)
            return values[id(value)]

        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for func, args, kwargs, result in calls:
                again = func(*pytree.tree_map(now, args), **pytree.tree_map(now, kwargs))
                pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(again), strict=True)
                values.update((id(was), new) for was, new in pairs)
        total = values.get(id(loss))
        if total is None or not total.requires_grad:
            raise _unseen("one that was not made of the model's output by torch operations")
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
        return [torch.zeros_like(v) if g is None else g for g, v in zip(grads, leaves, strict=True)]

    def _changed(self, tensor: Tensor, change: tuple[int, int] | None) -> Tensor:
        tensor = tensor.clone()
        if change is not None and self._has_rows(tensor):
            tensor[change[0]] = tensor[change[1]].clone()
        return tensor


def _unseen(got: str) -> TicketError:
    return TicketError(
        f"the loss of a batch that is tested must be one that can be computed again, got {got}. "
        "Write loss = loss + ..., leave hooks out and call backward() on one number; or use "
        "loss_fn = engine.private_loss(loss_fn), which needs no test."
    )
