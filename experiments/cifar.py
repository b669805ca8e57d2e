# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 for the experiments, and arrays that are computed once and kept.

`--data` takes a folder or archive of images (`train/cat/1.jpg`), or the original
`cifar-10-batches-py`. What is decoded or computed from them lies in the user's cache folder,
named by a digest of everything that went into it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dosimeter.accounting.priced import cache
from dosimeter.data import Labelled, Split
from experiments.cifar_batches import holds_cifar, read_cifar
from experiments.images import read_images

BESIDE = pathlib.Path(__file__).parents[2] / "shared" / "data" / "cifar10-jpeg.tar.xz"
"""Where the images are looked for if nothing is said."""

Arrays = dict[str, np.ndarray]


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--data`, by default `here`."""
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        default=here(),
        help="CIFAR-10: a folder or archive of images, or cifar-10-batches-py "
        "(default: $DOSIMETER_DATA, here %(default)s)",
    )


def here() -> pathlib.Path | None:
    """What DOSIMETER_DATA names, or what lies beside the checkout, if anything does."""
    named = os.environ.get("DOSIMETER_DATA")
    return pathlib.Path(named) if named else (BESIDE if BESIDE.exists() else None)


def require(path: pathlib.Path | None) -> pathlib.Path:
    """The path, if there is something; otherwise ends the program with what to do."""
    if path is None or not path.exists():
        sys.exit(
            f"skipped: --data must be a folder or archive of CIFAR-10, got {path}. Give a folder "
            "or archive with train/CLASS/FILE and test/CLASS/FILE, or cifar-10-batches-py; "
            "DOSIMETER_DATA may name it."
        )
    return path


def read(path: pathlib.Path) -> Split:
    """The images of a folder or archive with a test part; decoded the first time only."""
    arrays = cached("images", {"data": identity(path)}, lambda: _decode(path))
    return Split(
        Labelled(arrays["train_x"], arrays["train_y"]),
        Labelled(arrays["test_x"], arrays["test_y"]),
        tuple(arrays["classes"].tolist()),
    )


def identity(path: pathlib.Path) -> str:
    """A digest of names, sizes and times of the files: another one if any of them changes."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    facts = [str(path.resolve())]
    for file in files:
        status = file.stat()
        facts.append(f"{file.name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def folder() -> pathlib.Path:
    """Where the experiments keep what they need not compute twice."""
    base = cache.folder()
    if base is None:
        sys.exit("DOSIMETER_CACHE must name a folder for the experiments, got an empty name")
    return base / "experiments"


def cached(kind: str, key: Mapping[str, Any], compute: Callable[[], Arrays]) -> Arrays:
    """What `compute` gives for this key, from disk if it is there whole.

    Arrays are mapped from their files, so that processes share them; writing to one changes
    neither the file nor what others see.
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    place = folder() / f"{kind}-{digest[:32]}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        part = pathlib.Path(tempfile.mkdtemp(dir=place.parent, suffix=".part"))
        try:
            for name, array in compute().items():
                np.save(part / f"{name}.npy", array)
            if not place.is_dir():
                part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return {file.stem: np.load(file, mmap_mode="c") for file in sorted(place.glob("*.npy"))}


def _decode(path: pathlib.Path) -> Arrays:
    split = read_cifar(path) if holds_cifar(path) else read_images(path)
    if split.test is None:
        sys.exit(f"skipped: --data must hold images to test on, got none in {path}")
    return {
        "train_x": split.train.x,
        "train_y": split.train.y,
        "test_x": split.test.x,
        "test_y": split.test.y,
        "classes": np.array(split.classes),
    }
