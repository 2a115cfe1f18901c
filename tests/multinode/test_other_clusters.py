"""A node that is lost, and nodes that share the run folder: each on a cluster of its own."""

from __future__ import annotations

import time
from pathlib import Path

from autotrace.run import layout
from autotrace.spool.reader import SegmentReader, segments
from tests.multinode import cluster as machines
from tests.multinode.cluster import until
from tests.multinode.runs import Run, whole

LOSS = 0.2 + 0.1 + 0.3
"""Seconds: the flusher's interval, the relay's look, and what a loaded machine with two cores takes for both. More
where the collector was further behind before the node was lost."""


def behind(run: Run, seconds: float = 3.0) -> float:
    """The most by which the collector's copies of node2's segments were behind its processes (which call something all
    the time) in so many seconds."""
    readers = [
        SegmentReader(run.folder, file.name) for file in segments(run.folder) if file.process.startswith("node2")
    ]
    newest, worst, end = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        for reader in readers:
            newest = max([newest, *(getattr(located.record, "at", 0) for located in reader.read())])
        if newest:
            worst = max(worst, time.monotonic() - newest / 1e9)
        time.sleep(0.02)
    assert newest, "nothing arrived"
    return worst


def test_a_node_that_is_switched_off_leaves_what_it_recorded(tmp_path: Path) -> None:
    with machines.cluster(tmp_path) as cluster:
        marks = cluster.node2.runs / "marks-tool"
        run = Run(cluster, "lost_node", str(cluster.runs))
        run.ready()
        until(lambda: marks.exists() and marks.read_text().count("\n") > 200, "the tool does not run", 120)
        loss = max(LOSS, 2 * behind(run))
        cluster.node2.kill()
        off = time.time()
        run.go()
        run.end()
        assert run.stdout.count("lost") == 2
        done = [line.split() for line in marks.read_text().splitlines()]
        wanted = {int(number) for number, at in (pair for pair in done if len(pair) == 2) if float(at) < off - loss}
        found = {each.name: each for each in run.trajectories()}
        assert set(found) == {*((1, n) for n in range(4)), (2, 0), (2, 1), *((3, n) for n in range(4))}

        # a caller on node 1 of a tool that was on node 2
        tool = found[2, 0].named("Search.hang")
        assert [span["status"] for span in tool] == ["INTERRUPTED"]
        assert found[2, 0].spans[0]["status"] == "ERROR", "its caller lives and got an exception"
        notes = {span["inputs"]["number"] for span in found[2, 0].named("Search.note") if span["status"] == "OK"}
        assert wanted <= notes, f"lost: {sorted(wanted - notes)}"
        assert off - 5 < tool[0]["end_ns"] / 1e9 <= off + 1, "it ends when something was heard of it last"

        # a root that was on node 2
        assert found[2, 1].spans[0]["status"] == "INTERRUPTED"
        others = {name: each for name, each in found.items() if name[0] != 2}
        assert not {name: (each.status, each.spans) for name, each in others.items() if each.status != "OK"}
        assert run.status()["state"] == "done"
        assert any("node2 is gone or cannot be reached" in note for note in run.status()["notes"])


def test_nodes_that_share_the_run_folder_need_no_relay(tmp_path: Path) -> None:
    with machines.cluster(tmp_path, private=False) as cluster:
        run = Run(cluster, "pauses")
        run.ready()
        assert not cluster.node2.processes("autotrace.ship")
        run.go()
        run.ready()
        run.go()
        run.end()
        whole(run, range(1, 6))
        assert {path.name.split("-")[0] for path in (run.folder / layout.SPOOL).iterdir()} == {"node1", "node2"}
