"""Images and the CIFAR files are read as they are, from folders and archives alike."""

import os
import pathlib
import pickle
import shutil
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from experiments.cifar_batches import FOLDER, holds_cifar, read_cifar
from experiments.images import read_images


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 3), ("test", 2)):
        for label in ("cat", "dog"):
            place = tmp_path / "images" / part / label
            place.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path / "images"


def test_a_folder_gives_pixels_labels_and_class_names(folder):
    split = read_images(folder)
    assert split.classes == ("cat", "dog")
    assert split.train.x.shape == (6, 4, 6, 3)
    assert split.train.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert len(split.test) == 4
    first = np.asarray(Image.open(folder / "train" / "cat" / "0.png"))
    np.testing.assert_array_equal(split.train.x[0], first)


@pytest.mark.parametrize("kind", ["zip", "gztar", "xztar"])
def test_an_archive_reads_as_its_folder(folder, tmp_path, kind):
    archive = shutil.make_archive(str(tmp_path / "packed"), kind, folder)
    split, expected = read_images(archive), read_images(folder)
    np.testing.assert_array_equal(split.train.x, expected.train.x)
    np.testing.assert_array_equal(split.test.y, expected.test.y)


def test_folders_without_a_test_part_are_all_for_training(folder):
    split = read_images(folder / "train")
    assert len(split.train) == 6
    assert split.test is None


def test_images_of_two_sizes_are_refused_by_name(folder):
    Image.new("RGB", (9, 9)).save(folder / "train" / "dog" / "odd.png")
    with pytest.raises(ValueError, match=r"one size, got .*9×9"):
        read_images(folder)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (
            lambda f: (f / "train" / "cat" / "0.png").write_bytes(b"no"),
            r"0\.png, of no known format$",
        ),
        (lambda f: shutil.rmtree(f / "train"), "test folder only"),
        (lambda f: [shutil.rmtree(f / part) for part in ("train", "test")], "got none in"),
        (lambda f: Image.new("RGB", (6, 4)).save(f / "loose.png"), "named for their class"),
    ],
)
def test_bad_folders_are_refused(folder, spoil, match):
    spoil(folder)
    with pytest.raises(ValueError, match=match):
        read_images(folder)


@pytest.mark.parametrize(
    "place",
    ["val/cat", "valid/cat", "train/site/cat", "train/site/val/cat", "test/cat/deep", "train"],
)
def test_an_image_in_any_other_place_is_refused_by_name(folder, place):
    (folder / place).mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 4)).save(folder / place / "7.png")
    with pytest.raises(ValueError, match=rf"train/CLASS/FILE .* got {place}/7\.png"):
        read_images(folder)


def test_the_first_folder_that_names_a_part_decides(folder, tmp_path):
    (tmp_path / "all").mkdir()
    folder.rename(tmp_path / "all" / "pets")
    place = tmp_path / "all" / "pets" / "train" / "test"
    place.mkdir()
    Image.new("RGB", (6, 4)).save(place / "7.png")
    split = read_images(tmp_path / "all")
    assert split.classes == ("cat", "dog", "test")
    assert (len(split.train), len(split.test)) == (7, 4)


def damage(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x55
    path.write_bytes(content)


@pytest.fixture
def packed(folder, tmp_path):
    return lambda kind: pathlib.Path(shutil.make_archive(str(tmp_path / "packed"), kind, folder))


def test_a_tar_with_a_damaged_header_is_refused_rather_than_read_in_part(packed):
    path = packed("tar")
    with tarfile.open(path) as archive:
        headers = [member.offset for member in archive]
    damage(path, headers[-3] + 150)
    with pytest.raises(ValueError, match=r"whole archive, got packed\.tar: a header is damaged"):
        read_images(path)


# The last fifth of this tar is padding, so only the others are also cut there.
@pytest.mark.parametrize(
    ("kind", "share"),
    [
        *((kind, share) for kind in ("tar", "gztar", "xztar", "zip") for share in (0.2, 0.5)),
        *((kind, share) for kind in ("gztar", "xztar", "zip") for share in (0.8, 0.97)),
    ],
)
def test_an_archive_that_is_cut_off_is_refused(packed, kind, share):
    path = packed(kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="data must be"):
        read_images(path)


def test_a_tar_cut_off_between_two_images_is_refused(packed):
    path = packed("tar")
    with tarfile.open(path) as archive:
        headers = [member.offset for member in archive]
    path.write_bytes(path.read_bytes()[: headers[-1]])
    with pytest.raises(ValueError, match="cut off"):
        read_images(path)


def test_a_zip_with_a_damaged_or_a_locked_image_is_refused(packed):
    path = packed("zip")
    with zipfile.ZipFile(path) as archive:
        first = next(one for one in archive.infolist() if one.filename.endswith("png"))
    damage(path, first.header_offset + 30 + len(first.filename) + 60)
    with pytest.raises(ValueError, match=r"whole archive, got packed\.zip"):
        read_images(path)
    path = packed("zip")
    content = path.read_bytes()
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.rindex(mark) + flags
        content = content[:place] + bytes([content[place] | 1]) + content[place + 1 :]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"packed\.zip: .* encrypted"):
        read_images(path)


def test_a_link_to_nothing_is_refused(tmp_path):
    with tarfile.open(tmp_path / "l.tar", "w") as archive:
        link = tarfile.TarInfo("a/1.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(ValueError, match=r"l\.tar: linkname .* not found"):
        read_images(tmp_path / "l.tar")


def test_an_image_that_claims_to_be_huge_is_refused(folder):
    path = folder / "train" / "cat" / "0.png"
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", 60_000, 60_000)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"readable, got train/cat/0\.png"):
        read_images(folder)


def test_a_path_that_is_not_there_and_one_of_another_kind(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file at"):
        read_images(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(ValueError, match="a tar or a zip"):
        read_images(tmp_path / "notes.txt")


@pytest.fixture
def cifar(tmp_path):
    rng = np.random.default_rng(0)
    place = tmp_path / FOLDER
    place.mkdir()
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        values = {"data": rng.integers(0, 256, (2, 3072), dtype=np.uint8), "labels": [3, 9]}
        (place / name).write_bytes(pickle.dumps(values, protocol=2))
    names = {"label_names": [f"kind {i}" for i in range(10)]}
    (place / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
    return place


def test_cifar_reads_from_its_folder_the_one_above_and_its_archive(cifar, tmp_path):
    archive = tmp_path / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(cifar, FOLDER)
    for place in (cifar, tmp_path, archive):
        assert holds_cifar(place)
        split = read_cifar(place)
        assert split.train.x.shape == (10, 32, 32, 3)
        assert split.train.y.tolist() == [3, 9] * 5
        assert split.classes[3] == "kind 3"
    raw = pickle.loads((cifar / "test_batch").read_bytes())["data"]
    # Red comes first in the file, row by row.
    assert split.test.x[0, 0, 1, 0] == raw[0, 1]
    assert split.test.x[0, 0, 0, 2] == raw[0, 2048]


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(cifar, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (cifar / "test_batch").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="is not allowed"):
        read_cifar(cifar)
    assert not (tmp_path / "ran").exists()


def test_a_missing_or_strange_cifar_file_is_named(cifar):
    (cifar / "data_batch_3").write_bytes(pickle.dumps({"labels": []}))
    with pytest.raises(ValueError, match="data_batch_3 must be a batch"):
        read_cifar(cifar)
    (cifar / "data_batch_3").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_3"):
        read_cifar(cifar)


@pytest.mark.parametrize("label", [-1, 10])
@pytest.mark.parametrize("name", ["data_batch_2", "test_batch"])
def test_a_cifar_label_without_a_name_is_refused(cifar, name, label):
    values = {"data": np.zeros((2, 3072), np.uint8), "labels": [3, label]}
    (cifar / name).write_bytes(pickle.dumps(values, protocol=2))
    said = f"{name} must have labels from 0 to 9, got {label} in record 1"
    with pytest.raises(ValueError, match=said):
        read_cifar(cifar)


@pytest.mark.parametrize("meta", [{}, {"label_names": 5}, {"label_names": [1, 2]}])
def test_cifar_files_without_names_of_classes_are_refused(cifar, meta):
    (cifar / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))
    with pytest.raises(ValueError, match=r"batches\.meta must list the names"):
        read_cifar(cifar)


def test_a_file_that_is_no_archive_of_cifar_is_refused(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"junk" * 100)
    with pytest.raises(ValueError, match=r"the tar of CIFAR-10, got x\.tar"):
        read_cifar(tmp_path / "x.tar")


SHARED = pathlib.Path(__file__).parents[3] / "shared" / "data" / "cifar10-jpeg.tar.xz"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the archive of CIFAR-10 is not beside the project")
def test_all_of_cifar_10_is_read():
    split = read_images(SHARED)
    assert split.train.x.shape == (50_000, 32, 32, 3)
    assert np.bincount(split.test.y).tolist() == [1000] * 10
