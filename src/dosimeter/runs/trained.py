# SPDX-License-Identifier: Apache-2.0
"""load_run: the model that `dosimeter train` left in a folder, with the preprocessing it was given.

Whatever is computed from the model is post-processing: it costs the records that were trained on
nothing more. The records that are asked about are not protected by it.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dosimeter.errors import StateError
from dosimeter.runs.config import DataTable
from dosimeter.runs.datasets import inputs
from dosimeter.runs.networks import network
from dosimeter.runs.reader import read_config

_CHUNK = 512


class Trained(nn.Module):
    """A trained model that takes inputs as they are in the data file.

    Attributes:
        model: The network itself, which takes scaled inputs.
        classes: What its scores are for, in their order.
        columns: The columns of a table that it takes, in their order, if they have names.
        shape: The shape of one input: the number of columns, or height × width (× channels).
    """

    def __init__(
        self,
        model: nn.Module,
        data: DataTable,
        *,
        classes: Sequence[str],
        columns: Sequence[str],
        shape: Sequence[int],
    ) -> None:
        super().__init__()
        self.model = model
        self.classes, self.columns, self.shape = tuple(classes), tuple(columns), tuple(shape)
        self._data = data
        self.eval()

    def prepared(self, x: npt.ArrayLike | Tensor) -> Tensor:
        """Inputs scaled as in training.

        Raises:
            ValueError: They are not of the shape or kind that the run was trained on.
        """
        array = np.asarray(x)
        if array.shape[1:] != self.shape or not len(array):
            raise ValueError(
                f"inputs must be one or more of shape {self.shape}, as in training, got an array "
                f"of shape {array.shape}"
            )
        if self._data.bounds is None and array.dtype != np.uint8:
            raise ValueError(
                f"inputs must be bytes (uint8), as the run was trained on, got {array.dtype}"
            )
        if not np.isfinite(array).all():
            raise ValueError("inputs must be finite numbers, got another")
        return inputs(array, self._data, self.columns)

    def forward(self, x: npt.ArrayLike | Tensor) -> Tensor:
        """A score for each class."""
        out: Tensor = self.model(self.prepared(x))
        return out

    def probabilities(self, x: npt.ArrayLike | Tensor) -> npt.NDArray[np.float64]:
        """The probability of each class, one row for each input."""
        prepared = self.prepared(x)
        with torch.no_grad():
            scores = [self.model(part) for part in torch.split(prepared, _CHUNK)]
        found: npt.NDArray[np.float64] = torch.cat(scores).double().softmax(dim=1).numpy()
        return found

    def predict(self, x: npt.ArrayLike | Tensor) -> list[str]:
        """The likeliest class of each input."""
        return [self.classes[place] for place in self.probabilities(x).argmax(axis=1)]


def load_run(folder: str | os.PathLike[str]) -> Trained:
    """The model in the folder of a run of `dosimeter train`, with its preprocessing.

    A model of your own ("module:factory") is made again by its factory, which must be importable
    from where you are.

    Raises:
        FileNotFoundError: The folder holds no results.
        StateError: They are not as training wrote them.

    Example:
        >>> import dosimeter as dm
        >>> dm.load_run("no-such-run")
        Traceback (most recent call last):
        ...
        FileNotFoundError: run must be a folder that dosimeter train wrote, got 'no-such-run', ...
    """
    path = pathlib.Path(folder)
    weights = path / "model.safetensors"
    for needed in (path / "run.json", path / "config.toml", weights):
        if not needed.is_file():
            raise FileNotFoundError(
                f"run must be a folder that dosimeter train wrote, got {str(path)!r}, in which "
                f"there is no {needed.name}; a run that was interrupted ends with --resume"
            )
    from safetensors.torch import load_model

    config, _ = read_config(path / "config.toml")
    about = _about(path / "run.json")
    shape = _shape(about["input"])
    model = network(config.model, shape, len(about["classes"])).whole
    try:
        load_model(model, weights)
    except Exception as error:  # bytes that are no weights can raise anything
        raise StateError(f"{weights} must hold the weights of this run: {error}") from error
    return Trained(
        model,
        config.data,
        classes=about["classes"],
        columns=about["columns"],
        shape=about["input"],
    )


def _about(file: pathlib.Path) -> dict[str, Any]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        found = {name: list(said[name]) for name in ("classes", "columns", "input")}
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{file} must say which classes and columns the run had, got none ({error}); it was "
            "edited: train again"
        ) from error
    if not all(isinstance(size, int) and size > 0 for size in found["input"]):
        raise StateError(f"{file} must give the shape of an input, got {found['input']!r}")
    return found


def _shape(unscaled: Sequence[int]) -> tuple[int, ...]:
    """The shape of an input as the model takes it: channels come first."""
    if len(unscaled) == 2:
        return (1, *unscaled)
    return (unscaled[2], *unscaled[:2]) if len(unscaled) == 3 else tuple(unscaled)
