"""One cluster for the tests that leave it whole, and runs on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotrace.config.installation import pth_file
from tests.multinode import cluster as machines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where two machines cannot be played, that is the result."""
    here = [item for item in items if "multinode" in item.path.parts]
    reason = machines.refusal() if here else None
    if not reason and here and pth_file() is None:
        reason = "autotrace must be installed here (pip install -e .): a running cluster's workers activate by its .pth"
    for item in here:
        item.add_marker(pytest.mark.timeout(600))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Cluster]:
    """Two nodes that share no run folder."""
    with machines.cluster(tmp_path_factory.mktemp("cluster"), dashboard=True) as made:
        yield made
