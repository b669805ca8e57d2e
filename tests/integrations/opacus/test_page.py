"""The page and the example run as they stand."""

import pytest

from integrations.pages import run_example, run_page

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]


def test_the_page():
    run_page("opacus")


@pytest.mark.slow
def test_the_example(tmp_path):
    out = run_example("opacus", tmp_path)
    assert "stopped after" in out
    assert "(2.0, 1e-05)-DP" in out
