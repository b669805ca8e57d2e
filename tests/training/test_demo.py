"""The demo runs, prints its table and writes a page that needs nothing else."""

import os
import pathlib
import subprocess
import sys

import pytest

DEMO = pathlib.Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo(tmp_path):
    for needed in ("sklearn", "rich", "matplotlib"):
        pytest.importorskip(needed)
    page = tmp_path / "demo.html"
    done = subprocess.run(
        [sys.executable, str(DEMO), "--repeats", "1", "--out", str(page)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=True,
    )
    for words in ("fixed noise", "adaptive noise", "early stopping", "-DP", "In words"):
        assert words in done.stdout
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "What is guaranteed" in text
    for reference in ('src="http', 'href="http', "<script", "@import"):
        assert reference not in text.replace('href="http://www.w3.org', "")
