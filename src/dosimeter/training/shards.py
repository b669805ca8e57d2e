# SPDX-License-Identifier: Apache-2.0
"""Shards: a model that `fully_shard` has cut, made whole while a step is under way.

Ranks draw batches of different sizes, so one may run the model more often than another, or not at
all. Parameters are therefore gathered once a step, on every rank, and no pass waits for another
rank. Gradients of records are local to the rank that drew them. The release is the same on all
ranks; each keeps its own share of it, and of the optimizer's state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dosimeter.training.group import Group, is_sharded


class Shards:
    """The parts of a model that are cut; none for a model that is whole.

    Raises:
        ValueError: It is cut in a way that is not known here.
    """

    def __init__(self, model: nn.Module, group: Group) -> None:
        self._parts: list[Any] = []
        if not is_sharded(model):
            return
        from torch.distributed.fsdp import FSDPModule

        for name, parameter in model.named_parameters():
            _require_even(name, parameter, group)
        self._parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for part in self._parts:
            if part._get_fsdp_state()._mp_policy.param_dtype is not None:
                raise ValueError(
                    "fully_shard must leave parameters in their own precision, got a mixed one: "
                    "sums would round past their bound. Leave mp_policy out, and use "
                    "torch.autocast for speed."
                )
            part.set_reshard_after_forward(False, recurse=False)
            part.set_reshard_after_backward(False, recurse=False)
            part.set_requires_gradient_sync(False, recurse=False)
        self.gather()
        if is_sharded(model):
            raise ValueError(
                "model must be cut by fully_shard alone, got parameters that it does not put "
                "together again (tensor parallelism). Leave the other way out."
            )
        self.scatter()

    def gather(self) -> None:
        """Makes all parameters whole; called on every rank, whatever each has done before."""
        self.scatter()
        for part in self._parts:
            part.unshard()

    def scatter(self) -> None:
        """Leaves each rank with its own share of the parameters, for the optimizer."""
        for part in self._parts:
            part.reshard()

    def share(self, parameter: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        """This rank's share of a tensor that is the same on all ranks."""
        if not self._parts:
            return whole
        from torch.distributed.tensor import DTensor, Replicate

        cut: Any = parameter
        found: torch.Tensor = DTensor.from_local(
            whole, cut.device_mesh, [Replicate()], run_check=False
        ).redistribute(placements=cut.placements)
        return found


def _require_even(name: str, parameter: Any, group: Group) -> None:
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None or mesh.ndim != 1 or mesh.size() != group.size:
        raise ValueError(
            "fully_shard must cut all parameters over all ranks in one dimension, got another way "
            f"for {name!r}. Call fully_shard(model) on the whole model, with a mesh of all "
            f"{group.size} ranks."
        )
