"""Ways to run commands."""

from tests.places import installation, place  # noqa: F401 - fixtures
