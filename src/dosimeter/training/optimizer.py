# SPDX-License-Identifier: Apache-2.0
"""PrivateOptimizer: steps only on batches that were paid for, and only once on each.

Opacus clips, sums and adds the noise. A physical batch that does not end its logical batch
adds its clipped sum and nothing else; the last one adds noise once and takes the step. The
optimizer underneath is guarded as well: stepping it directly, on raw gradients, raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from opacus.optimizers import (
    DistributedDPOptimizer,
    DistributedDPOptimizerFastGradientClipping,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
)
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

from dosimeter.errors import TicketError
from dosimeter.training import models, refusals
from dosimeter.training.entropy import NoiseSource
from dosimeter.training.group import Group
from dosimeter.training.models import GradSampling
from dosimeter.training.settings import Piece, Ticket


class PrivateOptimizer(torch.optim.Optimizer):
    """A torch optimizer whose step is the noisy, clipped one; made by `make_private`.

    `zero_grad` and `step` are called on every physical batch, as in any training loop.
    """

    def __init__(
        self,
        base: torch.optim.Optimizer,
        model: nn.Module,
        *,
        mode: GradSampling,
        max_grad_norm: float,
        loss_reduction: str,
        noise: NoiseSource,
        group: Group,
        on_step: Callable[[], None],
    ) -> None:
        # Like Opacus' own, it borrows the groups and state of `base`: no second __init__.
        kinds = {
            (False, False): DPOptimizer,
            (False, True): DistributedDPOptimizer,
            (True, False): DPOptimizerFastGradientClipping,
            (True, True): DistributedDPOptimizerFastGradientClipping,
        }
        self._inner: Any = kinds[mode is GradSampling.GHOST, group.size > 1](
            base,
            # Both are set from the ticket before every step; these values would fail.
            noise_multiplier=float("nan"),
            expected_batch_size=0,
            max_grad_norm=max_grad_norm,
            loss_reduction=loss_reduction,
            generator=noise.generator,
        )
        if mode is not GradSampling.GHOST:
            self._clip = self._inner.clip_and_accumulate
            self._inner.clip_and_accumulate = self._clip_finite
        self._base, self._model, self._mode = base, model, mode
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._compared = 0
        self._modules = list(model.modules())
        self._buffers = models.BufferWatch(model)
        self._noise, self._group, self._on_step = noise, group, on_step
        self._ticket: Ticket | None = None
        self._clipped: list[torch.Tensor] | None = None
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
        """The norm that the gradient of each record is clipped to."""
        return float(self._inner.max_grad_norm)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients; clipped sums of a logical batch under way are kept."""
        self._inner.zero_grad(set_to_none)
        self._clipped = None

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
        self._require_gradients(piece)
        self._compare()
        self._run(self._ticket, piece)
        return result

    def begin(self, ticket: Ticket) -> None:
        """Drops whatever an unfinished logical batch left, and works on this ticket now."""
        self._ticket = ticket
        self._inner._step_skip_queue.clear()
        self._inner._is_last_step_skipped = False
        self.zero_grad()

    def receive(self, ticket: Ticket, piece: Piece) -> None:
        """Makes ready for the gradients of one physical batch."""
        ticket.hand_out(piece)
        self._clipped = None
        for parameter in self._parameters:
            parameter.grad = None
        models.reset(self._parameters, self._modules)
        self._buffers.start()

    def step_on_nothing(self, ticket: Ticket) -> None:
        """The step of a logical batch without records: noise alone."""
        self.receive(ticket, Piece(size=0, last=True))
        self.zero_grad()
        for parameter in self._inner.params:
            parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
        self._clipped = [torch.zeros_like(p) for p in self._inner.params]
        self.step()

    def clipping_loss(self, loss_fn: nn.Module) -> Any:
        """Opacus' loss for ghost clipping, whose backward pass clips."""
        return DPLossFastGradientClipping(
            self._model, self._inner, loss_fn, self._inner.loss_reduction
        )

    @property
    def compares(self) -> bool:
        """Whether this batch is still one of those that are compared with autograd."""
        return self._compared < refusals.CHECKED

    def norm_of(self, loss: torch.Tensor) -> float:
        """The norm of the gradient of one record's loss, by autograd alone."""
        self._model.disable_hooks()  # type: ignore[operator]
        grads = torch.autograd.grad(loss, self._inner.params, retain_graph=True, allow_unused=True)
        self._model.enable_hooks()  # type: ignore[operator]
        return math.sqrt(sum(float(g.double().square().sum()) for g in grads if g is not None))

    def keep_clipped(self) -> None:
        """Takes over the gradients that ghost clipping has just made, and no others."""
        if not _finite(p.grad for p in self._inner.params):
            raise ValueError(
                "the gradient of every record must be finite for ghost clipping, got one that "
                "is not. Mend the data, or use grad_sampling='hooks', which leaves it out."
            )
        self._clipped = [p.grad for p in self._inner.params]
        for parameter in self._inner.params:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer underneath."""
        return self._base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state of the optimizer underneath."""
        self._base.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self._base!r})"

    def _run(self, ticket: Ticket, piece: Piece) -> None:
        inner = self._inner
        inner.noise_multiplier = ticket.settings.noise_multiplier
        # Opacus' distributed optimizers divide by the number of ranks once more.
        inner.expected_batch_size = ticket.settings.batch_size / self._group.size
        # What an interrupted piece left in the queue must not decide over this one.
        inner._step_skip_queue.clear()
        inner.signal_skip_step(do_skip=not piece.last)
        if piece.last:
            self._noise.refresh()
        self._inside = True
        try:
            inner.step()
        except BaseException:
            ticket.void()
            raise
        finally:
            self._inside = False
            for parameter in self._inner.params:
                # Used up; torch's expanded weights refuse to run the model while they are there.
                parameter.grad_sample = None
        if piece.last:
            self._on_step()

    def _clip_finite(self) -> None:
        """Opacus' clipping, but a record whose gradient is not finite adds nothing.

        Clipped, it would still be not a number, and one record would ruin the sum for all.
        """
        parameters = self._inner.params
        before = [p.summed_grad for p in parameters]
        for parameter in parameters:
            parameter.summed_grad = None
        self._clip()
        if not _finite(p.summed_grad for p in parameters):
            rows = [p.grad_sample.flatten(start_dim=1).isfinite().all(dim=1) for p in parameters]
            kept = torch.stack(rows).all(dim=0)
            for parameter in parameters:
                shape = (-1, *[1] * (parameter.grad_sample.dim() - 1))
                parameter.grad_sample = parameter.grad_sample.where(kept.view(shape), 0.0)
                parameter.summed_grad = None
            self._clip()
        for parameter, sum_before in zip(parameters, before, strict=True):
            if sum_before is not None:
                parameter.summed_grad += sum_before

    def _require_gradients(self, piece: Piece) -> None:
        """Every record of the piece must have exactly one clipped gradient in the sum."""
        if self._mode is GradSampling.GHOST:
            if self._clipped is None:
                raise TicketError(
                    "loss must come from engine.private_loss(loss_fn) when grad_sampling='ghost', "
                    "got gradients that were not clipped. Wrap the loss function once, before "
                    "the loop."
                )
            for parameter, grad in zip(self._inner.params, self._clipped, strict=True):
                parameter.grad = grad
        for parameter in self._inner.params:
            found = _samples(parameter, self._mode)
            if piece.size and found != piece.size:
                raise TicketError(
                    f"the model must be run once, forward and backward, on the {piece.size} "
                    f"records of the batch, got gradients of {found}. Call "
                    "loss.backward() once before optimizer.step()."
                )

    def _compare(self) -> None:
        """Compares the first batches with autograd; ghost clipping does so while it has a graph."""
        if self.compares and self._mode is not GradSampling.GHOST:
            samples = [p.grad_sample for p in self._parameters]  # type: ignore[attr-defined]
            refusals.require_same_sum(self._parameters, self._names, samples)
        self._compared += 1

    def _guard(self, *_: object) -> None:
        if not self._inside:
            raise TicketError(
                "the optimizer given to make_private must not be stepped any more, for its "
                "gradients carry no noise. Step the optimizer that make_private returned."
            )


def _finite(tensors: Iterable[torch.Tensor]) -> bool:
    # One sum is cheaper than looking at each value; finite ones may overflow, which only
    # means a second look.
    return all(math.isfinite(float(tensor.sum())) for tensor in tensors)


def _samples(parameter: nn.Parameter, mode: GradSampling) -> int:
    name = "_norm_sample" if mode is GradSampling.GHOST else "grad_sample"
    found = getattr(parameter, name, None)
    if isinstance(found, list):
        return sum(len(part) for part in found)
    return 0 if found is None else len(found)
