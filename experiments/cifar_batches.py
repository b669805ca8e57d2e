# SPDX-License-Identifier: Apache-2.0
"""The original CIFAR-10 files: the folder `cifar-10-batches-py`, or the archive of it.

They are pickles, and a pickle can run any code: only plain values and arrays are let in.
"""

from __future__ import annotations

import io
import os
import pathlib
import pickle
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np

from dosimeter.data import Labelled, Split
from experiments.archives import undamaged

FOLDER = "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))


def read_cifar(path: str | os.PathLike[str]) -> Split:
    """Reads CIFAR-10 from its own files.

    Args:
        path: The folder `cifar-10-batches-py`, a folder that holds it, or its tar archive.

    Raises:
        FileNotFoundError: One of the seven files is not there.
        ValueError: A file holds something else.
    """
    path = pathlib.Path(path)
    if path.is_file():
        if not tarfile.is_tarfile(path):
            raise ValueError(f"data must be the folder or the tar of CIFAR-10, got {path.name}")
        with undamaged(path), tarfile.open(path) as archive:
            return _read(lambda name: _from_archive(archive, name))
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    return _read(lambda name: (folder / name).read_bytes())


def holds_cifar(path: str | os.PathLike[str]) -> bool:
    """Whether these look like the original CIFAR-10 files."""
    path = pathlib.Path(path)
    if path.is_dir():
        return (path / FOLDER).is_dir() or (path / TRAIN[0]).is_file()
    if not path.is_file() or not tarfile.is_tarfile(path):
        return False
    with tarfile.open(path) as archive:
        first = archive.next()
        return first is not None and pathlib.PurePath(first.name).parts[:1] == (FOLDER,)


def _read(content: Callable[[str], bytes]) -> Split:
    names = _plain(content("batches.meta"), "batches.meta").get("label_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"batches.meta must list the names of the classes, got {names!r}")
    batches = [_batch(content(name), name, len(names)) for name in TRAIN]
    train = Labelled(
        np.concatenate([batch.x for batch in batches]),
        np.concatenate([batch.y for batch in batches]),
    )
    test = _batch(content("test_batch"), "test_batch", len(names))
    return Split(train, test, tuple(names))


def _from_archive(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(f"{FOLDER}/{name}")
    except KeyError:
        file = None
    if file is None:
        raise FileNotFoundError(f"data must hold {FOLDER}/{name}, got an archive without it")
    return file.read()


def _batch(content: bytes, name: str, classes: int) -> Labelled:
    values = _plain(content, name)
    try:
        x = np.asarray(values["data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        batch = Labelled(
            np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
            np.asarray(values["labels"], dtype=np.int64),
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name} must be a batch of CIFAR-10: {error}") from error
    wrong = np.argwhere((batch.y < 0) | (batch.y >= classes))
    if len(wrong):
        raise ValueError(
            f"{name} must have labels from 0 to {classes - 1}, got {batch.y[tuple(wrong[0])]} "
            f"in record {wrong[0][0]}"
        )
    return batch


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain values and numpy arrays, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.removeprefix("numpy.").split(".")[0] in {"core", "_core"} or module == "numpy":
            if name in {"ndarray", "dtype"}:
                return getattr(np, name)
            if name == "_reconstruct":
                return np.empty(0).__reduce__()[0]
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _plain(content: bytes, name: str) -> dict[str, Any]:
    try:
        values = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:
        raise ValueError(f"{name} must be a file of CIFAR-10: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{name} must be a file of CIFAR-10, got a {type(values).__name__}")
    return values
