"""``make bench``: every scenario, every peer, one run.

    python benchmarks/run.py [--short] [--json FILE [--add]] [--results] [--only small,llm,...] [--against CHECKOUT]

``--short`` (CI) measures fewer things for less time and fails on ratios within the run, never on a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import before, report  # noqa: E402
from benchmarks.bench import Bench  # noqa: E402
from benchmarks.budgets import Results, failures  # noqa: E402
from benchmarks.scenarios import SCENARIOS, SHORT  # noqa: E402

_EMPTY: Results = {"missing": {}, "machine": {"speeds": []}, "results": {}}


def main() -> int:
    """Exit code 1: a ratio of the short form is beyond its limit."""
    parser = argparse.ArgumentParser(description="What tracing costs, beside the peers.")
    parser.add_argument("--short", action="store_true", help="a few minutes, for CI; fails on ratios")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured here")
    parser.add_argument("--add", action="store_true", help="keep what FILE holds of other scenarios (a run in parts)")
    parser.add_argument("--results", action="store_true", help="write benchmarks/RESULTS.md")
    parser.add_argument("--only", help=f"some of {', '.join(SCENARIOS)}")
    parser.add_argument("--against", type=before.named, default=before.HISTORY, metavar="CHECKOUT", help=before.HELP)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(SHORT if options.short else SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"there is no scenario {unknown[0]!r}; choose from {', '.join(SCENARIOS)}")
    earlier = json.loads(options.json.read_text()) if options.add and options.json.exists() else _EMPTY
    bench = Bench(options.short, against=options.against)
    bench.missing = dict(earlier["missing"])
    bench.speeds = list(earlier["machine"]["speeds"])
    results: Results = dict(earlier["results"])

    def anew(name: str) -> Results:
        print(f"{name}: beyond a ratio, measured again", file=sys.stderr, flush=True)
        bench.missing.clear()  # what did not start may start now
        return SCENARIOS[name](bench)

    try:
        for name in names:
            began = time.monotonic()
            results[name] = SCENARIOS[name](bench)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            about = report.machine(bench.speeds)
            if options.json:
                whole = {"machine": about, "results": results, "missing": bench.missing}
                options.json.write_text(json.dumps(whole, indent=1))
        results = {name: results[name] for name in SCENARIOS if name in results}
        report.show(results, about, bench.missing)
        if options.results:
            text = report.markdown(results, about, bench.missing, "make bench", earlier is not _EMPTY)
            (ROOT / "benchmarks" / "RESULTS.md").write_text(text)
        beyond = failures({name: results[name] for name in names}, anew) if options.short else []
    finally:
        bench.close()
    for line in beyond:
        print(f"beyond its ratio: {line}", file=sys.stderr)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
