"""Many nodes at once: plays the relays of ``--relays`` nodes that send what ``--rate`` calls a second record, for
``--seconds``, to the collector of a run, and prints rates and lag.

    python benchmarks/scale.py [--seconds 600] [--rate 1640] [--relays 64] [--processes 1] [--backend jsonl] ...

The collector is the real one, in a process of its own; the relays are one process with a connection for each node, and
each traced process of a node sends every ``FLUSH``, as real ones do. Fails if what was played is not delivered, or lags
by more than ``LAG`` at the end, or if the rate could not be played: with another exit code where other processes had
the cores that it takes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from autotrace.run import layout  # noqa: E402
from autotrace.run.info import RunInfo  # noqa: E402
from autotrace.run.process import boot_id  # noqa: E402
from autotrace.ship.cluster.receiver import Receiver, published  # noqa: E402
from autotrace.ship.cluster.relay import Collector  # noqa: E402
from benchmarks.rollouts import Writer  # noqa: E402

FLUSH = 0.25
"""Seconds between two requests about one segment: a flush interval and a look of the relay."""
LAG = 10.0
"""Seconds."""
ROLLOUT = 10.0
"""Seconds that a rollout takes, about. At the end those that are open are finished at once."""
PLAYED = 0.9
"""Share of the rate that must have been played for the result to say anything."""
OTHERS = 0.25
"""Share of all cores that other processes must have had to be the reason why the rate was not played."""
TRIES = 5
"""Times that a node sends what is left at the end."""
PATIENCE = 300.0
"""Seconds that the rest may take after the end."""


@dataclass
class Traced:
    """One traced process, and the segment that its node's relay sends."""

    writer: Writer
    size: int = 0
    waiting: bytes = b""
    rollouts: list[Iterator[bytes]] = field(default_factory=list)
    number: int = 0
    due: float = 0.0
    """Turns that are to be played by now, and were not."""

    def play(self, turns: float, concurrent: int, draw: random.Random) -> None:
        """Play so many turns of ``concurrent`` rollouts, which begin at different times."""
        self.due += turns
        while self.due >= 1:
            if len(self.rollouts) < concurrent and (not self.rollouts or draw.random() < 0.5):
                self._begin()
            at = draw.randrange(len(self.rollouts))
            piece = next(self.rollouts[at], None)
            if piece is None:
                del self.rollouts[at]
                self._begin()
                continue
            self.waiting += piece
            self.due -= 1

    def _begin(self) -> None:
        group, rollout = divmod(self.number, 16)
        self.number += 1
        self.rollouts.append(self.writer.rollout(group // 8, f"{self.writer.name}.{group}", rollout))

    def finish(self) -> None:
        """End all rollouts, and the process."""
        self.waiting += b"".join(piece for rollout in self.rollouts for piece in rollout) + self.writer.end()


class Node:
    """One node: its processes, and the connection of its relay."""

    def __init__(self, number: int, processes: int, run: Path, collector: Collector, turns: int) -> None:
        self.collector = collector
        host = f"node{number}"
        self.traced = [Traced(Writer(run.name, host, 100 + n, boot=boot_id(), turns=turns)) for n in range(processes)]
        for one in self.traced:
            one.waiting = one.writer.begin()
        self.refused = 0
        """Requests that the collector did not take: it was not there, or had given the connection up."""

    def send(self, alive: bool = True) -> int:
        """Send what waits; how many bytes. Where the collector does not take it, it waits for the next time, as with a
        relay."""
        sent = 0
        for one in self.traced:
            if one.waiting or not alive:
                try:
                    size = self.collector.append(one.writer.name, one.size, alive, one.waiting)
                except (OSError, http.client.HTTPException):
                    self.refused += 1
                    continue
                sent += size - one.size
                one.waiting, one.size = one.waiting[size - one.size :], size
        return sent

    def end(self) -> int:
        """Send the rest, and that the processes have ended; how many bytes."""
        sent = 0
        for _ in range(TRIES):
            before = self.refused
            sent += self.send(alive=False)
            if self.refused == before and not any(one.waiting for one in self.traced):
                break
        return sent


def new_run(parent: Path, backend: str, uri: str, main_pid: int) -> Path:
    """A run folder whose collector is asked to listen."""
    run = parent / "run"
    (run / layout.SPOOL).mkdir(parents=True, mode=0o700)
    (run / layout.BLOBS).mkdir()
    RunInfo(
        run_id="run", created="2026-01-01T00:00:00+00:00", command=["scale"], host=os.uname().nodename,
        main_pid=main_pid, backends=[backend], tracking_uri=uri or None, project="scale", drain_timeout=PATIENCE,
    ).write(run)  # fmt: skip
    (run / layout.LISTEN).write_text("127.0.0.1")
    return run


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, and of those it started."""
    own, ticks = _stat(pid), 0
    for other in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = _stat(int(other))
            ticks += sum(map(int, fields[11:13])) if int(fields[1]) == pid else 0
    return (sum(map(int, own[11:15])) + ticks) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def busy() -> float:
    """CPU seconds that this machine spent on anything so far, in all its cores."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def status_of(run: Path) -> dict[str, Any]:
    """What the collector wrote last; empty: nothing yet."""
    try:
        loaded: dict[str, Any] = json.loads((run / layout.STATUS_JSON).read_text())
    except (OSError, ValueError):
        return {}
    return loaded


def play(run: Path, where: dict[str, str], pid: int, options: argparse.Namespace) -> dict[str, Any]:
    """Play the relays against the collector of ``run``, process ``pid``; what came of it."""
    nodes = [
        Node(n, options.processes, run, Collector(where["url"], where["token"]), options.turns)
        for n in range(options.relays)
    ]
    everybody = [one for node in nodes for one in node.traced]
    spans = everybody[0].writer.spans
    turns_a_second = options.rate / spans * (options.turns + 1) / len(everybody)
    concurrent = max(1, round(turns_a_second * ROLLOUT / (options.turns + 1)))
    draw = random.Random(1)
    begin = shown = time.monotonic()
    spent = (busy(), time.process_time(), cpu_of(pid))
    played_at = [begin + FLUSH * n / len(nodes) for n in range(len(nodes))]
    requests = size = 0
    print("    s  sent MB/s  requests/s  delivered/s  to deliver  unread MB  lag s")
    before = (0, 0, 0)
    while (now := time.monotonic()) - begin < options.seconds:
        at = min(range(len(nodes)), key=played_at.__getitem__)
        if played_at[at] > now:
            time.sleep(played_at[at] - now)
        for one in nodes[at].traced:
            one.play(turns_a_second * FLUSH, concurrent, draw)
        requests += sum(bool(one.waiting) for one in nodes[at].traced)
        size += nodes[at].send()
        played_at[at] += FLUSH
        if now - shown >= options.every:
            status = status_of(run)
            delivered = int(status.get("backends", {}).get(options.backend, {}).get("delivered", 0))
            row = ((size - before[0]) / 1e6, requests - before[1], delivered - before[2])
            per = [value / (now - shown) for value in row]
            print(
                f"{now - begin:5.0f} {per[0]:10.2f} {per[1]:11.0f} {per[2]:12.1f} {status.get('pending', 0):11} "
                f"{status.get('unread_bytes', 0) / 1e6:10.2f} {lag_of(status):6.1f}",
                flush=True,
            )
            shown, before = now, (size, requests, delivered)
    seconds = time.monotonic() - begin
    behind = max(0.0, seconds - (min(played_at) - begin))
    status = status_of(run)
    everything, generator, used = (
        now - before for now, before in zip((busy(), time.process_time(), cpu_of(pid)), spent, strict=True)
    )
    for one in everybody:
        one.finish()
    rest = sum(node.end() for node in nodes)
    rollouts = sum(one.number for one in everybody)
    return {
        "seconds": seconds, "rollouts": rollouts, "spans": rollouts * spans, "mb": (size + rest) / 1e6,
        "spans_per_s": (size / (size + rest)) * rollouts * spans / seconds, "mb_per_s": size / 1e6 / seconds,
        "requests_per_s": requests / seconds, "connections": len(nodes), "generator_behind_s": behind,
        "lag_s": lag_of(status), "to_deliver": status.get("pending"),
        "requests": requests, "refused": sum(node.refused for node in nodes),
        "collector_cores": used / seconds, "generator_cores": generator / seconds,
        "other_cores": max(0.0, everything - generator - used) / seconds, "cores": os.cpu_count(),
    }  # fmt: skip


def lag_of(status: dict[str, Any]) -> float:
    """Seconds that delivery lags: the age of the oldest that waits, or of the status itself."""
    if not status:
        return 0.0
    return max(float(status["lag_seconds"]), (time.time_ns() - int(status["updated_ns"])) / 1e9 - 2.0)


def _published(run: Path, shipper: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + 60
    while not (where := published(run)):
        if shipper.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the collector did not start: {(run / layout.SHIPPER_LOG).read_text()[-2000:]}")
        time.sleep(0.05)
    return {**where, "url": f"http://127.0.0.1:{where['url'].rsplit(':', 1)[1]}"}


def receive(options: argparse.Namespace) -> dict[str, Any]:
    """Only the receiver, in a thread of this process: what receiving takes."""
    with tempfile.TemporaryDirectory(prefix="autotrace-scale-") as name:
        run = new_run(Path(name), options.backend, "", 0)
        receiver = Receiver(run, "127.0.0.1")
        where = {"url": f"http://127.0.0.1:{receiver.url.rsplit(':', 1)[1]}", "token": receiver.token}
        before = time.process_time() - time.thread_time()
        result = play(run, where, os.getpid(), options)
        used = time.process_time() - time.thread_time() - before
        receiver.close()
    return {
        "requests_per_s": result["requests_per_s"], "mb_per_s": result["mb_per_s"],
        "us_per_request": used / max(1, result["requests"]) * 1e6, "us_per_span": used / max(1, result["spans"]) * 1e6,
        "cores": used / result["seconds"],
    }  # fmt: skip


def main(words: list[str] | None = None) -> int:
    """Play, wait for delivery, print; 1 if it lags, something is missing or the rate was not played, 2 if that is
    because of other processes."""
    options = _options().parse_args(words)
    if options.receive_only:
        show(receive(options))
        return 0
    with tempfile.TemporaryDirectory(prefix="autotrace-scale-") as name:
        first = subprocess.Popen(["sleep", str(options.seconds + 3600)])
        run = new_run(Path(name), options.backend, options.tracking_uri, first.pid)
        shipper = subprocess.Popen([sys.executable, "-m", "autotrace.ship", str(run)], cwd=ROOT)
        try:
            result = play(run, _published(run, shipper), shipper.pid, options)
            end = time.monotonic()
            first.kill()
            first.wait()
            shipper.wait(PATIENCE)
            result["delivered_after_s"] = time.monotonic() - end
            status = status_of(run)
        finally:
            for process in (first, shipper):
                process.kill()
                process.wait()
    result["delivered"] = status["backends"][options.backend]["delivered"]
    result["spans_delivered_whole"] = result["delivered"] == result["rollouts"]
    show(result)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    if result["lag_s"] > LAG or not result["spans_delivered_whole"]:
        print(f"FAILED: the lag is {result['lag_s']:.1f} s, {result['rollouts'] - result['delivered']} are missing")
        return 1
    if result["spans_per_s"] < PLAYED * options.rate:
        print(not_played(result, options.rate))
        return 2 if result["other_cores"] >= OTHERS * result["cores"] else 1
    return 0


def not_played(result: dict[str, Any], rate: float) -> str:
    """Why the rate was not reached."""
    what = f"{result['spans_per_s']:.0f} of {rate:.0f} calls a second"
    cores = f"other processes had {result['other_cores']:.1f} of {result['cores']} cores"
    if result["other_cores"] >= OTHERS * result["cores"]:
        return f"NOT PLAYED: {what}, because {cores}: run it on a quiet machine"
    return f"FAILED: {what}, although {cores}: the collector takes no more, or the generator plays no more"


def show(result: dict[str, Any]) -> None:
    """Print it, a line each."""
    for key, value in result.items():
        print(f"{key.replace('_', ' '):24} {f'{value:,.2f}' if isinstance(value, float) else value}")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=1640.0, help="calls a second, of all nodes")
    parser.add_argument("--relays", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1, help="traced processes of a node")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--backend", default="jsonl")
    parser.add_argument("--tracking-uri", default="")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two lines")
    parser.add_argument("--receive-only", action="store_true", help="nothing is delivered: CPU of the receiver alone")
    parser.add_argument("--json", help="write the result there")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
