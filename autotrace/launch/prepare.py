"""``python -m autotrace.launch.prepare``: makes the run for a process that was activated by the environment alone.

A process of its own, so that the host never imports a compiler of YAML (``bootstrap.prepare`` starts it).
"""

from __future__ import annotations

import json
import os
import sys

from autotrace.config import exit_codes
from autotrace.config.stderr import complain
from autotrace.launch import run_setup
from autotrace.launch.option_types import OptionError
from autotrace.launch.options import Options
from autotrace.run.inherited import after, without_run


def main() -> int:
    """``python -m autotrace.launch.prepare``: reads a request, makes the run, writes the variables (JSON both)."""
    request = json.load(sys.stdin)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    if request["path"] is None:
        environ.pop("PYTHONPATH", None)
    else:
        environ["PYTHONPATH"] = request["path"]
    earlier, environ = without_run(environ)
    try:
        options = Options.from_environment()
        run = run_setup.make(options, request["command"], request["pid"], environ)
    except (OptionError, run_setup.RunSetupError) as error:
        complain(f"{error}\nautotrace: the program runs without tracing")
        return exit_codes.USAGE
    if not options.quiet:
        complain(f"run folder {run.folder}{after(earlier)}")
    json.dump(dict(run.variables), sys.stdout)
    return exit_codes.OK


if __name__ == "__main__":
    sys.exit(main())
