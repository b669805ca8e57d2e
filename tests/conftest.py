"""Settings for every suite."""

import pytest
from hypothesis import settings

# A shared machine may pause for longer than the default deadline of 200 ms.
settings.register_profile("dosimeter", deadline=None)
settings.load_profile("dosimeter")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Menus made by the tests stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOSIMETER_CACHE", str(tmp_path_factory.mktemp("menus")))
        yield
