"""Tables are read as they are; what does not fit is named by line and column."""

import numpy as np
import pytest

from configs import points, write_points
from dosimeter.data import read_csv, read_digits, read_npz
from dosimeter.data.tables import class_names


def test_a_csv_gives_numbers_and_labels_in_the_order_of_the_classes(tmp_path):
    path = tmp_path / "points.csv"
    write_points(path)
    split = read_csv(path, "sick", ["no", "yes"])
    x, y = points()
    np.testing.assert_array_equal(split.train.x, x)
    np.testing.assert_array_equal(split.train.y, y)
    assert split.classes == ("no", "yes")
    assert split.test is None
    np.testing.assert_array_equal(read_csv(path, "sick", ["yes", "no"]).train.y, 1 - y)


def test_a_class_that_no_record_has_is_still_a_class(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1,0\n\n2,1\n")
    assert read_csv(path, "label", 5).classes == ("0", "1", "2", "3", "4")
    assert len(read_csv(path, "label", 5).train) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,0\n", "label must be one of the columns a, b, got 'label'"),
        ("", "label must be one of the columns none, got 'label'"),
        ("label\n0\n", "more than one"),
        ("a,a,label\n1,1,0\n", "different names"),
        ("a,label\n1,0\n2\n", "line 3 must have 2 values, got 1"),
        ("a,label\n1,0\nx,0\n", "line 3, column 'a' must be a finite number, got 'x'"),
        ("a,label\nnan,0\n", "line 2, column 'a' must be a finite number, got 'nan'"),
        ("a,label\n,0\n", "finite number, got ''"),
        ("a,label\n1,2\n", "line 2, column 'label' must be one of the classes 0, 1, got '2'"),
        ("a,label\n", "at least one record"),
        pytest.param(f"a,label\n{'1' * 200_000},0\n", "line 2 must be one of a CSV", id="long"),
    ],
)
def test_a_csv_that_does_not_fit_is_refused(tmp_path, text, said):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_csv(path, "label", 2)


def test_an_npz_gives_its_arrays(tmp_path):
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 1, 0], np.uint8)
    np.savez(tmp_path / "one.npz", x=x, y=y)
    split = read_npz(tmp_path / "one.npz", 2)
    assert split.train.x.shape == (4, 2)
    assert split.train.y.tolist() == [0, 1, 1, 0]
    assert split.test is None
    np.savez(tmp_path / "two.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    assert len(read_npz(tmp_path / "two.npz", ["cat", "dog"]).test) == 1


GOOD = {"x": np.zeros((3, 2)), "y": np.array([0, 1, 1])}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"z": np.zeros(3)}, "arrays x and y, or x_train and y_train, got z"),
        ({**GOOD, "y": np.array([0, 1, 2])}, "y must be from 0 to 1, got 2 in record 2"),
        ({**GOOD, "y": np.array([0, -1, 1])}, "got -1 in record 1"),
        ({**GOOD, "y": np.array([0.0, 1.0, 1.0])}, "one whole number for each of the 3"),
        ({**GOOD, "y": np.array([0, 1])}, "one whole number for each of the 3"),
        ({**GOOD, "x": np.zeros(3)}, "x must hold numbers: .* of shape"),
        ({**GOOD, "x": np.array([[1.0], [np.nan], [2.0]])}, "another in record 1"),
        ({**GOOD, "x": np.array([["a"], ["b"], ["c"]])}, "x must hold numbers"),
        ({**GOOD, "x": np.zeros((3, 0))}, r"x must hold numbers: .* \(3, 0\)"),
        ({**GOOD, "x": np.ones((3, 2)) * 1j}, "x must hold numbers: .* got complex128"),
        ({**GOOD, "x": np.array([[None], [1], [2]])}, "plain arrays"),
    ],
)
def test_an_npz_that_does_not_fit_is_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ValueError, match=said):
        read_npz(tmp_path / "t.npz", 2)


def test_test_inputs_of_another_shape_are_refused(tmp_path):
    y = np.array([0, 1, 1])
    np.savez(
        tmp_path / "t.npz", x_train=np.zeros((3, 2)), y_train=y, x_test=np.zeros((3, 4)), y_test=y
    )
    with pytest.raises(ValueError, match=r"to test on must have the shape .* \(4,\) and \(2,\)"):
        read_npz(tmp_path / "t.npz", 2)


@pytest.mark.parametrize("content", [b"", b"words", b"PK\x03\x04 broken"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "t.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"numpy\.savez"):
        read_npz(tmp_path / "t.npz", 2)


def test_a_lone_array_is_no_npz(tmp_path):
    np.save(tmp_path / "t.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"numpy\.savez"):
        read_npz(tmp_path / "t.npy", 2)


@pytest.mark.parametrize("classes", [0, 1, [], ["a"], ["a", "a"]])
def test_classes_must_be_two_or_more(classes):
    with pytest.raises(ValueError, match="classes must"):
        class_names(classes)


def test_the_digits_are_images():
    split = read_digits()
    assert split.train.x.shape == (1797, 8, 8, 1)
    assert split.train.x.max() == 255
    assert len(split.classes) == 10
