"""Runs of ``main_ppo`` for the whole session. They are started two at a time: each is a chain of imports in one process
after another and leaves half of two cores idle. The traced run and the untraced one share a pair, so that their times
can be compared."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if importlib.util.find_spec("vllm") is None:  # `make test` has no engine; `make e2e` makes the environment that has
    collect_ignore = ["test_main_ppo.py"]


def pytest_report_header() -> str | None:
    """Say why nothing is collected here in an environment without the engine."""
    return "tests/e2e: needs vLLM and veRL, run it with `make e2e`" if "collect_ignore" in globals() else None


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """``traced``, ``plain`` (no autotrace), ``base_tool`` (a BaseTool from YAML), ``legacy`` (the V0 trainer), and
    ``warm``, whose model is not sure of what it says."""
    from main_ppo import BASE_TOOL, FUNCTION_TOOL, MainPPO

    def run(name: str, *overrides: str, traced: bool = True) -> MainPPO:
        return MainPPO(name, tmp_path_factory.mktemp(name), overrides, traced)

    made = {
        "traced": run("traced", FUNCTION_TOOL),
        "plain": run("plain", FUNCTION_TOOL, traced=False),
        "base_tool": run("base_tool", BASE_TOOL),
        "legacy": run("legacy", FUNCTION_TOOL, "trainer.use_v1=False"),
        "warm": run("warm", FUNCTION_TOOL, "actor_rollout_ref.rollout.temperature=2.0"),
    }
    try:
        for pair in (("traced", "plain"), ("base_tool", "legacy"), ("warm",)):
            for name in pair:
                made[name].start()
            for name in pair:
                made[name].wait()
        yield made
    finally:
        for one in made.values():
            one.stop()
