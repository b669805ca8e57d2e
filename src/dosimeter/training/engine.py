# SPDX-License-Identifier: Apache-2.0
"""PrivateEngine: a training loop that looks like everyone's and cannot overspend.

Data is gated in one place, `PrivateEngine.spend`. The loader calls it before it draws a
batch (`_draw`), a signal before it counts. A batch comes with a ticket, and the optimizer
takes no step without one. What this module refuses to do: read a record before its spend,
hand back a spend, or guess a budget that was not given.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from dosimeter.accounting import Filter, Gate
from dosimeter.accounting.burned import share_of
from dosimeter.decisions import Controls, StepSettings, Ticket, costs_of, filter_for
from dosimeter.errors import BudgetExceeded
from dosimeter.rdp import Cost
from dosimeter.rdp.plain import to_plain
from dosimeter.training import checkpoint, models
from dosimeter.training.assembly import Hooks, Options, Parts, assemble, settings_for
from dosimeter.training.given import given
from dosimeter.training.group import Group
from dosimeter.training.guarantee import TrainingGuarantee
from dosimeter.training.loader import PrivateLoader, Records
from dosimeter.training.losses import RecordLoss
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.optimizer import PrivateOptimizer


class PrivateEngine(Controls):
    """Private training under any gate; itself a gate, so that signals share the budget.

    Args:
        gate: What every step and every signal is charged to; or (epsilon, delta), for a filter
            that `make_private` prices for its step.
        seed: Makes batches and noise repeatable, for tests. Whoever knows it can take the
            noise off again, and the guarantee says so. By default the operating system's
            entropy is used.
        strict: Whether a refused step raises BudgetExceeded instead of ending the loader.

    Guarantee:
        What leaves through the optimizer and the signals is as private as the gate says, for
        neighbours that differ in one record, if the number of records is public and the
        training loop uses a batch for nothing but the gradient. Spends come first and are
        never handed back.

    Note:
        On a CPU under glibc, steps are faster in a process that keeps the memory they free. Set
        `MALLOC_TRIM_THRESHOLD_=1073741824` (1 GiB) and `MALLOC_MMAP_THRESHOLD_=33554432` (32 MiB)
        in its environment before Python starts; the engine changes no allocator.

    Example:
        >>> import torch, dosimeter as dm
        >>> from dosimeter.training import PrivateEngine
        >>> data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randn(64, 1))
        >>> engine = PrivateEngine(dm.Filter(epsilon=2, delta=1e-5))
        >>> model = torch.nn.Linear(3, 1)
        >>> model, optimizer, loader = engine.make_private(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1), data,
        ...     noise_multiplier=2.0, max_grad_norm=1.0, batch_size=16)
        >>> for x, y in loader:
        ...     optimizer.zero_grad()
        ...     torch.nn.functional.mse_loss(model(x), y).backward()
        ...     optimizer.step()
        >>> engine.steps, engine.epsilon < 2
        (4, True)
    """

    def __init__(
        self,
        gate: Gate | tuple[float, float],
        *,
        seed: int | None = None,
        strict: bool = False,
    ) -> None:
        self._target = gate if isinstance(gate, tuple) else None
        if isinstance(gate, tuple):
            gate = Filter(*gate)
        if not isinstance(gate, Gate):
            raise TypeError(f"gate must have admits, spend and epsilon, got {gate!r}")
        if seed is not None and not (type(seed) is int and seed >= 0):
            raise ValueError(f"seed must be a whole number >= 0 or None, got {seed!r}")
        super().__init__()
        self._gate, self._strict, self._seed = gate, strict, seed
        # Also if a part of the run was: its noise can be taken off for ever.
        self._seeded = seed is not None
        self._group = Group.here()
        self._ledger = checkpoint.Spends(run=secrets.token_hex(16))
        self._callbacks: list[Callable[[], None]] = []
        self._steps = 0
        self._refusal: BudgetExceeded | None = None
        self._told_epsilon = 0.0
        self._made: Parts | None = None
        self._tickets: list[Ticket] = []

    # -- the gate ------------------------------------------------------------------------

    def spend(self, cost: Cost, count: int = 1) -> None:
        """Charges the gate; the one place where data is gated. Call it before touching data.

        Rank 0 spends for all ranks.

        Raises:
            BudgetExceeded: The gate refused. Nothing has changed.
        """
        to_plain(cost)  # what a checkpoint cannot hold is refused before it is spent
        self._told_epsilon = self._group.lead(lambda: self._spend(cost, count))
        self._ledger.add(cost, count)

    def _spend(self, cost: Cost, count: int) -> float:
        self._gate.spend(cost, count)
        return self._gate.epsilon if self._group.size > 1 else 0.0

    def _draw(self, ahead: bool = False) -> Ticket | None:
        """Pays for the next logical batch: its ticket, or None if there will be none.

        Args:
            ahead: Whether the tickets before are still good.
        """
        if not ahead:
            self._void_tickets()
        self._stopped, settings = self._group.lead(lambda: (self._stopped, self._settings))
        if self._stopped is not None:
            return None
        self._parts.optimizer.grid(settings)  # refuses what has none, before it is paid for
        try:
            self._ask_again(settings.cost)
            self.spend(settings.cost)
        except BudgetExceeded as refusal:
            self._refusal = refusal
            if self._strict:
                raise
            return None
        self._refusal = None
        ticket = Ticket(settings)
        self._tickets.append(ticket)
        return ticket

    def _ask_again(self, cost: Cost) -> None:
        """Raises what was refused before if it still would be; a journal notes it only once.

        Loops over epochs ask for the same step again and again.
        """
        before = self._refusal
        if before is not None and before.cost == cost and not self.admits(cost):
            raise before

    def _void_tickets(self) -> None:
        """Makes unused tickets worthless; what they cost stays spent."""
        for ticket in self._tickets:
            ticket.void()
        self._tickets.clear()

    def admits(self, cost: Cost, count: int = 1) -> bool:
        """Whether the gate would accept this now; changes nothing. Call it on every rank."""
        return self._group.lead(lambda: self._gate.admits(cost, count))

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, as the gate reads it (after the last spend, beyond rank 0)."""
        return self._gate.epsilon if self._group.rank == 0 else self._told_epsilon

    @property
    def spent_share(self) -> float | None:
        """The share of the gate that is used up; None without a limit, and beyond rank 0."""
        return share_of(self._gate) if self._group.rank == 0 else None

    def guarantee(self) -> TrainingGuarantee:
        """What holds for all that was trained so far, in words that can be quoted."""
        words = getattr(self._gate, "guarantee", None) if self._group.rank == 0 else None
        said = words() if callable(words) else f"epsilon {self.epsilon!r} by the gate it used"
        return TrainingGuarantee(said, seeded=self._seeded)

    # -- what the engine is doing --------------------------------------------------------

    @property
    def gate(self) -> Gate:
        """The gate that everything is charged to; once it was asked for it stays the same one.

        An engine that was given (epsilon, delta) makes a menu when it is made private, unless its
        gate was handed out before.
        """
        self._target = None
        return self._gate

    @property
    def made(self) -> tuple[nn.Module, PrivateOptimizer, PrivateLoader]:
        """What `make_private` gave."""
        parts = self._parts
        return parts.private, parts.optimizer, parts.loader

    @property
    def group(self) -> Group:
        """The processes that train together."""
        return self._group

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return self._steps

    @property
    def spends(self) -> int:
        """How many steps and signals were paid for; a step that crashed counts here only."""
        return self._ledger.count

    @property
    def exhausted(self) -> bool:
        """Whether the gate refused the last step that was asked for."""
        return self._refusal is not None

    @property
    def refusal(self) -> BudgetExceeded | None:
        """What the gate said to the last step that was asked for, if it refused it."""
        return self._refusal

    def after_step(self, callback: Callable[[], None]) -> None:
        """Calls back after every step, when `parameter.grad` holds the released gradient."""
        self._callbacks.append(callback)

    # -- making things private -----------------------------------------------------------

    def make_private(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Records | DataLoader[Any],
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        batch_size: int | None = None,
        physical_batch_size: int | None = None,
        records: int | None = None,
        clipping: Clipping | str = Clipping.FLAT,
        loss_reduction: str = "mean",
        fix: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
    ) -> tuple[nn.Module, PrivateOptimizer, PrivateLoader]:
        """The private versions of a model, its optimizer and its data; once per engine.

        Args:
            model: Trained in place; the returned module wraps it.
            optimizer: Must hold exactly the trainable parameters of the model.
            dataset: Map-style; gives what the loop unpacks, usually (input, label). Or a
                DataLoader around it, taken for its dataset, batch size and collate function;
                a warning names what else it was told, which is ignored.
            noise_multiplier: Standard deviation of the noise over `max_grad_norm`.
            max_grad_norm: What the gradient of each record is clipped to.
            batch_size: Expected size of a logical batch; a DataLoader's own by default.
            physical_batch_size: Largest number of records held at once; by default a
                logical batch is handed out whole.
            records: The public number of records that the sample rate is computed from, by
                default `len(dataset)`, which is then treated as public.
            clipping: "flat" cuts gradients that are longer than `max_grad_norm`; "normalised"
                gives all of them that length, so that the norm needs no choosing.
            loss_reduction: "mean" or "sum", as the loss function has it.
            fix: Converts BatchNorm to GroupNorm inside the model.
            collate_fn: Makes a batch of a list of records; PyTorch's default otherwise.
            num_workers: How many processes read records. They read ahead what is paid ahead, two
                physical batches each: a loop that is left early has paid for what it did not use.
        """
        if self._made is not None:
            raise ValueError(
                "an engine must be used for one model, got a second one. Make another "
                "PrivateEngine over the same gate: the budget is the gate's."
            )
        self._group.require_unchanged()
        dataset, batch_size, collate_fn = given(dataset, batch_size, collate_fn)
        settings = settings_for(dataset, noise_multiplier, batch_size, records)
        if self._target is not None and not self._ledger.count:
            self._gate = filter_for(*self._target, lambda: costs_of(settings), note=warnings.warn)
        options = Options(
            max_grad_norm=max_grad_norm,
            clipping=Clipping(clipping),
            physical_batch_size=(
                len(dataset) if physical_batch_size is None else physical_batch_size
            ),
            loss_reduction=loss_reduction,
            collate=collate_fn,
            workers=num_workers,
        )
        models.validate(model, optimizer, fix=fix)
        hooks = Hooks(draw=self._draw, settings=lambda: self._settings, on_step=self._count_step)
        made = assemble(
            model,
            optimizer,
            dataset,
            options,
            settings=settings,
            group=self._group,
            seed=self._seed,
            hooks=hooks,
        )
        self._next, self._made = settings, made
        return made.private, made.optimizer, made.loader

    def private_loss(self, loss_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the loss function to train with, which takes each record by itself.

        Make it once, before the loop: no loss can then let one record touch another.
        """
        return RecordLoss(loss_fn, mean=self._parts.clipper.mean)

    # -- saving and resuming -------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume: model, optimizer, randomness, schedule and budget.

        Without a seed no randomness is written, because it would give the noise away.
        """
        parts = self._parts
        return {
            "version": checkpoint.VERSION,
            "model": parts.model.state_dict(),
            "optimizer": parts.optimizer.state_dict(),
            "sampler": parts.sampler.entropy.state(),
            "noise": parts.noise.state(),
            "seeded": self._seeded,
            "noise_multiplier": self.noise_multiplier,
            "batch_size": self.batch_size,
            "records": self.records,
            "steps": self._steps,
            "spends": self._ledger.state(),
            "gate": self._gate_state(),
        }

    def require_loadable(self, state: Mapping[str, Any]) -> checkpoint.Spends:
        """The spends of a state that `load_state_dict` takes; raises StateError for others."""
        own = self._parts.model.state_dict()
        return checkpoint.read(state, records=self.records, weights=own)

    def load_state_dict(self, state: Mapping[str, Any], *, spends_kept: bool = False) -> None:
        """Resumes from `state_dict()`; the gate can only go up.

        What the saved run had spent is spent again here, before anything is loaded, unless
        this gate is known to hold it: the engine itself made those spends, or the gate is in
        exactly the state that was saved, or the caller says so.

        Args:
            state: What `state_dict()` gave.
            spends_kept: Says that the gate outlived the saved run (a budget in a database)
                and holds its spends. If it does not, they go uncounted.

        Raises:
            StateError: The state is of another kind or version.
            BudgetExceeded: The gate cannot hold what the saved run had spent.
        """
        parts = self._parts
        saved = self.require_loadable(state)
        self._void_tickets()
        # An equal gate is the same gate only if this engine has not spent from it yet.
        fresh = self._ledger.count == 0
        kept = self._group.lead(lambda: spends_kept or (fresh and self._gate_is_at(state["gate"])))
        for cost, count in self._ledger.missing(saved, kept=kept):
            self.spend(cost, count)
        parts.model.load_state_dict(state["model"])
        parts.optimizer.load_state_dict(state["optimizer"])
        parts.sampler.entropy.restore(state["sampler"])
        parts.noise.restore(state["noise"])
        self._seeded = self._seeded or bool(state["seeded"])
        self._next = StepSettings(state["noise_multiplier"], state["batch_size"], self.records)
        self._steps = int(state["steps"])
        self._refusal, self._stopped = None, None

    def _gate_state(self) -> object:
        """The state of the gate, where it has one and this rank is the one that spends."""
        state = getattr(self._gate, "state", None)
        if not callable(state) or self._group.rank != 0:
            return None
        return state()

    def _gate_is_at(self, saved: object) -> bool:
        return saved is not None and self._gate_state() == saved

    @property
    def _parts(self) -> Parts:
        if self._made is None:
            raise ValueError("engine must have a model, got none yet; call make_private first")
        return self._made

    def _count_step(self) -> None:
        self._steps += 1
        for callback in self._callbacks:
            callback()
