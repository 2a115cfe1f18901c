"""The environment in which commands are started."""

from tests.places import installation, place  # noqa: F401 - fixtures
