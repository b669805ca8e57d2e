"""Settings for every suite."""

import functools
import os

import pytest
from hypothesis import settings

import run_pages

# Some virtual machines announce AMX and have none: PyTorch itself then dies of bfloat16 products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# A shared machine may pause for longer than the default deadline of 200 ms.
# What `make test` draws is the same each time; `make test-all` looks elsewhere at every run.
settings.register_profile("random", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Menus made by the tests stay out of the user's cache; processes of one run share them."""
    base = tmp_path_factory.getbasetemp()
    whole = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOSIMETER_CACHE", str(whole / "menus"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_tree_of_commands():
    """It is built once: Typer's runner would build all of it at every call, which takes longest."""
    try:
        from typer import testing
    except ImportError:  # in environments of other libraries
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", functools.cache(testing._get_command))
        yield


@pytest.fixture
def run_page(monkeypatch):
    """A page to which runs report, with a token for it in the environment."""
    monkeypatch.setenv("DOSIMETER_TOKEN", "dsm_test")
    with run_pages.page() as made:
        yield made
