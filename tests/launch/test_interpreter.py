"""Another interpreter than ours may not have autotrace: that is said before the run, not found out after it."""

from __future__ import annotations

import subprocess
import sys

from autotrace.config.installation import again
from tests.places import Place
from tests.waiting import DEADLINE


def test_an_interpreter_without_autotrace_is_said_at_the_start(place: Place) -> None:
    bare = place.cwd / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=DEADLINE)
    place.write("script", f"#!{bare}/bin/python\nprint(1)\n", 0o755)
    for words in ([f"{bare}/bin/python", "-c", "print(1)"], ["./script"]):
        done = place.launch(words, ["--quiet"])
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert f"autotrace: warning: {bare}/bin/python has no autotrace, so this command is not traced" in done.stderr
        assert again(f"{bare}/bin/python") in done.stderr
    assert place.launch(["python", "-c", "print(1)"], ["--quiet"]).stderr == ""
