"""Find agents, tools, rewards and model calls in a program's source text.

The proposals are guesses for a person to read, from names, base classes, decorators and argument names. Nothing is
imported.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from autotrace.run.files import named
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
_TOOLS = re.compile(r"(^|[._])tools?($|[._])", re.IGNORECASE)
"""Matches names of tables of tools, and of modules and methods that are about tools."""
_NO_TOOL = re.compile(r"model|llm|client|policy|token|pars|env|log|conf|lock|queue|memory|history|prompt", re.I)
"""Matches attributes of an agent that hold something else."""
_REGISTERS = re.compile(r"^(add|append|extend|register)(_|$)")
_DECORATORS = {"tool": {"tool", "function_tool", "tool_plain"}, "reward": {"reward", "metric", "scorer"}}
_BY_NAME = {
    "trajectory": re.compile(r"^(a?run_(agent|episode|rollout|task)|a?rollout|a?episode|solve(_.*)?|rollout_func)$"),
    "tool": re.compile(r"^(call|execute|run|use|invoke)_tool$"),
    "llm": re.compile(r"^(ask|ask_model|chat|complete|query_model|call_(llm|model)|generate_(text|response|answer))$"),
}
_CLIENTS = ("completions.create", "responses.create", "messages.create", "litellm.completion", "litellm.acompletion")
_IDENTITY = {
    "step": ("step", "global_step", "global_steps"),
    "sample_index": ("sample_index", "index", "idx", "task_id", "question_id"),  # or a part of an argument: `task.id`
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
    """Maps a trajectory's attributes to paths, where an argument's name or use tells the path."""
    reward: str = ""
    """Gives the path of the reward, where a ``return`` tells the path."""


COVERED = "covered"
"""Marks a class that a shipped spec already traces through a base class."""


def of_program(path: Path, covered: AbstractSet[tuple[str, str]] = frozenset()) -> list[Proposal]:
    """Find the proposals in ``path``, a file or a folder of modules; a repeated name counts once.

    ``covered`` holds pairs of a library and a base class whose overrides are traced anyway. Raises ``OSError``.
    """
    proposals: dict[str, Proposal] = {}
    held: dict[str, str] = {}
    for tree, _ in _trees(path):  # read twice: all trees of a large program would not fit in memory
        held |= _held(tree)
    for tree, module in _trees(path):
        for proposal in _of_module(tree, module, covered, held):
            proposals.setdefault(proposal.target, proposal)
    return list(proposals.values())


def _trees(path: Path) -> Iterator[tuple[ast.Module, str]]:
    unreadable = (OSError,) if path.is_dir() else ()  # a program may have broken links
    for file, module in _modules(path):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, *unreadable):
            yield syntax.parsed(named(file)), module


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


def _of_module(
    tree: ast.Module, module: str, covered: AbstractSet[tuple[str, str]], held: Mapping[str, str]
) -> Iterator[Proposal]:
    libraries = _libraries(tree)
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = ("tool", held[statement.name]) if statement.name in held else _function(statement)
            if found is not None:
                yield _proposal(f"{module}.{statement.name}", statement, *found)
        elif isinstance(statement, ast.ClassDef):
            bases = [
                (libraries.get(syntax.dotted(one).partition(".")[0], ""), syntax.last_word(one))
                for one in statement.bases
            ]
            base = next((name for library, name in bases if (library, name) in covered), None)
            if base is None:
                yield from _class(statement, module, held.get(f"{statement.name}()", held.get(statement.name, "")))
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


def _held(tree: ast.Module) -> dict[str, str]:
    """Find functions and classes in a table of tools, or in an attribute of an agent; ``X()`` names an instance of X.

    Returns the evidence by name.
    """
    held: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = syntax.dotted(node.func)
            if _REGISTERS.match(called.rpartition(".")[2]) and _TOOLS.search(called):
                held |= _items(node.args, f"registered by `{called}`")
            for given in node.keywords:
                if given.arg and _TOOLS.search(given.arg):
                    held |= _items([given.value], f"in `{given.arg}=`")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            called = next((word for word in map(syntax.dotted, targets) if _TOOLS.search(word)), "")
            held |= _items([node.value], f"in `{called}`") if called else {}
        elif isinstance(node, ast.ClassDef) and _AGENT.search(node.name):
            made = [one for one in ast.walk(node) if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)]
            for one in made:
                name = syntax.dotted(one.targets[0])
                if name.startswith("self.") and not _NO_TOOL.search(f"{name} {syntax.dotted(one.value)}"):
                    held = _items([one.value], f"`{name}` of {node.name}") | held
    return held


def _items(values: Sequence[ast.expr | None], why: str) -> dict[str, str]:
    """Name what stands in ``values`` and in dicts, lists, tuples and sets there; ``why`` is the value of each name."""
    names: dict[str, str] = {}
    for value in values:
        if isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.Set)):
            names |= _items(value.values if isinstance(value, ast.Dict) else value.elts, why)
        elif isinstance(value, (ast.Name, ast.Attribute, ast.Call)):
            names[syntax.last_word(value) + "()" * isinstance(value, ast.Call)] = why
    return names


def _function(function: syntax.Function) -> tuple[str, str] | None:
    """Return the function's role and the evidence."""
    name, decorators = function.name, {syntax.last_word(item) for item in function.decorator_list}
    for role, words in _DECORATORS.items():
        if decorators & words:
            return role, f"decorated as a {role}"
    if _is_registered(function):
        return "tool", "registered as a tool"
    if _REWARD.search(name):
        return "reward", "its name"
    if name.startswith("_"):
        return None
    role = next((role for role, pattern in _BY_NAME.items() if pattern.match(name)), "")
    if role:
        return role, "its name"
    return ("llm", "it asks a model") if _asks_a_model(function) else None


def _is_registered(definition: syntax.Function | ast.ClassDef) -> bool:
    """Return whether a decorator such as ``@register_tool`` or ``@tools.register("search")`` stands there."""
    words = map(syntax.dotted, definition.decorator_list)
    return any(_TOOLS.search(word) and _REGISTERS.match(word.rpartition(".")[2]) for word in words)


def _class(cls: ast.ClassDef, module: str, held: str) -> Iterator[Proposal]:
    # the last definition of a name counts
    methods = {one.name: one for one in cls.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    bases = [syntax.last_word(base) for base in cls.bases]
    is_agent, is_tool, is_model = (any(map(kind.search, (cls.name, *bases))) for kind in (_AGENT, _TOOL, _MODEL))
    is_held = not is_model and bool(held or _is_registered(cls) or _TOOLS.search(module) or "execute" in methods)
    if is_agent:
        first = next((name for name in methods if name in _RUNS), None)
        runs = [name for name in methods if name == first or _SOLVES.match(name)]
        why = "an agent by its name" if _AGENT.search(cls.name) else f"inherits from {', '.join(bases)}"
    else:
        runs, why = [] if is_tool else [name for name in methods if _SOLVES.match(name)], "its name"
        is_held = is_held and not runs
        role, called = ("tool", _TOOL_METHODS) if is_tool or is_held else ("llm", _MODEL_METHODS)
        name = next((name for name in called if name in methods), None) if is_tool or is_held or is_model else None
        if name is not None:
            by = f"a {'tool' if is_tool else 'model'} by its name or base class"
            by = held or "a tool by its method, module or decorator" if is_held and not is_tool else by
            yield Proposal(f"{module}.{cls.name}.{name}", role, by)
            runs = [run for run in runs if run != name]
    for name in runs:
        yield _proposal(f"{module}.{cls.name}.{name}", methods[name], "trajectory", why)
    for name, method in methods.items():
        found = None if name in _RUNS or name in runs else _function(method)
        if found is not None and found[0] != "trajectory":
            yield _proposal(f"{module}.{cls.name}.{name}", method, *found)


def _asks_a_model(function: syntax.Function) -> bool:
    called = (syntax.dotted(node.func) for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(name.endswith(_CLIENTS) for name in called)


def _proposal(target: str, function: syntax.Function, role: str, why: str) -> Proposal:
    if role == "trajectory":
        return Proposal(target, role, why, _identity(function), _returned_reward(function))
    is_number = isinstance(function.returns, ast.Name) and function.returns.id in ("float", "int", "bool")
    return Proposal(target, role, why, reward="result" if role == "reward" and is_number else "")


def _identity(function: syntax.Function) -> tuple[tuple[str, str], ...]:
    given = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    paths = {name: next((word for word in words if word in given), None) for name, words in _IDENTITY.items()}
    parts = {"id", *_IDENTITY["sample_index"]}
    for node in ast.walk(function):
        owner, part = "", ""
        if isinstance(node, ast.Attribute):
            owner, part = syntax.dotted(node.value), node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner, part = syntax.dotted(node.value), str(node.slice.value)
        if owner in given and owner != "self" and part in parts:
            paths["sample_index"] = paths["sample_index"] or f"{owner}.{part}"
    return tuple((name, path) for name, path in paths.items() if path is not None)


def _returned_reward(function: syntax.Function) -> str:
    """Return the path of what a ``return`` calls ``reward`` or ``score``: ``result``, or a part of ``result``."""
    for value in (node.value for node in ast.walk(function) if isinstance(node, ast.Return)):
        names: list[str | None] = [one.arg for one in value.keywords] if isinstance(value, ast.Call) else []
        if isinstance(value, ast.Dict):
            names = [str(key.value) for key in value.keys if isinstance(key, ast.Constant)]
        if isinstance(value, ast.Name) and value.id in ("reward", "score"):
            return "result"
        if word := next((word for word in ("reward", "score") if word in names), ""):
            return f"result.{word}"
    return ""
