# SPDX-License-Identifier: Apache-2.0
"""RunFolder: one run, one folder; files appear whole or not at all.

A run that lives in its folder has its budget there too (unless a ledger keeps it): the folder
is locked while a process trains, never overwritten, and resumed only with its own config.
"""

from __future__ import annotations

import json
import pathlib
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dosimeter.errors import StateError
from dosimeter.files import replaced
from dosimeter.runs.reader import first_difference
from dosimeter.training import History

_LOCK = ".lock"
_STATED = ("run.json", "report.html", "guarantee.txt")


@dataclass(frozen=True)
class Saved:
    """What a checkpoint says of its run.

    Attributes:
        history: The epochs that were done.
        gate: What the gate said of itself.
    """

    history: History
    gate: object

    @property
    def noise(self) -> float | None:
        """The noise with which the run began."""
        return self.history[0].noise_multiplier if len(self.history) else None

    @property
    def menu(self) -> bool:
        """Whether its gate had a menu."""
        return isinstance(self.gate, Mapping) and self.gate.get("menu") is not None


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)

    @property
    def checkpoint(self) -> pathlib.Path:
        """What a run goes on from."""
        return self.path / "checkpoint.pt"

    def require(self, config: str, *, resume: bool) -> None:
        """Raises unless the folder is new, or holds the run of this config to resume.

        Args:
            config: The text of the config.
            resume: Whether there must be a run.
        """
        if resume:
            self._require_same(config)
        else:
            self._require_new()

    @contextmanager
    def held(self, config: str, *, resume: bool) -> Iterator[None]:
        """Holds the folder for this process alone; two would spend one budget twice.

        Raises:
            ValueError: As `require` does, or another process holds the folder.
        """
        from filelock import FileLock, Timeout

        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / _LOCK, timeout=0):
                self.require(config, resume=resume)
                if resume:
                    self._clear()
                else:
                    self.write("config.toml", config)
                try:
                    yield
                except BaseException:
                    # Nothing was shown yet, so the folder is as good as new.
                    if not (resume or self.checkpoint.exists()):
                        (self.path / "config.toml").unlink()
                    raise
        except Timeout:
            raise ValueError(
                f"output.folder must be held by one process, got {str(self.path)!r}, in which "
                "another is training"
            ) from None

    def _clear(self) -> None:
        """Takes away what a run that goes on will outdate, and what was left half written.

        The epsilon that was stated so far is too small as soon as one more epoch leaves. The
        history stays: it shows how far a checkpoint must reach.
        """
        for file in [*map(self.path.joinpath, _STATED), *self.path.glob("*.part")]:
            file.unlink(missing_ok=True)

    def _require_new(self) -> None:
        there = self.path.exists()
        if there and not (
            self.path.is_dir() and {file.name for file in self.path.iterdir()} <= {_LOCK}
        ):
            raise ValueError(
                f"output.folder must be new, got {str(self.path)!r}, which holds something; go on "
                "with --resume, or choose another"
            )

    def _require_same(self, config: str) -> None:
        kept = self.path / "config.toml"
        if not kept.is_file():
            raise ValueError(
                f"output.folder must hold a run to resume, got {str(self.path)!r}, which holds "
                "none; leave out --resume"
            )
        changed = first_difference(
            tomllib.loads(kept.read_text(encoding="utf-8")), tomllib.loads(config)
        )
        if changed:
            raise ValueError(f"{changed}, for a run is resumed with its own config, {kept}")

    def finished(self) -> dict[str, Any] | None:
        """What run.json says of a run that came to its end; None if it can go on."""
        file = self.path / "run.json"
        if not file.is_file():
            return None
        try:
            said = json.loads(file.read_text(encoding="utf-8"))
            return dict(said) if said["finished"] else None
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"{file} must be as training wrote it: {error}") from error

    def saved(self) -> Saved | None:
        """What the checkpoint holds, or None where there is no checkpoint.

        Raises:
            StateError: The checkpoint is damaged, or it is older than the results, whose spends
                it would forget.
        """
        saved = self._checkpointed()
        results = self.path / "history.json"
        shown = len(History.load(results)) if results.is_file() else 0
        kept = len(saved.history) if saved is not None else 0
        if kept < shown:
            raise StateError(
                f"{self.checkpoint} must hold the {shown} epochs of history.json, got {kept}; put "
                "the right one back, or begin another run"
            )
        return saved

    def _checkpointed(self) -> Saved | None:
        if not self.checkpoint.is_file():
            return None
        try:
            state = torch.load(self.checkpoint, weights_only=True)
            return Saved(History.from_state(state["history"]), state["engine"]["gate"])
        except Exception as error:  # bytes that are no checkpoint can raise anything
            raise StateError(f"{self.checkpoint} must be as training wrote it: {error}") from error

    def write(self, name: str, text: str) -> None:
        """Writes a text."""
        replaced(self.path / name, lambda part: part.write_text(text, encoding="utf-8"))

    def write_history(self, history: History) -> None:
        """Writes history.json."""
        replaced(self.path / "history.json", history.save)

    def write_weights(self, model: nn.Module) -> None:
        """Writes model.safetensors."""
        from safetensors.torch import save_model

        replaced(self.path / "model.safetensors", lambda part: save_model(model, str(part)))
