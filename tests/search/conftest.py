"""A folder with a small table, and models that end, explode or raise."""

import pytest

from configs import write_points
from search.commands import BROKEN, TRAP


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("DOSIMETER_DB", raising=False)
    write_points(tmp_path / "points.csv")
    (tmp_path / "traps_of_mine.py").write_text(TRAP)
    (tmp_path / "broken_of_mine.py").write_text(BROKEN)
    return tmp_path
