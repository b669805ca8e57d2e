"""Every epsilon in experiments/ is recomputed from what was recorded."""

import json
import pathlib
import re

import pytest

from experiments import record
from experiments.accounting import run as accounting
from experiments.published_runs import run as published

ROOT = pathlib.Path(__file__).parents[2]
RUNS = ROOT.parent / "shared" / "data" / "published_runs"


def recomputed(epochs):
    document = record.load(accounting.FOLDER)
    config = {**document["config"], "epochs": epochs}
    fresh = accounting.compute(config)
    where = [document["config"]["epochs"].index(number) for number in epochs]
    for name, values in document["results"].items():
        assert fresh[name] == pytest.approx([values[i] for i in where], abs=1e-3), name


def test_the_papers_figures_and_ours():
    recomputed([6, 20])


@pytest.mark.slow
def test_the_papers_figures_and_ours_at_every_epoch():
    recomputed(record.load(accounting.FOLDER)["config"]["epochs"])


@pytest.mark.skipif(not RUNS.exists(), reason="the published runs are not beside this checkout")
def test_the_published_runs():
    document = record.load(published.FOLDER)
    for kind, name in document["config"]["files"].items():
        runs = json.loads((RUNS / name).read_text())
        for key in ("fine_tune_all_0", "fine_tune_last_3"):
            fresh = published.replay(runs[key], document["config"], signal=kind == "adaptive")
            assert fresh == document["results"][kind]["runs"][key]


def test_the_page_quotes_the_results():
    page = (ROOT / "experiments" / "README.md").read_text()
    sums = record.load(published.FOLDER)["results"]
    adaptive = sums["adaptive"]["summary"]["fine_tune_all"]
    fixed = sums["fixed"]["summary"]["fine_tune_all"]
    assert f"{adaptive['ours'][1]:.3f} to {adaptive['ours'][2]:.3f}" in page
    assert f"(mean {adaptive['ours'][0]:.3f})" in page
    assert f"{adaptive['paper'][1]:.2f} to {adaptive['paper'][2]:.2f}" in page
    assert f"{fixed['ours'][1]:.2f} to {fixed['ours'][2]:.2f} (mean {fixed['ours'][0]:.2f})" in page
    results = record.load(accounting.FOLDER)
    at = results["config"]["epochs"].index
    for name, epochs in (("our odometer", 20), ("our filter", 50), ("fixed, PLD", 50)):
        assert f"{results['results'][name][at(epochs)]:.3f}" in page
    assert re.search(r"does not hold", page)


def test_missing_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["run", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="skipped: --data must hold fine_tune_exp"):
        published.main()
