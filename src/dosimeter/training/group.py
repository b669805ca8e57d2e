# SPDX-License-Identifier: Apache-2.0
"""Group: the processes that train one model together, or the one that trains alone.

Rank 0 holds the gate, decides and tells; the others follow, so that a step is spent once
for all and every rank stops at the same step. With one process nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import distributed, nn

from dosimeter.errors import BudgetExceeded, DosimeterError

T = TypeVar("T")


def is_sharded(model: nn.Module) -> bool:
    """Whether a rank holds only parts of some parameters, as `fully_shard` leaves them."""
    return any(hasattr(parameter, "device_mesh") for parameter in model.parameters())


class Group:
    """This process' place among those that train together."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @classmethod
    def here(cls) -> Group:
        """All processes of this run, if `torch.distributed` was set up."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls.alone()

    def require_unchanged(self) -> None:
        """Raises if processes were joined since: each would train alone, on all data."""
        now = Group.here()
        if (now.rank, now.size) != (self.rank, self.size):
            raise ValueError(
                "PrivateEngine must be made after torch.distributed was set up, got a group of "
                f"{now.size} that the engine does not know. Make the engine anew."
            )

    @classmethod
    def alone(cls) -> Group:
        """This process by itself."""
        return cls(0, 1)

    def lead(self, act: Callable[[], T]) -> T:
        """What `act` gives on rank 0, on every rank; or its error, on every rank."""
        if self.size == 1:
            return act()
        told: list[Any] = [None]
        failure: Exception | None = None
        if self.rank == 0:
            try:
                told = [("done", act())]
            except BudgetExceeded as error:
                names = ("cost", "count", "spent", "limit", "affordable", "reason")
                fields = {name: getattr(error, name) for name in names}
                failure, told = error, [("refused", fields)]
            except Exception as error:
                failure, told = error, [("failed", f"{type(error).__name__}: {error}")]
        distributed.broadcast_object_list(told, src=0)
        outcome, value = told[0]
        if failure is not None:
            raise failure
        if outcome == "refused":
            raise BudgetExceeded(**value)
        if outcome == "failed":
            raise DosimeterError(f"rank 0 failed while the others waited for it: {value}")
        return cast(T, value)

    def total(self, value: int) -> int:
        """The sum of a whole number over all ranks, on every rank."""
        if self.size == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.int64)
        distributed.all_reduce(tensor)
        return int(tensor.item())

    def largest(self, value: int) -> int:
        """The largest of a whole number over all ranks, on every rank."""
        if self.size == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.int64)
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
        return int(tensor.item())

    def summed(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of whole numbers, added up over all ranks in place, on every rank."""
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def share_parameters(self, model: nn.Module) -> None:
        """Give every rank rank 0's parameters; shards stay, for each rank holds others."""
        if self.size > 1 and not is_sharded(model):
            for parameter in model.parameters():
                distributed.broadcast(parameter.detach(), src=0)
