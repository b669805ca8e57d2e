"""The examples run from start to end."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def test_adaptive_queries_end_with_a_picture(tmp_path):
    out = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "queries.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert "(2.0, 1e-06)-DP" in out
    assert (tmp_path / "demo.png").stat().st_size > 10_000
