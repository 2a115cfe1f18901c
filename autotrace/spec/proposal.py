"""Find agents, tools, rewards and model calls in a program's source text.

The proposals are guesses for a person to read, from names, base classes, decorators and argument names. Nothing is
imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from autotrace.spec import syntax
from autotrace.spec.sources import SOURCES

MOST_FILES = 500
"""Limit the files that are read in a folder."""
_SKIPPED = frozenset({"tests", "test", "docs", "build", "dist", "node_modules", "site-packages", "__pycache__"})
_RUNS = frozenset({"solve", "run", "rollout", "run_episode", "arun", "asolve", "play", "run_agent", "solve_task"})
_SOLVES = re.compile(r"^a?(solve|rollout|run_(agent|episode|rollout|task))(_.*)?$")
"""Matches methods that are a rollout in a class of any name. In an agent's class each matching method is a rollout."""
_AGENT = re.compile(r"(Agent|AgentLoop|Solver|Rollout|Episode|Player)[A-Za-z]*$")
_TOOL = re.compile(r"(Tool|ToolBox|Toolbox|Toolset)s?$")
_TOOL_METHODS = ("execute", "call_tool", "call", "run", "forward", "__call__", "invoke")
_REWARD = re.compile(r"(^|_)(reward|rewards|score|grade|compute_score)(_|$)")
_MODEL = re.compile(r"^(LLM|.*(LLM|Llm|ChatModel|ModelClient|LanguageModel))$")
_MODEL_METHODS = ("generate", "__call__", "chat", "complete", "invoke", "ask", "agenerate", "achat", "acomplete")
_TABLE_OF_TOOLS = re.compile(r"(^|_)tools?($|_)", re.IGNORECASE)
_DECORATORS = {"tool": {"tool", "function_tool", "tool_plain"}, "reward": {"reward", "metric", "scorer"}}
_BY_NAME = {
    "trajectory": re.compile(r"^(a?run_(agent|episode|rollout|task)|a?rollout|a?episode|solve(_.*)?|rollout_func)$"),
    "tool": re.compile(r"^(call|execute|run|use|invoke)_tool$"),
    "llm": re.compile(r"^(ask|ask_model|chat|complete|query_model|call_(llm|model)|generate_(text|response|answer))$"),
}
_CLIENTS = ("completions.create", "responses.create", "messages.create", "litellm.completion", "litellm.acompletion")
_IDENTITY = {
    "step": ("step", "global_step", "global_steps"),
    "sample_index": ("sample_index", "index", "idx", "task_id", "question_id"),
    "rollout_n": ("rollout_n", "attempt", "rollout", "sample_n"),
    "uid": ("uid", "group_id"),
}


@dataclass(frozen=True)
class Proposal:
    """Describes a target that may be worth a line in a spec."""

    target: str
    role: str
    why: str
    """Names the evidence in the source text."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Maps a trajectory's attributes to paths, where an argument's name tells the path."""


COVERED = "covered"
"""Marks a class that a shipped spec already traces through a base class."""


def of_program(path: Path, covered: AbstractSet[tuple[str, str]] = frozenset()) -> list[Proposal]:
    """Find the proposals in ``path``, a file or a folder of modules; a repeated name counts once.

    ``covered`` holds pairs of a library and a base class whose overrides are traced anyway. Raises ``OSError``.
    """
    proposals: dict[str, Proposal] = {}
    for file, module in _modules(path):
        try:
            tree = syntax.parsed(file.read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            continue
        for proposal in _of_module(tree, module, covered):
            proposals.setdefault(proposal.target, proposal)
    return list(proposals.values())


def _modules(path: Path) -> Iterator[tuple[Path, str]]:
    if not path.is_dir():
        yield path, path.stem
        return
    base = folder_of(path)
    files = sorted(path.resolve().rglob("*.py"))
    wanted = [file for file in files if not any(_is_skipped(part) for part in file.relative_to(base).parts[:-1])]
    for file in wanted[:MOST_FILES]:
        words = file.relative_to(base).with_suffix("").parts
        words = words[:-1] if words[-1] == "__init__" else words
        words = words[1:] if words[:1] == (SOURCES,) and not (base / SOURCES / "__init__.py").exists() else words
        if words and all(word.isidentifier() for word in words) and not words[-1].startswith("test_"):
            yield file, ".".join(words)


def folder_of(path: Path) -> Path:
    """Return the folder in which the names of ``path``'s modules begin."""
    path = path.resolve()
    return path if path.is_dir() and not (path / "__init__.py").exists() else path.parent


def _is_skipped(name: str) -> bool:
    return name in _SKIPPED or name.startswith(".") or name.endswith(".egg-info")


def _of_module(tree: ast.Module, module: str, covered: AbstractSet[tuple[str, str]]) -> Iterator[Proposal]:
    libraries = _libraries(tree)
    held = _in_tables(tree)
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = ("tool", f"in {held[statement.name]}") if statement.name in held else _function(statement)
            if found is not None:
                role, why = found
                yield Proposal(f"{module}.{statement.name}", role, why, _identity(statement, role))
        elif isinstance(statement, ast.ClassDef):
            bases = [
                (libraries.get(syntax.dotted(one).partition(".")[0], ""), syntax.last_word(one))
                for one in statement.bases
            ]
            base = next((name for library, name in bases if (library, name) in covered), None)
            if base is None:
                yield from _class(statement, module)
            else:
                yield Proposal(f"{module}.{statement.name}", COVERED, base)


def _libraries(tree: ast.Module) -> dict[str, str]:
    """Map the names that the module imports to the library of each name."""
    imported: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            imported |= {one.asname or one.name: statement.module.partition(".")[0] for one in statement.names}
        elif isinstance(statement, ast.Import):
            tops = [(one.asname or one.name.partition(".")[0], one.name.partition(".")[0]) for one in statement.names]
            imported |= dict(tops)
    return imported


def _in_tables(tree: ast.Module) -> dict[str, str]:
    """Find the module's functions that are values of a dict or items of a list called ``TOOLS`` or similar."""
    held: dict[str, str] = {}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        called = next((one.id for one in targets if isinstance(one, ast.Name) and _TABLE_OF_TOOLS.search(one.id)), None)
        if called is not None and isinstance(value, (ast.Dict, ast.List, ast.Tuple)):
            items = value.values if isinstance(value, ast.Dict) else value.elts
            held |= {item.id: called for item in items if isinstance(item, ast.Name)}
    return held


def _function(function: syntax.Function) -> tuple[str, str] | None:
    """Return the function's role and the evidence."""
    name, decorators = function.name, {syntax.last_word(item) for item in function.decorator_list}
    for role, words in _DECORATORS.items():
        if decorators & words:
            return role, f"decorated as a {role}"
    if _REWARD.search(name):
        return "reward", "its name"
    if name.startswith("_"):
        return None
    role = next((role for role, pattern in _BY_NAME.items() if pattern.match(name)), "")
    if role:
        return role, "its name"
    return ("llm", "it asks a model") if _asks_a_model(function) else None


def _class(cls: ast.ClassDef, module: str) -> Iterator[Proposal]:
    # the last definition of a name counts
    methods = {one.name: one for one in cls.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    bases = [syntax.last_word(base) for base in cls.bases]
    is_agent, is_tool, is_model = (any(map(kind.search, (cls.name, *bases))) for kind in (_AGENT, _TOOL, _MODEL))
    if is_agent:
        first = next((name for name in methods if name in _RUNS), None)
        runs = [name for name in methods if name == first or _SOLVES.match(name)]
        why = "an agent by its name" if _AGENT.search(cls.name) else f"inherits from {', '.join(bases)}"
    else:
        runs, why = [] if is_tool else [name for name in methods if _SOLVES.match(name)], "its name"
        role, what, called = ("tool", "a tool", _TOOL_METHODS) if is_tool else ("llm", "a model", _MODEL_METHODS)
        name = next((name for name in called if name in methods), None) if is_tool or is_model else None
        if name is not None:
            yield Proposal(f"{module}.{cls.name}.{name}", role, f"{what} by its name or base class")
            runs = [run for run in runs if run != name]
    for name in runs:
        yield Proposal(f"{module}.{cls.name}.{name}", "trajectory", why, _identity(methods[name], "trajectory"))
    for name, method in methods.items():
        found = None if name in _RUNS or name in runs else _function(method)
        if found is not None and found[0] != "trajectory":
            yield Proposal(f"{module}.{cls.name}.{name}", *found)


def _asks_a_model(function: syntax.Function) -> bool:
    called = (syntax.dotted(node.func) for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(name.endswith(_CLIENTS) for name in called)


def _identity(function: syntax.Function, role: str) -> tuple[tuple[str, str], ...]:
    if role != "trajectory":
        return ()
    given = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    paths = {name: next((word for word in words if word in given), None) for name, words in _IDENTITY.items()}
    return tuple((name, path) for name, path in paths.items() if path is not None)
