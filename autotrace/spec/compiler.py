"""Spec files -> one plan.

The shipped specs are compiled when the package is built; ``compiled.json`` beside the lists holds the targets. So
``autotrace-run`` without ``--spec`` parses no YAML::

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

_LISTS = Path(carried(SHIPPED, SHIPPED)).resolve()
COMPILED = "compiled.json"
"""File with the targets of the shipped specs, in their folder."""


class ShippedTargets(msgspec.Struct):
    """Content of ``compiled.json``."""

    digest: str
    """Digest of the specs and of the compiler, as ``_digest`` returned it when the file was written."""
    targets: tuple[Target, ...]


def shipped_specs() -> list[Path]:
    """The lists that come with autotrace, in the order of their names."""
    return sorted(_LISTS.glob("*.yaml"))


def compile_plan(
    files: Sequence[str | Path] = (),
    *,
    shipped: bool = True,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> Plan:
    """The plan of the shipped specs (unless ``shipped`` is false) and then ``files``, in order.

    An entry of a later file that names a target of an earlier file refines that target: the keys of the entry replace
    the earlier keys, the new names are tried first. Raises ``SpecError`` with every mistake in every file.
    """
    targets = _shipped_targets() if shipped else ()
    if files:
        from autotrace.spec.drafts import refined

        targets = refined(targets, [Path(file) for file in files])
    plan = Plan(targets, settings)
    return dataclasses.replace(plan, digest=hashlib.sha256(plan.dumps().encode()).hexdigest())


def write_shipped() -> None:
    """Write ``compiled.json``, unless the file is there and fits the lists. Raises ``OSError`` and ``SpecError``."""
    digest = _digest()
    if _read(digest) is None:
        text = msgspec.json.encode(ShippedTargets(digest, _compile_shipped()))
        temporary = _LISTS / f"{COMPILED}.{os.getpid()}"  # a start that reads meanwhile finds a whole file
        temporary.write_bytes(text)
        temporary.replace(_LISTS / COMPILED)


def _shipped_targets() -> tuple[Target, ...]:
    """The targets of the shipped specs, compiled now if somebody changed a list after the build."""
    found = _read(_digest())
    return _compile_shipped() if found is None else found


def _compile_shipped() -> tuple[Target, ...]:
    from autotrace.spec.drafts import refined

    return refined((), shipped_specs())


def _read(digest: str) -> tuple[Target, ...] | None:
    """The targets in ``compiled.json``; None where the file was built from other lists, or by another compiler."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        stored = msgspec.json.decode((_LISTS / COMPILED).read_bytes(), type=ShippedTargets)
        if stored.digest == digest:
            return stored.targets
    return None


def _digest() -> str:
    """Digest of everything that the targets are made from: the lists and the source text of the compiler."""
    sources = [*sorted(Path(__file__).parent.glob("*.py")), Path(plan_module.__file__)]
    digest = hashlib.sha256()
    for path in [*shipped_specs(), *sources]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


_IMPORTED_BY_MANY = ("httpx", "httpx2")


def watched_modules(plan: Plan) -> tuple[str, ...]:
    """Top-level names of modules, sorted: the processes that import none of them have nothing to record, and read no
    plan.

    Shipped specs of what many programs import and few ask models with (httpx, mcp) are of methods that are recorded
    inside of other calls alone. A process that imports nothing else of the plan has no such calls; in one that does
    they are bound then, also if they were imported before. (Not so functions, which ``from ... import`` copies.)
    """
    names = (name for target in plan.targets if not _can_wait(target) for name in target.names)
    return tuple(sorted({name.replace(":", ".").split(".", 1)[0] for name in names}))


def _can_wait(target: Target) -> bool:
    parts = [name.replace(":", ".").split(".") for name in target.names]
    is_method = all(len(part) > 2 and part[-2].lstrip("_")[:1].isupper() for part in parts)
    asks = target.role == "llm" and target.names[0].partition(".")[0] not in _IMPORTED_BY_MANY
    return target.inside and is_method and not asks and target.is_shipped
