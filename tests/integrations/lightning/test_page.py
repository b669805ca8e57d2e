"""The page and the example run as they stand."""

import re

import pytest

from integrations.pages import ROOT, run_example, run_page

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*is not logged while the module trains"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
]


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("lightning")


@pytest.mark.slow
def test_the_example(tmp_path):
    out = run_example("lightning", tmp_path)
    assert "(4.0, 1e-05)-DP" in out
    assert float(re.search(r"^accuracy (0\.\d+)", out, re.MULTILINE)[1]) > 0.8


def test_a_budget_is_three_new_lines():
    """The example marks them, and knows nothing else of the library but what it prints."""
    script = (ROOT / "examples" / "integrations" / "with_lightning.py").read_text()
    new = [line for line in script.splitlines() if line.endswith("# new")]
    assert len(new) == 3
    rest = [line for line in script.splitlines() if line not in new]
    assert [line for line in rest if "budget." in line or "dosimeter" in line] == [
        "    print(budget.engine.guarantee())"
    ]
