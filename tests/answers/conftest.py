"""The environment in which agents are started."""

from tests.places import installation, place  # noqa: F401 - fixtures
