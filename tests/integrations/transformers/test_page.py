"""The page and the example run as they stand."""

import re

import pytest

from integrations.pages import run_example, run_page

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory"),
]


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("transformers")


def test_the_example(tmp_path):
    out = run_example("transformers", tmp_path)
    assert "(8.0, 0.0001)-DP" in out
    assert float(re.search(r"^accuracy (0\.\d+|1\.0)", out, re.MULTILINE)[1]) > 0.9
