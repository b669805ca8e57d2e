# SPDX-License-Identifier: Apache-2.0
"""PrivateTraining: a callback that puts a budget under Lightning's Trainer.

Model, optimizer and data loader stay the user's. When a fit begins, the loader gives way to one of
Poisson batches that are paid for, the optimizer to one that steps on these alone, and the network
inside of the module runs with per-record gradients. When it ends, all is as it was. It refuses
whatever would touch gradients or data on another way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.decisions import Policy, Reading
from dosimeter.decisions.steering import listed
from dosimeter.integrations import parts
from dosimeter.integrations.budgets import priced, shown

parts.require("lightning", "2.6")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import default_collate  # noqa: E402

from dosimeter.integrations.lightning_refusals import (  # noqa: E402
    require_loader,
    require_private_way,
)
from dosimeter.integrations.loop import Loop  # noqa: E402
from dosimeter.integrations.promised import PromisedLoader  # noqa: E402
from dosimeter.training import PrivateEngine  # noqa: E402
from dosimeter.training.loader import Records  # noqa: E402
from dosimeter.training.signals import Signal  # noqa: E402
from dosimeter.training.trainer import require_signal  # noqa: E402


class PrivateTraining(Callback):
    """Trains under a budget: `Trainer(callbacks=[PrivateTraining((4, 1e-5))])`.

    Args:
        gate: What every step is charged to; or (epsilon, delta), for a filter that is priced for
            the step.
        noise_multiplier: The noise of a step. Without it, the least with which (epsilon, delta)
            lasts for the epochs of the Trainer.
        max_grad_norm: What the gradient of each record is clipped to.
        batch_size: Expected size of a logical batch over all devices; by default that of the data
            loader, times `accumulate_grad_batches`, times the number of devices.
        physical_batch_size: Largest number of records held at once on a device; by default that of
            the data loader where batches are accumulated, and otherwise a whole batch.
        network: Name of the part of the module that is trained, such as "net", if it is neither its
            only part nor the module itself, as run by `self(x)`.
        policy: One or more policies, which set noise and batch size after an epoch or end the fit;
            they need a `signal`.
        signal: What is read for them, of the trained network on the training records; with
            `public=True` in it, on `public`.
        public: Data known to be public, for such a signal.
        released: Names that the module may log while it trains, known to tell nothing of the data.
        spends_kept: Says that the gate outlived the run whose checkpoint is resumed and holds its
            spends; otherwise they are charged again.
        seed: Makes the run repeatable and its noise predictable.
        watch: The URL of a budget service, whose page shows the fit under the name of the module's
            class, and can end it at its next step.
        **options: Anything else that `PrivateEngine.make_private` takes.

    Guarantee:
        That of `PrivateEngine`, if `training_step` uses a batch for its loss alone. What the module
        logs while it trains is dropped, and so the loss of a batch does not leave.
    """

    def __init__(
        self,
        gate: Gate | tuple[float, float],
        *,
        noise_multiplier: float | None = None,
        max_grad_norm: float = 1.0,
        batch_size: int | None = None,
        physical_batch_size: int | None = None,
        network: str | None = None,
        policy: Policy | Sequence[Policy] = (),
        signal: Signal | None = None,
        public: Records | None = None,
        released: Collection[str] = (),
        spends_kept: bool = False,
        seed: int | None = None,
        watch: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        require_signal(policy, signal, public)
        self.gate = gate
        self._policies, self._signal, self._public = listed(policy), signal, public
        self._noise, self._network, self._released = noise_multiplier, network, set(released)
        self._sizes = batch_size, physical_batch_size
        self._kept, self._seed, self._watch = spends_kept, seed, watch
        self._options = {"max_grad_norm": max_grad_norm, **options}
        self._run: Loop | None = None
        self._saved: dict[str, Any] | None = None
        self._undo: list[Callable[[], None]] = []
        self._page = ExitStack()
        self._loader: Any = None

    @property
    def engine(self) -> PrivateEngine:
        """The engine of the fit under way or over: its steps, its epsilon, its guarantee."""
        return self._loop.engine

    @property
    def _loop(self) -> Loop:
        if self._run is None:
            raise ValueError("there must have been a fit, got none yet")
        return self._run

    # -- what Lightning calls ------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuses what cannot be private, and keeps gradients from being averaged over ranks."""
        if stage != "fit":
            return
        require_private_way(trainer, pl_module)
        if isinstance(trainer.strategy, DDPStrategy):
            self._replace(trainer.strategy, "configure_ddp", lambda: None)
        # Before optimizers are made: they may ask how many steps there will be.
        accumulated = trainer.accumulate_grad_batches
        self._replace(trainer, "accumulate_grad_batches", 1)
        source = _Source(
            trainer.fit_loop._data_source, lambda it: self._sized(it, trainer, accumulated)
        )
        self._replace(trainer.fit_loop, "_data_source", source)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts the private loader, optimizer and network in the place of the user's."""
        batches = trainer.fit_loop._data_source.dataloader()
        network = self._trained(pl_module)
        engine, private = self._made(trainer, batches, network)
        self._run = Loop(engine, self._policies, self._reading(network, batches.dataset, engine))
        self._route(network, private[0])
        batches.private = private[2]
        base = trainer.strategy.optimizers[0]
        trainer.strategy.optimizers = [private[1]]
        # Schedulers go forward at every batch, the optimizer only at the last of a step.
        base._opt_called = True
        self._replace(pl_module, "log", self._quiet(trainer, pl_module.log))
        if self._saved is not None:
            self._run.restore(self._saved, network, spends_kept=self._kept)
            self._saved = None
        epochs, name = max(1, trainer.max_epochs or 1), type(pl_module).__name__
        self._page.enter_context(self._run.watched(self._watch, name=name, epochs=epochs))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tells Lightning how many batches there will be, for the batch size may have changed."""
        loop, loader = trainer.fit_loop, self.engine.made[2]
        self._loop.begin_epoch()
        if loop._combined_loader.limits != [len(loader)] and trainer.limit_train_batches == 1.0:
            loop._combined_loader.limits = [len(loader)]
            loop.max_batches = len(loader)
            if isinstance(trainer.val_check_interval, float):
                trainer.val_check_batch = max(1, int(len(loader) * trainer.val_check_interval))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Shows epsilon, and stops the Trainer when the gate would refuse the next step."""
        self.log("epsilon", shown(self.engine.epsilon), prog_bar=True, rank_zero_only=True)
        if self._loop.is_over():
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lets policies decide, and stops the Trainer when they or the loader ended it."""
        if self._loop.close_epoch():
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Settings and spends; model and optimizer are in Lightning's checkpoint already."""
        if self._run is None:
            return {} if self._saved is None else self._saved
        return self._run.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps what a checkpoint says was spent, for the gate to be charged with."""
        self._saved = state_dict or None

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leaves the user's objects as they were, and tells the page that the fit failed."""
        try:
            self._page.__exit__(type(exception), exception, exception.__traceback__)
        finally:
            self.teardown()

    def teardown(self, *_: Any, **__: Any) -> None:
        """Leaves the user's objects as they were."""
        self._page.close()
        while self._undo:
            self._undo.pop()()

    # -- how it is done ------------------------------------------------------------------

    def _sized(self, loader: Any, trainer: Trainer, accumulated: int) -> PromisedLoader:
        """The user's loader with the sizes of logical and physical batches."""
        batch_size, physical = self._sizes
        require_loader(loader)
        if batch_size is None:
            batch_size = loader.batch_size * accumulated * trainer.world_size
        if physical is None and accumulated > 1:
            physical = loader.batch_size
        records = self._options.get("records") or len(loader.dataset)
        self._loader = loader
        return PromisedLoader(
            loader.dataset, batch_size, physical, records=records, processes=trainer.world_size
        )

    def _made(
        self, trainer: Trainer, batches: PromisedLoader, network: nn.Module
    ) -> tuple[PrivateEngine, Any]:
        """The engine, and what `make_private` gave."""
        loader = self._loader
        noise, gate = priced(
            self.gate,
            self._noise,
            batch_size=batches.batch_size,
            records=batches.records,
            epochs=trainer.max_epochs if trainer.max_epochs is not None else -1,
            policies=self._policies,
            reading=None if self._signal is None else self._signal.cost,
        )
        engine = PrivateEngine(gate, seed=self._seed)
        collate = loader.collate_fn
        options = {
            "collate_fn": None if collate is default_collate else collate,
            "num_workers": loader.num_workers if trainer.world_size == 1 else 0,
            **self._options,
        }
        private = engine.make_private(
            network,
            trainer.strategy.optimizers[0],
            batches.dataset,
            noise_multiplier=noise,
            batch_size=batches.batch_size,
            physical_batch_size=batches.physical_batch_size,
            **options,
        )
        # Another fit goes on with the same budget.
        self.gate, self._noise = engine.gate, noise
        return engine, private

    def _reading(
        self, network: nn.Module, private: Records, engine: PrivateEngine
    ) -> Callable[[], Reading] | None:
        """What pays for and makes a reading of the network."""
        signal, public = self._signal, self._public
        if signal is None:
            return None
        data = public if signal.public and public is not None else private
        return lambda: signal.read(network, data, gate=engine)

    def _trained(self, module: LightningModule) -> nn.Module:
        """The part of the module that is trained: by name, the only one, or the whole."""
        if self._network is not None:
            found: nn.Module = module.get_submodule(self._network)
            return found
        own = any(p.requires_grad for p in module.parameters(recurse=False))
        several: list[nn.Module] = [
            part for part in module.children() if any(p.requires_grad for p in part.parameters())
        ]
        whole: nn.Module = module
        return several[0] if len(several) == 1 and not own else whole

    def _route(self, network: nn.Module, private: nn.Module) -> None:
        """Has calls of the network run with per-record gradients."""
        plain, inside = network.forward, [False]

        def forward(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:
                return plain(*args, **kwargs)
            inside[0] = True
            try:
                return private(*args, **kwargs)
            finally:
                inside[0] = False

        self._replace(network, "forward", forward)

    def _quiet(self, trainer: Trainer, log: Callable[..., None]) -> Callable[..., None]:
        """Logging that drops what training batches would tell."""
        told: set[str] = set()

        def quiet(name: str, *args: Any, **kwargs: Any) -> None:
            if not trainer.training or name in self._released:
                log(name, *args, **kwargs)
            elif name not in told:
                told.add(name)
                warnings.warn(
                    f"{name!r} is not logged while the module trains: it would tell of records "
                    "that nobody paid for. Log it in validation_step, on public data, or name it "
                    "in released=(…) if it does not depend on the data.",
                    stacklevel=2,
                )

        return quiet

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute until the fit is over."""
        before = vars(owner).get(name, self)  # self: there was none of its own

        def undo() -> None:
            if before is self:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        setattr(owner, name, value)
        self._undo.append(undo)


class _Source:
    """Where Lightning asks for the training data: what it is given comes from here."""

    def __init__(self, source: Any, made: Callable[[Any], PromisedLoader]) -> None:
        self._source, self._made = source, made
        self._batches: PromisedLoader | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def dataloader(self) -> PromisedLoader:
        """The same one each time, for it is paid for only once."""
        if self._batches is None:
            self._batches = self._made(self._source.dataloader())
        return self._batches
