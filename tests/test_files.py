"""A file appears whole or not at all."""

import pytest

from dosimeter.files import replaced


def test_a_file_is_written_beside_and_then_moved(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write(part):
        assert (part.parent, part.suffix) == (tmp_path, ".part")
        assert path.read_text() == "old"
        part.write_text("new")

    replaced(path, write)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_could_not_be_written_leaves_the_old_one_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write(part):
        part.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        replaced(path, write)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
