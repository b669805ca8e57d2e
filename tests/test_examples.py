"""The examples run from start to end."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from notebooks import code_cells, outputs_of

ROOT = pathlib.Path(__file__).parent.parent


def run(name, *arguments, cwd, folder="examples"):
    return subprocess.run(
        [sys.executable, str(ROOT / folder / name), *arguments],
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
        pytest.param("curve_rule.py", "curve-rule.svg", marks=pytest.mark.slow),
        ("burn_down.py", "images/burn-down.svg"),
    ],
)
def test_the_pictures_are_those_in_the_docs(script, picture, tmp_path):
    """To the byte, with the matplotlib that the project pins."""
    run(script, "fresh.svg", cwd=tmp_path, folder="docs/figures")
    fresh = (tmp_path / "fresh.svg").read_bytes()
    assert b"<svg" in fresh
    pinned = re.search(r"^matplotlib==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if importlib.metadata.version("matplotlib") != pinned[1]:
        pytest.skip("another matplotlib draws the same with other bytes")
    kept = (ROOT / "docs" / picture).read_bytes()
    assert hashlib.sha256(fresh).hexdigest() == hashlib.sha256(kept).hexdigest()


@pytest.mark.slow
def test_the_picture_of_prices_is_drawn(tmp_path):
    """PNG of numbers that end in rounding: not to the byte."""
    run("prices.py", "fresh.png", cwd=tmp_path, folder="docs/figures")
    assert (tmp_path / "fresh.png").stat().st_size > 30_000


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
def test_notebooks_run_from_top_to_bottom_and_keep_what_they_show(notebook, tmp_path, monkeypatch):
    """But for the numbers, and the charts made of them; `python tests/notebooks.py` writes it."""
    monkeypatch.chdir(tmp_path)
    kept = json.loads(notebook.read_text(encoding="utf-8"))
    shown = outputs_of(kept)
    assert any(shown)
    for cell, outputs in zip(code_cells(kept), shown, strict=True):
        assert [_words(one) for one in cell["outputs"]] == [_words(one) for one in outputs]


def _words(output):
    """What is printed without its numbers, or in which forms a value is shown."""
    if "text" in output:
        return re.sub(r"\d+", "0", "".join(output["text"]))
    return sorted(output["data"])


def test_a_search_ends_with_the_best_rate_and_a_guarantee(tmp_path):
    best, whole, head, *trials = run("search.py", cwd=tmp_path).splitlines()
    assert re.match(r"best: trial \d \(rate [\d.]+\), score 0\.\d+$", best)
    assert whole.endswith("; (6.0, 1e-05)-DP, add/remove one record, fully adaptive, filter")
    assert head.split() == ["trial", "settings", "scores", "charged", "ended"]
    assert [line.endswith("completed") for line in trials].count(True) == 1
    assert len(trials) == 9
