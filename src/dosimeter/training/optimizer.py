# SPDX-License-Identifier: Apache-2.0
"""PrivateOptimizer: steps only on batches that were paid for, and only once on each.

A clipper gives the clipped sum of every physical batch. What is done with it happens here: sums
are added up over the pieces of a logical batch, put on a public grid, added over the ranks, given
noise once, divided by the public batch size, and stepped on. The optimizer underneath is guarded
as well: stepping it directly, on raw gradients, raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn

from dosimeter.decisions import Piece, StepSettings, Ticket
from dosimeter.errors import TicketError
from dosimeter.training import models
from dosimeter.training.clipping import Clipper
from dosimeter.training.entropy import Entropy
from dosimeter.training.grid import Grid
from dosimeter.training.group import Group
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.release import Release
from dosimeter.training.shards import Shards


class PrivateOptimizer(torch.optim.Optimizer):
    """A torch optimizer whose step is the noisy, clipped one; made by `make_private`.

    `zero_grad` and `step` are called on every physical batch, as in any training loop.
    """

    def __init__(
        self,
        base: torch.optim.Optimizer,
        model: nn.Module,
        *,
        clipper: Clipper,
        max_grad_norm: float,
        records: int,
        noise: Entropy,
        group: Group,
        on_step: Callable[[], None],
    ) -> None:
        # It borrows the groups and state of `base`: no second __init__.
        self._base, self._clipper = base, clipper
        self._parameters = clipper.parameters
        self._values = sum(parameter.numel() for parameter in self._parameters)
        self._max_grad_norm, self._records = max_grad_norm, records
        self._buffers = models.BufferWatch(model)
        self._noisy = Release(self._values, entropy=noise, group=group)
        self._shards = Shards(model, group)
        self._on_step = on_step
        self._ticket: Ticket | None = None
        self._grid: Grid
        self._sums: list[torch.Tensor] | None = None
        self._inside = False
        base.register_step_pre_hook(self._guard)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of the optimizer underneath."""
        return self._base.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        self._base.param_groups = value

    @property
    def state(self) -> Any:
        """The state (momentum and the like) of the optimizer underneath."""
        return self._base.state

    @state.setter
    def state(self, value: Any) -> None:
        self._base.state = value

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the optimizer underneath."""
        return self._base.defaults

    @defaults.setter
    def defaults(self, value: dict[str, Any]) -> None:
        self._base.defaults = value

    @property
    def max_grad_norm(self) -> float:
        """How far one record can move the sum of gradients."""
        return self._max_grad_norm

    @property
    def clipping(self) -> Clipping:
        """How gradients of records are bounded by that."""
        return self._clipper.clipping

    def divisor(self, batch_size: int) -> int:
        """What the noisy sum of a batch of this expected size is divided by."""
        return batch_size if self._clipper.mean else 1

    def grid(self, settings: StepSettings) -> Grid:
        """Where a step with these settings is released; raises if there is no such grid."""
        return Grid.of(
            settings.noise_multiplier,
            self._max_grad_norm,
            values=self._values,
            records=self._records,
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients; clipped sums of a logical batch under way are kept."""
        self._clipper.clear()
        self._base.zero_grad(set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Adds the batch at hand to the clipped sum; after the last piece, noise and a step.

        Returns:
            What the closure returned, or None.

        Raises:
            TicketError: There is no batch that was paid for and not yet used.
        """
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        if self._ticket is None:
            raise TicketError(
                "optimizer.step() must follow a batch drawn from the loader, got a step before "
                "any was. Iterate over the loader that make_private gave."
            )
        # From here on the piece is used up, whatever happens: noise is never drawn twice for it.
        piece = self._ticket.redeem()
        self._buffers.require_unchanged()
        sums = self._clipper.sums(piece.size)
        if piece.counts:
            self._add(sums, piece)
        if piece.last:
            self._release(self._ticket)
        return result

    def begin(self, ticket: Ticket) -> None:
        """Drops whatever an unfinished logical batch left, and works on this ticket now."""
        self._ticket, self._sums = ticket, None
        self._grid = self.grid(ticket.settings)
        self._clipper.norm = self._grid.norm
        self._shards.gather()
        self.zero_grad()

    def receive(self, ticket: Ticket, piece: Piece) -> None:
        """Makes ready for the gradients of one physical batch."""
        ticket.hand_out(piece)
        self._clipper.forget(piece.size)
        self._buffers.start()

    def hand_out(self, batch: Any) -> Any:
        """The batch that the loop is given, after the clipper has seen it."""
        self._clipper.hand_out(batch)
        return batch

    def step_on_nothing(self, ticket: Ticket) -> None:
        """The step of a logical batch without records: noise alone."""
        ticket.hand_out(Piece(size=0, last=True))
        ticket.redeem()
        self._release(ticket)

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer underneath."""
        return self._base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state of the optimizer underneath."""
        self._base.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self._base!r})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Also keeps copy.copy and copy.deepcopy from a copy that PyTorch cannot finish."""
        raise TypeError(
            "a PrivateOptimizer must not be copied or pickled: a copy would hold the same tickets "
            "twice. Save its state_dict(), or that of the engine."
        )

    def _add(self, sums: list[torch.Tensor], piece: Piece) -> None:
        """Adds the sums of a piece, in double precision and in the order of the pieces."""
        if self._sums is None:
            self._sums = sums if piece.last else [each.double() for each in sums]
            return
        for total, each in zip(self._sums, sums, strict=True):
            total.add_(each)

    def _release(self, ticket: Ticket) -> None:
        """Noise, the average over the public batch size, and the step."""
        if self._sums is None:  # no record was in the batch
            self._sums = [
                torch.zeros(p.shape, dtype=p.dtype, device=p.device) for p in self._parameters
            ]
        sums, self._sums = [each.contiguous() for each in self._sums], None
        self._inside = True
        try:
            divisor = self.divisor(ticket.settings.batch_size)
            self._noisy(sums, self._grid, divisor=divisor)
            self._shards.scatter()
            for parameter, grad in zip(self._parameters, sums, strict=True):
                parameter.grad = self._shards.share(parameter, grad.to(parameter.dtype))
            self._base.step()
        except BaseException:
            ticket.void()
            raise
        finally:
            self._inside = False
        self._on_step()

    def _guard(self, *_: object) -> None:
        if not self._inside:
            raise TicketError(
                "the optimizer given to make_private must not be stepped any more, for its "
                "gradients carry no noise. Step the optimizer that make_private returned."
            )
