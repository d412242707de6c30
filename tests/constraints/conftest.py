"""Settings of the property-based tests."""

from hypothesis import settings

# A slow machine is no failure, and the same examples everywhere make failures repeat.
settings.register_profile("decap", deadline=None, derandomize=True)
settings.load_profile("decap")
