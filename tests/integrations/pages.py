"""Runs what the page and the example of an integration show."""

import contextlib
import io
import pathlib
import subprocess
import sys

from blocks import blocks

ROOT = pathlib.Path(__file__).parent.parent.parent


def run_page(name):
    """Run every block of Python on a page, check what it prints, and return the names it made."""
    found = blocks(ROOT / "docs" / "integrations" / f"{name}.md", "python")
    assert found
    made = {}
    for code, said in found:
        out, names = io.StringIO(), {"__name__": "page"}
        with contextlib.redirect_stdout(out):
            exec(compile(code, name, "exec"), names)
        if said:
            assert out.getvalue() == said
        made |= names
    return made


def run_example(name, folder):
    """What an example prints, run in a folder of its own."""
    script = ROOT / "examples" / "integrations" / f"with_{name}.py"
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
