"""Make the run for a process that ``autotrace-run`` did not start: ``python -m autotrace.launch.prepare``.

A separate process keeps YAML compilers out of the host (``bootstrap.prepare`` starts the process).
"""

from __future__ import annotations

import json
import os
import sys

from autotrace.config.installation import with_activation
from autotrace.config.stderr import complain
from autotrace.launch import run_setup
from autotrace.launch.command import Command
from autotrace.launch.option_types import OptionError
from autotrace.launch.options import Options
from autotrace.run.inherited import after, without_run


def main() -> None:
    """Read a request from stdin; write the variables of the new run, or the reason of the failure (JSON both)."""
    request = json.load(sys.stdin)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    if request["path"] is None:
        environ.pop("PYTHONPATH", None)
    else:
        environ["PYTHONPATH"] = request["path"]
    earlier, environ = without_run(environ)
    try:
        options = Options.from_settings(request["settings"])
        program = Command(tuple(request["command"]), sys.executable)
        run = run_setup.make(options, program, request["pid"], environ, request["folders"])
    except (OptionError, run_setup.RunSetupError) as error:
        json.dump({"error": str(error)}, sys.stdout)
        return
    if not options.quiet:
        complain(f"run folder {run.folder}{after(earlier)}")
    for line in run.complaints:
        complain(line)
    activation = {name: value for name, value in with_activation(environ).items() if environ.get(name) != value}
    json.dump({"variables": {**activation, **run.variables}}, sys.stdout)


if __name__ == "__main__":
    main()
