"""``--redact-hook`` is looked up before the run: one that cannot be imported would clean nothing."""

from __future__ import annotations

from tests.places import Place


def test_a_redaction_hook_that_is_not_there_starts_nothing(place: Place) -> None:
    place.write("there/agent.py", "print('started')")
    place.write("there/clean.py", "def value(name, value): return value")
    for hook, said in (
        ("nomod.clean:value", "there is no module nomod.clean"),
        ("clean:values", "clean.py has no values"),
    ):
        code, refused = place.refusal(["python", "there/agent.py"], ["--redact-hook", hook])
        assert code == 2 and f"option --redact-hook: '{hook}'" in refused and said in refused
    assert not place.runs()
    assert place.record(["python", "there/agent.py"], ["--redact-hook", "clean:value"]).stdout == "started\n"
