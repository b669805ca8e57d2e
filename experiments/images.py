# SPDX-License-Identifier: Apache-2.0
"""Images in folders, one folder a class, as they are or in an archive.

The layout is that of torchvision's ImageFolder: `train/cat/1.jpg`, `test/dog/7.jpg`, or
`cat/1.jpg` where nothing is set aside for testing, and nothing deeper. An archive is read
without unpacking it.
"""

from __future__ import annotations

import io
import os
import pathlib
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dosimeter.data import Labelled, Split
from experiments.archives import require_end, undamaged

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff"})
PARTS = ("train", "test")

Pixels = npt.NDArray[np.uint8]


def read_images(path: str | os.PathLike[str]) -> Split:
    """Reads a folder or an archive (tar or zip) of images of one size.

    Args:
        path: What holds `train/CLASS/FILE` and `test/CLASS/FILE`, or `CLASS/FILE`.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: It is damaged, or holds no images, or images of several sizes or of unknown
            layout.
    """
    path = pathlib.Path(path)
    images: dict[tuple[str, str], list[tuple[str, Pixels]]] = defaultdict(list)
    shape: tuple[int, ...] | None = None
    for name, content in _image_files(path):
        part, label = _place(name)
        pixels = _decode(name, content)
        shape = shape or pixels.shape
        if pixels.shape != shape:
            raise ValueError(
                f"images must have one size, got {_size(shape)} and, in {name}, "
                f"{_size(pixels.shape)}. Resize them first."
            )
        images[part, label].append((name, pixels))
    if not images:
        raise ValueError(f"data must hold images such as train/cat/1.jpg, got none in {path}")
    return _split(images)


def _split(images: dict[tuple[str, str], list[tuple[str, Pixels]]]) -> Split:
    classes = tuple(sorted({label for _, label in images}))
    parts: dict[str, Labelled] = {}
    for part in {part for part, _ in images}:
        chosen = [
            (pixels, number)
            for number, label in enumerate(classes)
            # A folder lists its files in no order; their names give one.
            for _, pixels in sorted(images.get((part, label), []), key=lambda item: item[0])
        ]
        parts[part] = Labelled(
            np.stack([pixels for pixels, _ in chosen]),
            np.array([number for _, number in chosen], dtype=np.int64),
        )
    if "train" not in parts:
        raise ValueError("data must hold images to train on, got a test folder only")
    return Split(parts["train"], parts.get("test"), classes)


def _image_files(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each image in a folder or archive."""
    if path.is_dir():
        for file in path.rglob("*"):
            if _is_image(file.name):
                yield file.relative_to(path).as_posix(), file.read_bytes()
    elif not path.exists():
        raise FileNotFoundError(f"data must be a folder or an archive, got no file at {path}")
    else:
        with undamaged(path):
            yield from _packed(path)


def _packed(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if _is_image(name):
                    yield name, archive.read(name)
    elif tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member) if _is_image(member.name) else None
                if content is not None:
                    yield member.name, content.read()
            require_end(archive)
    else:
        raise ValueError(f"data must be a folder, a tar or a zip of images, got {path}")


def _is_image(name: str) -> bool:
    return pathlib.PurePath(name).suffix.lower() in SUFFIXES


def _place(name: str) -> tuple[str, str]:
    """Which part of the data a file belongs to, and its class."""
    folders = pathlib.PurePath(name).parts[:-1]
    if not folders:
        raise ValueError(f"images must lie in a folder named for their class, got {name}")
    found = [place for place, folder in enumerate(folders) if folder.lower() in PARTS][:1]
    below = folders[found[0] + 1 :] if found else folders
    if len(below) != 1:
        raise ValueError(
            f"images must lie as train/CLASS/FILE and test/CLASS/FILE, or as CLASS/FILE, got {name}"
        )
    return folders[found[0]].lower() if found else "train", below[0]


def _decode(name: str, content: bytes) -> Pixels:
    """Return the pixels of an image: height × width × red, green and blue."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError as error:  # whose message is about our buffer
        raise ValueError(f"images must be readable, got {name}, of no known format") from error
    except Exception as error:  # each of the many formats has its own way to fail
        raise ValueError(f"images must be readable, got {name}: {error}") from error


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]}×{shape[0]}"
