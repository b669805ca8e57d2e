"""The page and the example run as they stand."""

import pytest

from integrations.pages import run_example, run_page

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:scipy|sklearn|diffprivlib")


def test_the_page():
    run_page("diffprivlib")


def test_the_example(tmp_path):
    out = run_example("diffprivlib", tmp_path)
    assert "refused: epsilon would be" in out
    assert "(3.0, 1e-06)-DP, replace one record" in out
