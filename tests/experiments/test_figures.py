"""Figures are drawn from the results alone, and come out the same to the byte."""

import importlib
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).parents[2] / "experiments"
NAMES = sorted(path.parent.name for path in ROOT.glob("*/plot.py"))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bytes(name, tmp_path, monkeypatch):
    plot = importlib.import_module(f"experiments.{name}.plot")
    shutil.copy(plot.FOLDER / "results.json", tmp_path)
    committed = (plot.FOLDER / "figure.svg").read_bytes()
    monkeypatch.setattr(plot, "FOLDER", tmp_path)
    plot.main()
    assert (tmp_path / "figure.svg").read_bytes() == committed
