"""Two machines on this one: namespaces for the network, host name, processes, mounts and the monotonic clock, and a Ray
cluster over them. Nothing outside of the namespaces is changed, and all of it ends with the processes that hold them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ADDRESSES = {"node1": "10.213.0.1", "node2": "10.213.0.2"}
PORT = 6379
PROGRAM = Path(__file__).parent / "program"
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
UPTIME = {"node1": 0, "node2": 500_000}
"""Seconds by which a node's monotonic clock is ahead of this machine's."""

_SCRIPT = r"""
set -e
hostname "$NAME"
printf '127.0.0.1 localhost\n10.213.0.1 node1\n10.213.0.2 node2\n' >"$HOME_OF/hosts"
printf '%s-0000-4000-8000-%s\n' "$BOOT" 000000000000 >"$HOME_OF/boot_id"
mount --bind "$HOME_OF/hosts" /etc/hosts
mount --bind "$HOME_OF/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$HOME_OF/ray" /tmp/ray
[ -z "$PRIVATE" ] || mount --bind "$HOME_OF/runs" "$RUNS"
ip link set lo up
read go
ip addr add "$ADDRESS/32" dev lo
ip link set cable up
ip route add 10.213.0.0/24 dev cable src "$ADDRESS"
echo up
exec sleep infinity
"""


def refusal() -> str | None:
    """Why this machine cannot play two; None when it can."""
    if os.geteuid():
        return "two machines on one need namespaces for network, mounts and processes: root only"
    for tool in ("unshare", "nsenter", "ip", "setpriv"):
        if not any(os.access(os.path.join(place, tool), os.X_OK) for place in os.environ["PATH"].split(os.pathsep)):
            return f"two machines on one need {tool} (packages util-linux and iproute2)"
    done = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True)
    return f"namespaces are not permitted here: {done.stderr.strip()}" if done.returncode else None


_UNSHARE = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "--mount", "--uts", "--net"]


class Node:
    """A machine of its own as far as the programs in it can tell. ``kill`` is a power failure."""

    def __init__(self, name: str, place: Path, runs: Path, *, private: bool) -> None:
        self.name, self.address = name, ADDRESSES[name]
        self.runs = place / name / "runs" if private else runs
        """The node's run folder parent as seen from outside."""
        self.log = place / f"{name}.log"
        for folder in ("ray", "runs"):
            (place / name / folder).mkdir(parents=True)
        clock = ["--time", "--monotonic", str(UPTIME[name]), "--boottime", str(UPTIME[name])] if UPTIME[name] else []
        environ = {
            **os.environ, "NAME": name, "HOME_OF": str(place / name), "BOOT": secrets.token_hex(4),
            "PRIVATE": "1" if private else "", "RUNS": str(runs), "ADDRESS": self.address,
        }  # fmt: skip
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *_UNSHARE, *clock, "sh", "-c", _SCRIPT],
            env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = until(lambda: child_of(self.holder.pid), f"{name} did not start")

    def up(self) -> None:
        """Its network interface exists: take the address."""
        assert self.holder.stdin is not None and self.holder.stdout is not None
        print("go", file=self.holder.stdin, flush=True)
        assert self.holder.stdout.readline() == "up\n"

    def command(self, words: list[str]) -> list[str]:
        """``words``, to be run on this node."""
        return ["nsenter", "--target", str(self.pid), "--all", "--", *words]

    def popen(self, words: list[str], environ: Mapping[str, str], **options: object) -> subprocess.Popen[str]:
        """Start something on this node."""
        return subprocess.Popen(self.command(words), env=dict(environ), text=True, **options)  # type: ignore[call-overload]

    def run(self, words: list[str], environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run something on this node to its end."""
        return subprocess.run(
            self.command(words), env=dict(environ or os.environ), capture_output=True, text=True, timeout=300
        )

    def processes(self, words: str) -> list[int]:
        """Processes of this node (ids as seen from outside) whose command line contains ``words``."""
        space, found = os.readlink(f"/proc/{self.pid}/ns/pid"), []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdecimal() and os.readlink(f"/proc/{entry}/ns/pid") == space:
                    line = Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if words in line:
                        found.append(int(entry))
        return sorted(found)

    def kill(self) -> None:
        """Everything on it is dead at once, and so are its interfaces."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.holder.wait(timeout=30)

    def ray(self, *options: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        """``ray start --block`` on this node."""
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=4",
                 f"--node-ip-address={self.address}", "--object-store-memory=80000000",
                 f'--resources={{"{self.name}": 100}}', *options]  # fmt: skip
        with self.log.open("a") as log:
            return self.popen(words, environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


class Cluster:
    """Two nodes and a Ray over them."""

    def __init__(self, place: Path, *, private: bool = True, dashboard: bool = False) -> None:
        self.place, self.runs = place, place / "runs"
        self.runs.mkdir(parents=True)
        Path("/tmp/ray").mkdir(exist_ok=True)  # a place to mount each node's own on
        self.token = place / "token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        self.node1 = Node("node1", place, self.runs, private=private)
        self.node2 = Node("node2", place, self.runs, private=private)
        link = ["ip", "link", "add", "name", "cable", "type", "veth", "peer", "name", "cable", "netns"]
        subprocess.run(
            ["nsenter", "--target", str(self.node1.pid), "--net", "--", *link, str(self.node2.pid)],
            check=True, capture_output=True,
        )  # fmt: skip
        self.node1.up()
        self.node2.up()
        dash = [f"--dashboard-host={self.node1.address}"] if dashboard else ["--include-dashboard=false"]
        self.node1.ray("--head", f"--port={PORT}", *dash, environ=self.environ)
        self.wait_for(1)
        self.node2.ray(f"--address={self.address}", environ=self.environ)
        self.wait_for(2)

    @property
    def address(self) -> str:
        return f"{ADDRESSES['node1']}:{PORT}"

    @property
    def environ(self) -> dict[str, str]:
        """Of everything on the nodes; nothing of a run in it."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "RAY_"))}
        return {
            **clean, "PATH": f"{BIN}:{clean['PATH']}", "PYTHONPATH": str(PROGRAM),
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token), "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "6", "RAY_health_check_timeout_ms": "2000",
        }  # fmt: skip

    def wait_for(self, nodes: int) -> None:
        """Until so many nodes are members."""
        code = (
            "import sys, time\nfrom ray._raylet import GcsClient\n"
            f"deadline = time.monotonic() + 240\n"
            "while time.monotonic() < deadline:\n"
            "    try:\n"
            f"        known = GcsClient({self.address!r}).get_all_node_info()\n"
            f"        if sum(node.state == 0 for node in known.values()) >= {nodes}: sys.exit()\n"
            "    except Exception as error: last = error\n"
            "    time.sleep(0.2)\n"
            "sys.exit('the cluster did not come up')"
        )
        done = self.node1.run([sys.executable, "-c", code], self.environ)
        assert done.returncode == 0, done.stderr + self.node1.log.read_text() + self.node2.log.read_text()

    def close(self) -> None:
        """Switch both off."""
        self.node2.kill()
        self.node1.kill()


@contextlib.contextmanager
def cluster(place: Path, **options: bool) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    made = Cluster(place, **options)
    try:
        yield made
    finally:
        made.close()


def child_of(pid: int) -> int | None:
    """The first child of a process, once it has executed something of its own."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and b"unshare" not in Path(f"/proc/{children[0]}/cmdline").read_bytes():
            return int(children[0])
    return None


def until(look: Callable[[], int | bool | None], problem: str, patience: float = 30.0) -> int:
    """Wait until ``look`` finds something and return it."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = look()
        if found:
            return int(found)
        time.sleep(0.02)
    raise AssertionError(problem)
