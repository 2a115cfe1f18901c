"""``autotrace doctor``: whether tracing can work from here, and what to change."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from autotrace.config.installation import again
from autotrace.launch.checks import activates
from tests.cases import some
from tests.cli.conftest import Call
from tests.places import Place, installation, place  # noqa: F401 - fixtures


def findings(output: str) -> dict[str, str]:
    """Subject -> its line."""
    lines = [line for line in output.splitlines() if line[:4] in ("ok  ", "note", "warn", "FAIL")]
    return {line[6:18].strip(): line for line in lines}


def test_a_healthy_place(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTRACE_BACKEND", "jsonl")
    monkeypatch.setenv("AUTOTRACE_TRACKING_URI", "http://u:hush@host")
    monkeypatch.setenv("AUTOTRACE_TOKEN", "hush")
    output = call("doctor", "--python", sys.executable).output
    found = findings(output)

    assert f"python {sys.version.split()[0]}" in found["versions"]
    assert "verl.yaml" in found["specs"]
    assert "hush" not in output
    assert "The newest run:" in output and run.name in output


def test_an_environment_that_is_not_activated_is_no_failure(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTRACE_BACKEND", "jsonl")
    monkeypatch.setenv("AUTOTRACE_SAMPLE_RAET", "0.5")
    monkeypatch.setattr("shutil.which", lambda name: f"{sys.base_prefix}/bin/python3")
    done = call("doctor")
    said = [line for line in done.output.splitlines() if line[6:].startswith("activation")]
    assert done.exit_code == 0 and said[0].startswith(f"ok    activation  {sys.executable} loads the agent")
    assert "has no autotrace: activate this environment, or start" in said[1] and said[1].startswith("note")
    assert "warn  environment there is no variable AUTOTRACE_SAMPLE_RAET; did you mean" in done.output
    assert "AUTOTRACE_SAMPLE_RAET=" not in done.output, "it is not among those that are ok"


def test_an_installed_interpreter_activates_and_a_bare_one_does_not(place: Place) -> None:  # noqa: F811
    assert activates(place.python, os.environ) is True
    assert activates(f"{sys.base_prefix}/bin/python3", os.environ) is False
    assert activates("/no/such/python", os.environ) is None


def test_the_other_project_of_our_name_is_a_failure(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTRACE_BACKEND", "jsonl")
    other = tmp_path / "packages" / "autotrace-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: autotrace\nVersion: 0.0.1\n")
    assert "another project" not in call("doctor").output
    monkeypatch.syspath_prepend(other.parent)
    result = call("doctor")
    assert result.exit_code == 1
    assert f"the distribution autotrace 0.0.1 in {other.parent} is another project" in result.output
    assert f"pip uninstall autotrace, then {again()}" in result.output


WRONG = (
    ("AUTOTRACE_BACKEND", "jaeger", "options", "there is no backend 'jaeger'"),
    ("AUTOTRACE_SPECS", "absent.yaml", "specs", "absent.yaml"),
    ("AUTOTRACE_TRACKING_URI", "./mlruns", "backends", "sqlite:"),
    ("AUTOTRACE_TRACKING_URI", "http://127.0.0.1:9", "mlflow", "does not answer"),
    ("AUTOTRACE_TRACKING_URI", "http://u:hush@127.0.0.1:9", "mlflow", "Connection refused"),
    ("AUTOTRACE_TRACKING_URI", "http://u:hush@host:notaport", "backends", "the port is not a number"),
)


@pytest.mark.parametrize(("name", "value", "subject", "said"), some(WRONG, *WRONG[:4]))
def test_what_is_wrong_fails_with_the_remedy(
    call: Call, monkeypatch: pytest.MonkeyPatch, name: str, value: str, subject: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    found = call("doctor")
    assert found.exit_code == 1
    assert findings(found.output)[subject].startswith("FAIL")
    assert said in findings(found.output)[subject]
    assert "hush" not in found.output
