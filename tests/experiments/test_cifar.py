"""Images are found in either form, decoded once, and missed with a clear word."""

import argparse
import pathlib
import pickle

import numpy as np
import pytest

from experiments import cifar


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DOSIMETER_CACHE", str(tmp_path / "cache"))


def image_folder(root):
    from PIL import Image

    for part in ("train", "test"):
        for label, grey in (("cat", 10), ("dog", 200)):
            (root / part / label).mkdir(parents=True)
            Image.new("RGB", (32, 32), (grey,) * 3).save(root / part / label / "1.png")
    return root


def original(root):
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["cat", "dog"]}))
    batch = {"data": np.full((2, 3072), 7, np.uint8), "labels": [0, 1]}
    for name in (*[f"data_batch_{i}" for i in range(1, 6)], "test_batch"):
        (folder / name).write_bytes(pickle.dumps(batch))
    return root


@pytest.mark.parametrize(("make", "records"), [(image_folder, 2), (original, 10)])
def test_both_forms_are_read_once(make, records, tmp_path, monkeypatch):
    path = make(tmp_path / "data")
    split = cifar.read(path)
    assert split.train.x.shape == (records, 32, 32, 3)
    assert split.test.x.shape == (2, 32, 32, 3)
    assert split.classes == ("cat", "dog")
    monkeypatch.setattr(cifar, "_decode", pytest.fail)
    again = cifar.read(path)
    assert (again.train.x == split.train.x).all()
    assert again.train.y.tolist() == split.train.y.tolist()


def test_changed_files_are_read_again(tmp_path):
    path = image_folder(tmp_path / "data")
    before = cifar.identity(path)
    image = path / "train" / "cat" / "1.png"
    image.with_name("2.png").write_bytes(image.read_bytes())
    assert cifar.identity(path) != before
    assert len(cifar.read(path).train) == 3


def test_a_computation_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        cifar.cached("kind", {}, lambda: {"a": np.array(1 / 0)})
    assert cifar.cached("kind", {}, lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
    assert [p.suffix for p in cifar.folder().iterdir()] == [""]


def test_missing_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DOSIMETER_DATA", str(tmp_path / "nowhere"))
    parser = argparse.ArgumentParser()
    cifar.add_argument(parser)
    path = parser.parse_args([]).data
    assert path == tmp_path / "nowhere"
    with pytest.raises(SystemExit, match="skipped: --data must be"):
        cifar.require(path)
    given = parser.parse_args(["--data", str(tmp_path)]).data
    assert cifar.require(given) == pathlib.Path(tmp_path)
