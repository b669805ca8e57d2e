"""Records are split and scaled one by one, so that neighbouring data sets stay neighbours."""

import tomllib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from configs import BASE, points, write_points
from dosimeter.data import Labelled
from dosimeter.runs.config import DataTable
from dosimeter.runs.datasets import load, scaled, set_aside

TABLE = {"kind": "npz", "path": "t.npz", "classes": 2}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@given(st.integers(0, 119))
def test_taking_out_a_record_moves_no_other(gone):
    x, y = points()
    kept, aside = set_aside(Labelled(x, y), 0.3)
    rest = np.arange(120) != gone
    kept_now, aside_now = set_aside(Labelled(x[rest], y[rest]), 0.3)
    for now, before in ((kept_now, kept), (aside_now, aside)):
        same = ~(before.x == x[gone]).all(axis=1)
        np.testing.assert_array_equal(now.x, before.x[same])
        np.testing.assert_array_equal(now.y, before.y[same])


def test_about_the_asked_share_is_set_aside_and_equal_records_go_together():
    x, y = points(4000)
    kept, aside = set_aside(Labelled(np.concatenate([x, x]), np.concatenate([y, y])), 0.2)
    # 4000 fair coins of 0.2: five deviations are 126.
    assert abs(len(aside) / 2 - 800) < 126
    assert not {row.tobytes() for row in kept.x} & {row.tobytes() for row in aside.x}


def test_a_share_that_leaves_nothing_on_one_side_is_refused():
    with pytest.raises(ValueError, match="leave records on both sides"):
        set_aside(Labelled(np.zeros((3, 2)), np.zeros(3, np.int64)), 0.5)


@pytest.mark.parametrize("bounds", [[0, 100], [[0, 100], [0, 50], [-10, 10]]])
def test_scaling_a_record_does_not_depend_on_others(bounds):
    x, data = points()[0], DataTable(**TABLE, bounds=bounds)
    together = scaled(x, data)
    alone = np.concatenate([scaled(row[None], data) for row in x])
    np.testing.assert_array_equal(together, alone)
    assert np.abs(together).max() <= 1


def test_bounds_become_minus_one_to_one_and_clip():
    x = np.array([[0.0, 50.0, 200.0], [-5.0, 100.0, 25.0]])
    out = scaled(x, DataTable(**TABLE, bounds=[0, 100]))
    np.testing.assert_allclose(out, [[-1, 0, 1], [-1, 1, -0.5]])


def test_bounds_by_name_are_taken_in_the_order_of_the_columns():
    data = DataTable(**TABLE, bounds={"b": [0, 10], "a": [0, 100]})
    np.testing.assert_allclose(scaled(np.array([[50.0, 5.0]]), data, ("a", "b")), [[0, 0]])


def test_numbers_without_bounds_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"data.bounds must be given .* \{ a = \[0, 100\]"):
        scaled(np.array([[1.0, -4.0]]), DataTable(**TABLE), ("a", "b"))


def test_the_bounds_that_are_proposed_are_toml_whatever_the_columns_are_called():
    columns = ("mean radius", 'a "b"\\', "Größe", "x.y", "", "\x7f\t")
    for names in (columns, columns[::-1], columns[2:]):
        with pytest.raises(ValueError, match="one for each column, ") as refused:
            scaled(np.ones((1, len(names))), DataTable(**TABLE), names)
        proposed = str(refused.value).split("column, ")[1].split("; dosimeter train")[0]
        assert tomllib.loads(proposed) == {"bounds": {name: [0, 100] for name in names[:2]}}


def test_all_columns_without_bounds_are_told():
    names = [f"column {number}" for number in range(30)]
    csv = {**TABLE, "kind": "csv", "path": "t.csv", "label": "y"}
    data = DataTable(**csv, bounds={names[0]: [0, 1]})
    said = r'got none for "column 1", .*, "column 5" and 24 more; dosimeter train --init new.toml '
    with pytest.raises(ValueError, match=said):
        scaled(np.ones((1, 30)), data, tuple(names))


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ([1.0, 1.0], "a lower and a higher finite number"),
        ([-1.7e308, 1.7e308], "a lower and a higher finite number"),
        ([0.0, float("inf")], "a lower and a higher finite number"),
        ([float("nan"), 1.0], "a lower and a higher finite number"),
        ([0.0, 1.0, 2.0], "a lower and a higher finite number"),
        ([], "a lower and a higher finite number"),
        ({}, "a lower and a higher finite number"),
        ({"a": [0.0]}, "a lower and a higher finite number"),
        ([[0.0, 1.0]] * 2, r"a pair for each column of a record, which has shape \(3,\), got 2"),
        ({"ab": [0, 1], "bb": [0, 1]}, "must name columns, got 'ab'; did you mean 'bb'"),
        ({"aa": [0, 1], "bb": [0, 1]}, "must name every column, got none for cc"),
    ],
)
def test_bounds_that_do_not_fit_are_refused(bounds, said):
    with pytest.raises(ValueError, match=said):
        scaled(points()[0], DataTable(**TABLE, bounds=bounds), ("aa", "bb", "cc"))


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((6, 5), np.float64, (5,)),
        ((6, 9, 8), np.uint8, (1, 9, 8)),
        ((6, 9, 8, 3), np.uint8, (3, 9, 8)),
        ((6, 9, 8, 3), np.float32, (3, 9, 8)),
    ],
)
def test_channels_come_first(shape, dtype, expected):
    x = np.random.default_rng(0).integers(1, 255, shape).astype(dtype)
    np.savez("t.npz", x=x, y=np.arange(6) % 2)
    records = load(DataTable(**TABLE, bounds=None if dtype is np.uint8 else [0, 255]))
    assert records.shape == expected
    assert records.private.tensors[0].dtype == torch.float32
    assert records.public is None


def test_a_test_part_is_left_alone_unless_declared_public(tmp_path):
    x, y = points()
    np.savez("t.npz", x_train=x, y_train=y, x_test=x[:7], y_test=y[:7])
    assert load(DataTable(**TABLE, bounds=[0, 100])).public is None
    records = load(DataTable(**TABLE, bounds=[0, 100], public_test=True))
    assert (len(records.private), len(records.public)) == (120, 7)
    with pytest.raises(ValueError, match=r"data.public_share must be left out"):
        load(DataTable(**TABLE, bounds=[0, 100], public_share=0.2))


def test_public_records_are_taken_out_of_the_private_ones(tmp_path):
    write_points(tmp_path / "points.csv")
    records = load(DataTable(**BASE["data"], public_share=0.25))
    assert len(records.private) + len(records.public) == 120
    with pytest.raises(ValueError, match=r"data.public_test must be false"):
        load(DataTable(**BASE["data"], public_test=True))


def test_bytes_become_zero_to_one():
    x = np.stack([np.full((8, 9, 3), value, np.uint8) for value in (0, 255)])
    np.savez("t.npz", x=x, y=np.array([0, 1]))
    records = load(DataTable(kind="npz", path="t.npz", classes=["cat", "dog"]))
    assert records.shape == (3, 8, 9)
    assert records.private.tensors[0].amax(dim=(1, 2, 3)).tolist() == [0, 1]
    assert records.classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({**TABLE, "path": "nowhere"}, FileNotFoundError, "data.path must lead to data"),
        ({**TABLE, "path": "."}, ValueError, "data.path must be a file for npz"),
    ],
)
def test_data_that_is_not_there_is_named(keys, error, said):
    with pytest.raises(error, match=said):
        load(DataTable(**keys))
