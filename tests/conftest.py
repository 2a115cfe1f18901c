"""What holds for every test: time to think, processes that start as a terminal starts them, and a temporary folder in
which nothing of ours stays."""

from __future__ import annotations

import multiprocessing.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest

from autotrace.spec.compiler import write_shipped

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the environments of engines have none
    pass
else:  # a machine with other work may take seconds for one example
    unhurried = (*settings().suppress_health_check, HealthCheck.too_slow)
    settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=unhurried)
    settings.load_profile("unhurried")

# `nohup` ignores SIGHUP, and a shell that starts `make test &` ignores SIGINT and SIGQUIT. Every process would inherit
# this. A process that is started inherits no handler: the signal ends that process, and these tests go on.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# Images of containers set this variable, and each of a thousand processes would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

OURS = ("autotrace", "hostile")
_seen: dict[str, str] = {}
"""Name in the temporary folder -> the test after which it was first there."""


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The temporary folder of these tests alone and of the processes that they start. What autotrace leaves there would
    pile up on its users' machines, too."""
    tmp_path_factory.getbasetemp()  # stays where pytest has it, for who looks at a failure
    multiprocessing.util.get_temp_dir()  # is removed by this process at its end, later than the folder here
    folder = tempfile.mkdtemp(prefix="tests-")  # a short path: sockets are made below it
    os.chmod(folder, 0o711)  # PostgreSQL's server is another user
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setenv("RAY_WAITS", os.path.join(os.path.dirname(__file__), "ray_waits.py"))
        patch.setattr(tempfile, "tempdir", folder)
        yield folder
    left = {name: _seen.get(name, "?") for name in os.listdir(folder) if name.startswith(OURS)}
    shutil.rmtree(folder, ignore_errors=True)
    assert not left, f"left in the temporary folder, and the test after which it was first there: {left}"


@pytest.fixture(scope="session", autouse=True)
def compiled_lists() -> None:
    """Compile the shipped specs once, as a build of the package does; else each start of ``autotrace-run`` would."""
    write_shipped()


@pytest.fixture(autouse=True)
def own_variables() -> Iterator[None]:
    """Restore the variables of autotrace after each test: a command that runs in this process sets some, and the next
    test's processes would inherit them."""
    before = _own_variables()
    yield
    for name in _own_variables().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _own_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AUTOTRACE")}


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Note which test left what."""
    for name in os.listdir(tempfile.gettempdir()):
        _seen.setdefault(name, nodeid)
