"""The notice of workers that cannot trace: travels without autotrace, is said once a node, replaces nobody's hook."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray import cloudpickle

from autotrace.adapters.ray import cluster
from autotrace.adapters.ray.cluster import HOOK, JOB_CONFIG, head, with_notice
from tests.waiting import DEADLINE

OURS = {"env_vars": {"AUTOTRACE": "1"}}
SHIPPED = base64.b64encode(cloudpickle.dumps(cluster.notice())).decode()


def worker(place: Path, **environ: str) -> str:
    """What a worker without autotrace says when Ray runs the hook in it."""
    code = f"import base64, pickle; pickle.loads(base64.b64decode({SHIPPED!r}))()"
    code = f"import sys; sys.modules['autotrace'] = None; {code}"  # and no .pth files: -S
    variables = {"PATH": os.environ["PATH"], "TMPDIR": str(place), "PYTHONPATH": os.pathsep.join(sys.path), **environ}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=variables, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_one_worker_of_a_node_says_it(tmp_path: Path) -> None:
    said = worker(tmp_path, AUTOTRACE="1", AUTOTRACE_RUN_ID="run1")
    assert "are not traced: autotrace is not installed in" in said and said.count("\n") == 1
    assert worker(tmp_path, AUTOTRACE="1", AUTOTRACE_RUN_ID="run1") == ""
    assert worker(tmp_path, AUTOTRACE="1", AUTOTRACE_RUN_ID="run2") != ""


@pytest.mark.parametrize("kind", ["hard link", *(("file", "folder", "link") if not os.getuid() else ())])
def test_a_mark_that_a_neighbour_made_silences_nobody(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / f"autotrace-absent-{os.getuid()}-run1"
    (other := tmp_path / "other").write_text("")
    {"file": mark.touch, "folder": mark.mkdir, "link": lambda: mark.symlink_to(other),
     "hard link": lambda: mark.hardlink_to(other)}[kind]()  # fmt: skip
    if kind != "hard link":
        os.chown(mark, 4321, 4321, follow_symlinks=False)
    for _ in range(2):
        assert "are not traced" in worker(tmp_path, AUTOTRACE="1", AUTOTRACE_RUN_ID="run1")


def test_a_worker_that_is_not_to_trace_says_nothing(tmp_path: Path) -> None:
    assert worker(tmp_path, AUTOTRACE="0", AUTOTRACE_RUN_ID="run1") == worker(tmp_path) == ""


def test_it_is_added_and_leaves_what_was_given_alone() -> None:
    given = dict(OURS)
    assert with_notice(given, {}, "10.0.0.1:6379")[HOOK].__name__ == "autotrace_notice"
    assert given == OURS


@pytest.mark.parametrize(
    ("given", "environ", "address"),
    [
        (None, {}, None),
        ({**OURS, HOOK: "mine.hook"}, {}, "10.0.0.1:6379"),
        (OURS, {JOB_CONFIG: json.dumps({"runtime_env": {HOOK: "mine.hook"}})}, None),
        (OURS, {}, "ray://10.0.0.1:10001"),
    ],
)
def test_it_stays_away(given: object, environ: dict[str, str], address: str | None) -> None:
    assert with_notice(given, environ, address) is given


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.1:6379", "10.0.0.1"), ("ray://head:10001/x", "head"), ("[fd00::1]:6379", "fd00::1"), ("local", "")],
)
def test_the_head_of_a_cluster(address: str, host: str) -> None:
    assert head(address) == host
