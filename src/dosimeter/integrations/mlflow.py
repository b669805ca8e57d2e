# SPDX-License-Identifier: Apache-2.0
"""to_mlflow: epsilon, noise and the guarantee of a run in MLflow."""

from __future__ import annotations

from typing import Any

from dosimeter.decisions import Epoch
from dosimeter.integrations import parts

try:
    parts.require("mlflow-skinny", "3")  # the part of MLflow that logs; MLflow itself brings it
except ImportError as error:
    raise ImportError(f"{error} (or pip install 'mlflow==3.*')") from None

import mlflow

from dosimeter.training import PrivateEngine, scalars_to
from dosimeter.training.fit import Callback


class _Writer:
    """Writes scalars to the run that is active."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Logs one metric."""
        return mlflow.log_metric(tag, scalar_value, step=global_step)


def to_mlflow() -> Callback:
    """A callback for `fit` that writes every epoch to MLflow's active run.

    Metrics are those of `scalars_to`; the guarantee is the tag `privacy.guarantee`.
    """
    scalars = scalars_to(_Writer())

    def write(engine: PrivateEngine, record: Epoch) -> None:
        scalars(engine, record)
        mlflow.set_tag("privacy.guarantee", str(engine.guarantee()))

    return write
