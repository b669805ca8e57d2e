"""The demo runs, prints its table and writes a page that needs nothing else."""

import json
import re

import pytest
from typer.testing import CliRunner

from dosimeter.cli.app import app


def test_demo(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    done = CliRunner().invoke(app, ["demo", "--repeats", "1"])
    assert done.exit_code == 0, (done.output, done.exception)
    page = tmp_path / "dosimeter-demo" / "report.html"
    assert done.stdout.rstrip().endswith(page.as_uri())
    text = page.read_text(encoding="utf-8")
    for way in ("guessed rate", "guessed norm", "guessed noise", "no guess"):
        assert way in done.stdout
        assert way in text
        folder = page.parent / way.replace(" ", "-")
        history = json.loads((folder / "history.json").read_text())
        assert "-DP" in history["guarantee"]
        spent = history["epochs"][-1]["epsilon"]
        (said,) = re.findall(rf"^{way} .*%.*\)  +([\d.]+)  ", done.stdout, re.MULTILINE)
        assert spent <= float(said) <= spent + 0.001
    assert "In short, from the same budget: learning_rate 0.001" in done.stdout
    assert "no filter passed its limit of 4" in done.stdout
    assert "Batch size (expected records a step), the same at every epoch: 682." in text
    assert "certain before training began" in text
    again = CliRunner().invoke(app, ["report", *map(str, page.parent.glob("*-*"))])
    assert again.exit_code == 0
    assert (tmp_path / "report.html").stat().st_size == page.stat().st_size
