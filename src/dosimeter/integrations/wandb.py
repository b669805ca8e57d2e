# SPDX-License-Identifier: Apache-2.0
"""to_wandb: epsilon, noise and the guarantee of a run in Weights & Biases."""

from __future__ import annotations

from typing import Any

from dosimeter.decisions import Epoch
from dosimeter.integrations import parts

parts.require("wandb", "0", install="wandb")

from dosimeter.training import PrivateEngine, scalars_to  # noqa: E402
from dosimeter.training.fit import Callback  # noqa: E402


class _Writer:
    """Gathers the scalars of an epoch."""

    def __init__(self) -> None:
        self.scalars: dict[str, float] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keeps one scalar until all are there."""
        self.scalars[tag] = scalar_value


def to_wandb(run: Any) -> Callback:
    """A callback for `fit` that writes every epoch to a run of Weights & Biases.

    Args:
        run: What `wandb.init` gave. The guarantee is `privacy/guarantee` in its summary.
    """
    writer = _Writer()
    gather = scalars_to(writer)

    def write(engine: PrivateEngine, record: Epoch) -> None:
        gather(engine, record)
        run.log(dict(writer.scalars), step=engine.steps, commit=True)
        run.summary["privacy/guarantee"] = str(engine.guarantee())

    return write
