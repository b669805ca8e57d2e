"""The examples run from start to end."""

import ast
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def run(name, *arguments, cwd):
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


def test_adaptive_queries_end_with_a_picture(tmp_path):
    assert "(2.0, 1e-06)-DP" in run("queries.py", cwd=tmp_path)
    assert (tmp_path / "demo.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("script", "picture"),
    [
        ("curve_rule_figure.py", "curve-rule.svg"),
        ("burn_down_figure.py", "images/burn-down.svg"),
    ],
)
def test_the_pictures_are_those_in_the_docs(script, picture, tmp_path):
    """To the byte, with the matplotlib that the project pins."""
    run(script, "fresh.svg", cwd=tmp_path)
    fresh = (tmp_path / "fresh.svg").read_bytes()
    assert b"<svg" in fresh
    pinned = re.search(r"^matplotlib==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if importlib.metadata.version("matplotlib") != pinned[1]:
        pytest.skip("another matplotlib draws the same with other bytes")
    kept = (ROOT / "docs" / picture).read_bytes()
    assert hashlib.sha256(fresh).hexdigest() == hashlib.sha256(kept).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(("options", "own"), [([], 738), (["--shard"], 369)])
def test_two_processes_share_a_budget_and_a_model(options, own, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = ROOT / "examples" / "torchrun.py"
    out = subprocess.run(
        [*command, str(script), *options],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    steps, paid, numbers = re.search(r"(\d+) steps, (\d+) paid, (\d+) numbers", out).groups()
    assert int(steps) == int(paid) > 0
    assert int(numbers) == own
    assert "(2.0, 1e-05)-DP" in out


def notebooks():
    """All of them; the one that prices a menu takes longer."""
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        slow = path.stem == "first-private-model"
        yield pytest.param(path, marks=pytest.mark.slow if slow else (), id=path.stem)


@pytest.mark.parametrize("notebook", list(notebooks()))
def test_notebooks_run_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    """Every cell in turn, and what its last line shows; no output is kept in the files."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            *before, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(before, []), notebook.name, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
                shown = getattr(value, "_repr_html_", value.__repr__)()
                assert shown
            else:
                exec(compile(ast.Module([last], []), notebook.name, "exec"), names)


@pytest.mark.slow
def test_a_search_ends_with_the_best_rate_and_a_guarantee(tmp_path):
    out = run("search.py", cwd=tmp_path)
    assert "best rate" in out
    assert out.endswith("(6.0, 1e-05)-DP, add/remove one record, fully adaptive, filter\n")
