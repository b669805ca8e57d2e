"""Settings for every suite."""

from hypothesis import settings

# A shared machine may pause for longer than the default deadline of 200 ms.
settings.register_profile("dosimeter", deadline=None)
settings.load_profile("dosimeter")
