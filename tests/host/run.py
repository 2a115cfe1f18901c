"""A package's own test suite, without and with every public function of the package wrapped: the same tests pass.

    python -m tests.host.run [NAME[==VERSION] ...] [--folder .host-suites] [--python PYTHON] [-- pytest arguments]

For each package an environment is made below the folder; its source distribution is downloaded and unpacked there.
Exit code: the number of packages with a difference that the table in ``suites.py`` does not explain, with one that it
explains and that does not occur, or with a failure of autotrace's own.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from .recorded import recorded
from .suites import EACH_KIND, SUITES, Suite

ROOT = Path(__file__).parents[2]
LIMIT = 1800
"""Seconds for one run of a suite."""


@dataclasses.dataclass
class Outcome:
    """One run of a suite."""

    tests: dict[str, str]
    """Test -> passed | failed | error | skipped."""
    seconds: float
    tail: str


def prepared(suite: Suite, folder: Path, python: str) -> tuple[Path, Path]:
    """The interpreter of an environment with the package and autotrace, and the unpacked source distribution."""
    home = folder / f"{suite.package}-{suite.version or 'latest'}"
    interpreter = home / "venv" / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", str(home / "venv")], check=True)
    pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "-q"]
    wanted = f"{suite.package}=={suite.version}" if suite.version else suite.package
    if not list(home.glob("source/*")):
        subprocess.run(
            [*pip, "download", "--no-deps", "--no-binary", suite.package, "-d", str(home), wanted], check=True
        )
        archive = next(path for path in home.iterdir() if path.name.endswith((".tar.gz", ".zip")))
        shutil.unpack_archive(archive, home / "source", **({"filter": "data"} if _filters(archive) else {}))
        source = next((home / "source").iterdir())
        subprocess.run([*pip, "install", str(source), *(suite.needs or _extras(source))], check=True)
    # the tree as it is now; the wheel brings its .pth file along
    subprocess.run([*pip, "install", str(ROOT)], check=True)
    subprocess.run([*pip, "install", "--force-reinstall", "--no-deps", str(ROOT)], check=True)
    return interpreter, next((home / "source").iterdir())


def _filters(archive: Path) -> bool:
    return archive.name.endswith(".tar.gz") and hasattr(tarfile, "data_filter")


def _extras(source: Path) -> list[str]:
    return ["pytest", *(f"{source}[{extra}]" for extra in ("test", "tests", "testing", "dev"))]


def run(suite: Suite, interpreter: Path, source: Path, folder: Path | None, extra: list[str]) -> Outcome:
    """Run the suite once; ``folder``: with autotrace, whose run folder goes there."""
    report = source.parent.parent / ("traced.xml" if folder else "bare.xml")
    report.unlink(missing_ok=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    environ |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("PYTHONPATH", None)
    if folder is not None:
        spec = folder / "spec.yaml"
        exclude = "".join(f"    - {name!r}\n" for name in suite.exclude)
        capture = "" if suite.contents else "  capture: {include: []}\n"
        spec.write_text(f"- target: {suite.imported}.**\n{capture}" + (f"  exclude:\n{exclude}" if exclude else ""))
        environ |= {
            "AUTOTRACE": "1", "AUTOTRACE_BACKEND": "jsonl", "AUTOTRACE_SPECS": str(spec),
            "AUTOTRACE_RUN_DIR": str(folder), "AUTOTRACE_DRAIN_TIMEOUT": "0", "AUTOTRACE_QUIET": "1",
            "AUTOTRACE_KEEP_SPOOL": "1",
        }  # fmt: skip
    command = [
        str(interpreter),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        *suite.arguments,
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *extra], cwd=source, env=environ, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome({}, LIMIT, f"not finished after {LIMIT} s: {' '.join(command)}")
    seconds = time.monotonic() - began
    return Outcome(_outcomes(report), seconds, (done.stdout + done.stderr)[-3000:])


def _outcomes(report: Path) -> dict[str, str]:
    if not report.exists():
        return {}
    found: dict[str, str] = {}
    names: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        names[name] += 1
        states = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[name if names[name] == 1 else f"{name} #{names[name]}"] = states[0] if states else "passed"
    return found


def compare(suite: Suite, folder: Path, python: str, extra: list[str]) -> bool:
    """Run both, print what there is to say. True: nothing unexplained differs."""
    interpreter, source = prepared(suite, folder, python)
    bare = run(suite, interpreter, source, None, extra)
    runs = source.parent.parent / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir()
    traced = run(suite, interpreter, source, runs, extra)
    if "passed" not in bare.tests.values() or not traced.tests:
        print(f"{suite.package}: no test passed\n{traced.tail if bare.tests else bare.tail}", flush=True)
        return False
    differing = _differing(bare, traced)
    if differing:  # a test that fails now and then is no difference
        again = run(suite, interpreter, source, None, extra), run(suite, interpreter, source, runs, extra)
        differing = [name for name in differing if name in _differing(*again)]
    explained = {name: why for name in differing for part, why in suite.differs if part in name}
    counts = Counter(traced.tests.values())
    print(
        f"{suite.package} {suite.version}: {len(traced.tests)} tests, "
        + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        + f"; {bare.seconds:.1f} s without, {traced.seconds:.1f} s with ({traced.seconds / bare.seconds:.2f} x)"
    )
    seen = recorded(runs)
    print(f"  {seen}")
    for name in differing:
        left, right = bare.tests.get(name, "absent"), traced.tests.get(name, "absent")
        print(
            f"  {name}: {left} without, {right} with{'; ' + explained[name] if name in explained else ''}", flush=True
        )
    if not differing:
        print("  no test differs", flush=True)
    stale = [part for part, _ in suite.differs if not any(part in name for name in explained)] if not extra else []
    for part in stale:
        print(f"  {part} differs no longer: remove it from tests/host/suites.py", flush=True)
    return len(explained) == len(differing) and not stale and seen.spans > 0 and not seen.faults


def _differing(left: Outcome, right: Outcome) -> list[str]:
    names = {**left.tests, **right.tests}
    return [name for name in names if left.tests.get(name) != right.tests.get(name)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.host.run", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="NAME[==VERSION]")
    parser.add_argument("--folder", type=Path, default=Path(".host-suites"))
    parser.add_argument("--python", default=sys.executable)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored in a background job: some tests send it to themselves
    known = {suite.package: suite for suite in SUITES}
    failed = 0
    for name in options.packages or EACH_KIND:
        package, _, version = name.partition("==")
        suite = known.get(package, Suite(package, version))
        if version:
            suite = dataclasses.replace(suite, version=version)
        failed += not compare(suite, options.folder.resolve(), options.python, arguments[cut + 1 :])
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
