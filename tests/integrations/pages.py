"""Runs what the page and the example of an integration show."""

import contextlib
import io
import pathlib
import subprocess
import sys

from blocks import blocks

ROOT = pathlib.Path(__file__).parent.parent.parent


def run_page(name):
    """Every block of Python on a page, each printing what the page says."""
    found = blocks(ROOT / "docs" / "integrations" / f"{name}.md", "python")
    assert found
    for code, said in found:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, name, "exec"), {"__name__": "page"})
        if said:
            assert out.getvalue() == said


def run_example(name, folder):
    """What an example prints, run in a folder of its own."""
    script = ROOT / "examples" / "integrations" / f"with_{name}.py"
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
