"""A wrapper's own variables never meet the parameters of its original, whatever those are called."""

from __future__ import annotations

import asyncio
import builtins
import dis
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from autotrace.record import template
from autotrace.record.importlib_bootstrap import wrappers as text

from .conftest import Recorder

CODES = [value.__code__ for value in vars(text).values() if isinstance(value, FunctionType)]
SOURCES = {
    template.PLAIN: "def original({0}): return {0}",
    template.COROUTINE: "async def original({0}): return {0}",
    template.GENERATOR: "def original({0}):\n yield {0}\n yield {0}",
    template.ASYNC_GENERATOR: "async def original({0}):\n yield {0}\n yield {0}",
}


def _value(kind: str, result: Any) -> Any:
    async def last() -> Any:
        return [item async for item in result][-1]

    if kind == template.PLAIN:
        return result
    if kind == template.GENERATOR:
        return list(result)[-1]
    return asyncio.run(result if kind == template.COROUTINE else last())


def _original(kind: str, name: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(SOURCES[kind].format(name), scope)
    original: Callable[..., Any] = scope["original"]
    return original


@pytest.mark.parametrize("kind", SOURCES)
def test_a_parameter_may_have_any_name_of_the_wrappers_text(recorder: Recorder, kind: str) -> None:
    names = {name for code in CODES for name in (*code.co_varnames, *code.co_names)}
    for number, name in enumerate(sorted(names)):
        traced = recorder.wrap(_original(kind, name), key=f"{kind}.{number}")
        assert _value(kind, traced(7)) == 7
        assert _value(kind, traced(**{name: 8})) == 8


@pytest.mark.parametrize("kind", SOURCES)
def test_a_wrapper_has_no_names_but_its_own_and_builtins(kind: str) -> None:
    original: Any = _original(kind, "x")
    code = template.code_for(original, "key", managed=False, apart=False, guarded=False)
    assert set(code.co_varnames) - {"x"} == {name for name in code.co_varnames if name.startswith("_autotrace_")}
    loaded = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    assert all(hasattr(builtins, name) for name in loaded)


def test_a_new_variable_in_the_text_needs_no_list(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = template._TEXT.read_text().replace(
        "\n    call = None\n", "\n    call = None\n    brand_new = len('new')\n"
    )
    monkeypatch.setattr(template, "_TEXT", tmp_path / "text.py")
    template._TEXT.write_text(changed)
    for cache in (template._body, template._compiled):
        cache.cache_clear()
    try:
        for name in ("brand_new", "len"):
            traced = recorder.wrap(_original(template.PLAIN, name), key=name)
            assert traced(7) == 7
    finally:
        for cache in (template._body, template._compiled):
            cache.cache_clear()
