"""The registry names adapters that exist, and what of a library is never wrapped."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from autotrace.adapters import registry
from autotrace.patch import adapting
from tests.waiting import DEADLINE


@pytest.mark.parametrize("adapter", registry.ADAPTERS.values())
def test_an_adapter_has_an_install_that_takes_nothing(adapter: str) -> None:
    install = importlib.import_module(adapter).install
    assert callable(install) and getattr(install, "__wrapped__", install).__code__.co_argcount == 0


def test_the_engine_loads_no_adapter_by_itself() -> None:
    code = "import sys, autotrace.patch.engine; print(*[name for name in sys.modules if '.adapters' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("module", "function", "endless"),
    [
        ("vllm.v1.engine.core", "run_engine_core", True),
        ("vllm.v1.executor.multiproc_executor:WorkerProc", "worker_main", True),
        ("sglang.srt.managers.scheduler", "event_loop_overlap", True),
        ("sglang.srt.managers.scheduler", "run_scheduler_process", True),
        ("sglang.srt.managers.scheduler", "run_batch", False),
        ("my.agents", "worker_main", False),
        ("vllm_of_mine", "worker_main", False),
    ],
)
def test_entry_points_of_processes_and_endless_loops(module: str, function: str, endless: bool) -> None:
    assert registry.is_endless(module, function) is endless


def test_rules_are_asked_in_turn_and_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "_refusals", [])
    monkeypatch.setattr(adapting, "_classes", [])

    def refuses(value: object, owner: object, attribute: str) -> str | None:
        return "not this one" if attribute == "forward" else None

    def behind(value: object) -> type | None:
        return int if value == "an actor class" else None

    for _ in range(2):
        adapting.add(refusal=refuses, class_behind=behind)
    assert adapting._refusals == [refuses] and adapting._classes == [behind]
    assert adapting.refusal(None, None, "forward") == "not this one"
    assert adapting.refusal(None, None, "run") is None
    assert adapting.class_behind("an actor class") is int and adapting.class_behind("x") == "x"


def test_what_stood_in_builtins_is_never_freed(tmp_path: Path) -> None:
    """``torch._dynamo`` knows builtins by ``id()``: with the ``id()`` of a freed one, a function is taken for it."""
    code = (
        "import builtins, gc, weakref\n"
        "from autotrace.adapters import registry\n"
        "from autotrace.config.plan import Plan, Settings, Target\n"
        "from autotrace.patch import engine, program_hooks\n"
        "plan = Plan((Target('all', ('json.**',)),), Settings(), 'digest')\n"
        f"registry.start(plan, {str(tmp_path)!r}, 'run-1')\n"
        "program_hooks.hook_compile()\n"
        "stood = [weakref.ref(builtins.__build_class__), weakref.ref(builtins.compile)]\n"
        "engine.stop()\n"
        "gc.collect()\n"
        "print([one() is not None and one() not in vars(builtins).values() for one in stood])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert done.stdout == "[True, True]\n", done.stderr
