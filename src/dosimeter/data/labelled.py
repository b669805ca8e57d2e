# SPDX-License-Identifier: Apache-2.0
"""Inputs with labels, split into what is trained on and what is tested on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Labelled:
    """Inputs and their labels.

    Attributes:
        x: One input a row: floats for tables, bytes of height × width × channels for images.
        y: Labels counted from 0.
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.x):
            raise ValueError("data must have at least one record, got none")
        if len(self.x) != len(self.y):
            raise ValueError(
                f"labels must be as many as inputs, got {len(self.y)} for {len(self.x)}"
            )

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Split:
    """Data to train on, data to test on if there are any, and what all is called.

    Attributes:
        train: What to train on.
        test: What to test on, if the data say so.
        classes: What the labels are called.
        columns: What the columns of a table are called, if they have names.
    """

    train: Labelled
    test: Labelled | None
    classes: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.test is not None and self.test.x.shape[1:] != self.train.x.shape[1:]:
            raise ValueError(
                "inputs to test on must have the shape of those to train on, got "
                f"{self.test.x.shape[1:]} and {self.train.x.shape[1:]}"
            )
