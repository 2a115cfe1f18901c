"""Compile spec files into one plan.

The build of the package compiles the shipped specs and writes the targets into ``compiled.json`` beside the specs.
``autotrace-run`` without ``--spec`` therefore parses no YAML::

    plan = compile_plan(["mine.yaml"], settings=Settings(content="text"))
    plan.targets[-1].names      # the last entry of mine.yaml
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from autotrace.config import plan as plan_module
from autotrace.config.installation import carried
from autotrace.config.plan import SHIPPED, Plan, Settings, Target
from autotrace.run.files import named

_LISTS = Path(carried(SHIPPED, SHIPPED)).resolve()
COMPILED = "compiled.json"
"""Names the file with the targets of the shipped specs, in the folder of the specs."""


class ShippedTargets(msgspec.Struct):
    """Holds the content of ``compiled.json``."""

    digest: str
    """States the digest of the specs and the compiler, as ``_digest`` returned the digest when the file was written."""
    targets: tuple[Target, ...]


def shipped_specs() -> list[Path]:
    """Return the specs that come with autotrace, in the order of their names."""
    return sorted(_LISTS.glob("*.yaml"))


def compile_plan(
    files: Sequence[str | Path] = (),
    *,
    shipped: bool = True,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> Plan:
    """Compile the shipped specs (unless ``shipped`` is false) and then ``files``, in order.

    An entry of a later file that names a target of an earlier file refines that target: the keys of the entry replace
    the earlier keys, and the new names are tried first. Raises ``SpecError`` with every mistake in every file.
    """
    targets = _shipped_targets() if shipped else ()
    if files:
        from autotrace.spec.drafts import refined

        targets = refined(targets, [Path(file) for file in files])
    plan = Plan(targets, settings)
    return dataclasses.replace(plan, digest=hashlib.sha256(plan.dumps().encode()).hexdigest())


def without_entry(files: Sequence[str | Path]) -> list[str]:
    """Return a sentence for each of ``files`` that names no target: such a spec has comments alone, or ``[]``."""
    texts = {file: named(file).decode() for file in files}
    return [
        f"{file}: this spec has no entry; write a line such as `- my_project.agents.Agent.run`"
        for file, text in texts.items()
        if {line.partition("#")[0].strip() for line in text.splitlines()} <= {"", "[]", "---"}
    ]


def write_shipped() -> None:
    """Write ``compiled.json``, unless the file exists and fits the specs. Raises ``OSError`` and ``SpecError``."""
    digest = _digest()
    if _read(digest) is None:
        text = msgspec.json.encode(ShippedTargets(digest, _compile_shipped()))
        temporary = _LISTS / f"{COMPILED}.{os.getpid()}"  # a start that reads meanwhile finds a whole file
        temporary.write_bytes(text)
        temporary.replace(_LISTS / COMPILED)


def _shipped_targets() -> tuple[Target, ...]:
    """Return the targets of the shipped specs. Compile the specs if somebody changed a spec after the build."""
    found = _read(_digest())
    return _compile_shipped() if found is None else found


def _compile_shipped() -> tuple[Target, ...]:
    from autotrace.spec.drafts import refined

    return refined((), shipped_specs())


def _read(digest: str) -> tuple[Target, ...] | None:
    """Read the targets in ``compiled.json``; None if the file was built from other specs, or by another compiler."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        stored = msgspec.json.decode((_LISTS / COMPILED).read_bytes(), type=ShippedTargets)
        if stored.digest == digest:
            return stored.targets
    return None


def _digest() -> str:
    """Compute the digest of everything that determines the targets: the specs and the source text of the compiler."""
    sources = [*sorted(Path(__file__).parent.glob("*.py")), Path(plan_module.__file__)]
    digest = hashlib.sha256()
    for path in [*shipped_specs(), *sources]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


_IMPORTED_BY_MANY = ("httpx", "httpx2")


def watched_modules(plan: Plan) -> tuple[str, ...]:
    """Return the top-level names of modules that can lead to a target, sorted.

    A process that imports none of the modules has nothing to record and reads no plan.

    Many programs import httpx and mcp, but few call models through httpx or mcp. The shipped specs for such libraries
    name methods that are recorded only inside other calls. A process that imports nothing else of the plan has no such
    calls. In a process that does, the methods are bound at that time, even if their library was imported before.
    (Functions cannot wait like this, because ``from ... import`` copies a function.)
    """
    names = (name for target in plan.targets if not _can_wait(target) for name in target.names)
    return tuple(sorted({name.replace(":", ".").split(".", 1)[0] for name in names}))


def _can_wait(target: Target) -> bool:
    parts = [name.replace(":", ".").split(".") for name in target.names]
    is_method = all(len(part) > 2 and part[-2].lstrip("_")[:1].isupper() for part in parts)
    asks = target.role == "llm" and target.names[0].partition(".")[0] not in _IMPORTED_BY_MANY
    return target.inside and is_method and not asks and target.is_shipped
