"""A newcomer's mistakes, and what each is told: the place, what is wrong, what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotrace.spec.compiler import compile_plan
from autotrace.spec.document import SpecError
from autotrace.spec.resolve import Resolver
from autotrace.spec.sources import Installed
from autotrace.spec.verdict import Verdict, judge

MISTAKES = {
    "half a key": (
        "- target: my.scores.score\n  of: {uid: uid}\n  facts: {reward: result}\n",
        "specs.yaml:2:3: `of:` has no `rollout_n`: a trajectory is named by both, uid and rollout_n",
    ),
    "a key for nothing": (
        "- target: my.scores.score\n  of: {uid: uid, rollout_n: n}\n",
        "specs.yaml:2:3: uid and rollout_n name the trajectory that `facts` are about: "
        "write `facts: {reward: result.reward}`",
    ),
    "another key": (
        "- target: my.scores.score\n  of: {uuid: uid, rollout_n: n}\n  facts: {reward: uid}\n",
        "specs.yaml:2:8: unknown key `of.uuid`; did you mean `uid`?",
    ),
    "a group that is a rollout": (
        "- target: my.agents.Agent.run\n  role: trajectory\n  group: true\n",
        "specs.yaml:3:3: `group` is for the call around the rollouts of a prompt, which is none itself: "
        "write `role: trainer`",
    ),
    "tab": (
        "- target: my.agents.Agent.run\n\trole: llm\n",
        "specs.yaml:2:1: line 2 is indented with a tab: YAML allows spaces only",
    ),
    "tab in the middle": (
        "- target: my.agents.Agent.run\n  role:\tllm: x\n",
        "specs.yaml:2:8: line 2 has a tab: YAML allows spaces only",
    ),
    "no list": (
        "target: my.agents.Agent.run\n",
        "specs.yaml:1:1: a spec is a list: begin each entry with `- `, as in `- my_project.agents.Agent.run`",
    ),
    "nothing after target": (
        "- target:\n  role: llm\n",
        "specs.yaml:1:3: nothing after `target:`; write a dotted name, or a list of dotted names",
    ),
    "nothing after another key": (
        "- target: my.agents.Agent.run\n  versions:\n",
        'specs.yaml:2:3: nothing after `versions:`; write a distribution and a range such as "verl>=0.5,<0.8", '
        "or remove the line",
    ),
    "empty list behind target": (
        "- target: []\n",
        "specs.yaml:1:11: the list after `target:` is empty; write a dotted name, or a list of dotted names",
    ),
    "empty entry": (
        "- my.agents.Agent.run\n-\n",
        "specs.yaml:2:2: an empty entry: write a name after `- `, package.module.Class.method",
    ),
    "entry without target": (
        "- role: llm\n",
        "specs.yaml:1:3: an entry without `target:`; write `target: package.module.Class.method`",
    ),
    "colon behind a name": (
        "- my.agents.Agent.run:\n",
        "specs.yaml:1:3: `my.agents.Agent.run:` ends in a colon: write the name alone, "
        "or `target: my.agents.Agent.run`",
    ),
    "no space behind the colon": (
        "- target:my.agents.Agent.run\n",
        "specs.yaml:1:3: `target:my.agents.Agent.run`: put a space after the colon, "
        "`target: package.module.Class.method`",
    ),
    "unknown key": (
        "- target: my.agents.Agent.run\n  rolle: llm\n",
        "specs.yaml:2:3: unknown key `rolle`; did you mean `role`?",
    ),
    "unknown key in tokens": (
        "- target: my.agents.Agent.run\n  tokens: {promt: x}\n",
        "specs.yaml:2:12: unknown key `tokens.promt`; did you mean `prompt`?",
    ),
    "wrong role": (
        "- target: my.agents.Agent.run\n  role: tools\n",
        "specs.yaml:2:9: `role: tools`: write one of trajectory, agent, llm, tool, parser, env, reward, engine, "
        "trainer, span; did you mean `tool`?",
    ),
    "wrong type": (
        "- target: my.agents.Agent.run\n  subclasses: 1\n",
        'specs.yaml:2:15: `subclasses:` takes true or false, not a number; in quotes it is a text: "1"',
    ),
    "a number that is too small": (
        "- target: my.agents.Agent.run\n  role: llm\n  items: 0\n",
        "specs.yaml:3:10: `items:` takes a whole number from 1 to 256, not 0",
    ),
    "an argument instead of a list": (
        "- target: my.agents.Agent.run\n  capture: {include: messages}\n",
        "specs.yaml:2:22: `capture.include:` takes a list of argument names, not the text `messages`",
    ),
    "same key twice": (
        "- target: my.agents.Agent.run\n  role: llm\n  role: tool\n",
        "specs.yaml:3:3: `role:` is given here and in line 2: keep one",
    ),
    "same target twice": (
        "- my.agents.Agent.run\n- target: [my.agents.Other.run, my.agents.Agent.run]\n",
        "specs.yaml:2:33: `my.agents.Agent.run` is already a target in line 1: put both into one entry",
    ),
    "range that excludes all": (
        '- target: my.agents.Agent.run\n  versions: "verl>=0.9,<0.5"\n',
        'specs.yaml:2:13: "verl>=0.9,<0.5" excludes every release: no version is in all of these ranges',
    ),
    "range without a distribution": (
        '- target: my.agents.Agent.run\n  versions: ">=0.9"\n',
        'specs.yaml:2:13: ">=0.9" names no distribution: write for example "verl>=0.9"',
    ),
    "no range": (
        "- target: my.agents.Agent.run\n  versions: verl\n",
        'specs.yaml:2:13: "verl" has no range: write for example "verl>=0.5", or leave `versions` out',
    ),
    "not a range": (
        "- target: my.agents.Agent.run\n  versions: verl 0.9\n",
        'specs.yaml:2:13: "verl 0.9" is not a version range: write for example "verl>=0.5,<0.8"',
    ),
    "call": (
        "- my.agents.Agent.run()\n",
        "specs.yaml:1:3: `my.agents.Agent.run()`: leave the parentheses out, name the function and not a call of it",
    ),
    "file": (
        "- my/agents.py\n",
        "specs.yaml:1:3: `my/agents.py` is a file: write it with dots, `my.agents.function`",
    ),
    "file and function": (
        "- ./oai.py:Agent.solve_sync\n",
        "specs.yaml:1:3: `./oai.py:Agent.solve_sync` is a file: write it with dots, `oai.Agent.solve_sync`",
    ),
    "file here and function": (
        "- oai.py:Agent.run\n",
        "specs.yaml:1:3: `oai.py:Agent.run` is a file: write it with dots, `oai.Agent.run`",
    ),
    "file and test": (
        "- my/agents.py::Agent::run\n",
        "specs.yaml:1:3: `my/agents.py::Agent::run` is a file: write it with dots, `my.agents.Agent.run`",
    ),
    "one word": (
        "- agents\n",
        "specs.yaml:1:3: `agents` is one word: write package.module.function or package.module.Class.method",
    ),
    "relative": (
        "- .agents.run\n",
        "specs.yaml:1:3: `.agents.run` is relative: start with the top-level package",
    ),
    "keyword": (
        "- my.class.run\n",
        "specs.yaml:1:3: `my.class.run`: `class` is a Python keyword and cannot be a name",
    ),
    "no name": (
        "- my.agents-v2.run\n",
        "specs.yaml:1:3: `my.agents-v2.run`: `agents-v2` is not a Python name",
    ),
    "star in the middle": (
        "- my.*.run\n",
        "specs.yaml:1:3: `my.*.run`: `*` may only be the last word, `package.module.Class.*` or `package.**`",
    ),
    "function inside a function": (
        "- my.agents.make.<locals>.run\n",
        "specs.yaml:1:3: `my.agents.make.<locals>.run`: a function inside a function does not exist before the outer "
        "one runs; name the outer one",
    ),
    "spawn entry point": (
        "- vllm.v1.engine.core.EngineCoreProc.run_engine_core\n",
        "specs.yaml:1:3: `vllm.v1.engine.core.EngineCoreProc.run_engine_core` is the entry point of a process or an "
        "endless loop: its span would never end. Name what it calls for each request or step, or use the "
        "shipped vllm.yaml",
    ),
    "endless loop": (
        "- sglang.srt.managers.scheduler.Scheduler.event_loop_overlap\n",
        "specs.yaml:1:3: `sglang.srt.managers.scheduler.Scheduler.event_loop_overlap` is the entry point of a process "
        "or an endless loop: its span would never end. Name what it calls for each request or step, or use the shipped "
        "sglang.yaml",
    ),
    "brackets in a path": (
        "- target: my.agents.Agent.run\n  attributes: {first: 'result[0][\"text\"]'}\n",
        "specs.yaml:2:23: `result[0][\"text\"]`: write indexes and keys with dots, `result.0.text`",
    ),
    "call in a path": (
        "- target: my.agents.Agent.run\n  attributes: {first: result.text()}\n",
        "specs.yaml:2:23: `result.text()`: a path reads attributes, keys and indexes, it calls nothing",
    ),
    "a function that is not over": (
        "- target: my.agents.Agent.run\n  rows: prompts\n  attributes: {uid: 'group(i,'}\n",
        "specs.yaml:3:21: `group(i,`: the value ends too early",
    ),
    "arithmetic": (
        "- target: my.agents.Agent.run\n  rows: prompts\n  attributes: {uid: i // self.size}\n",
        "specs.yaml:3:21: `i // self.size`: `//` computes; name a function instead, such as group(i, n)",
    ),
    "a choice": (
        "- target: my.agents.Agent.run\n  attributes: {x: a if b else c}\n",
        "specs.yaml:2:19: `a if b else c`: `if` computes; name a function instead, such as choice(condition, a, b)",
    ),
    "an opposite": (
        "- target: my.agents.Agent.run\n  attributes: {x: not self.training}\n",
        "specs.yaml:2:19: `not self.training`: `not` computes; name a function instead, such as opposite(a)",
    ),
    "an unknown function": (
        "- target: my.agents.Agent.run\n  rows: prompts\n  attributes: {uid: 'groups(i, n)'}\n",
        "specs.yaml:3:21: `groups(i, n)`: there is no function `groups`; choose group",
    ),
    "a number with a point": (
        "- target: my.agents.Agent.run\n  attributes: {x: 'equal(y, 0.5)'}\n",
        "specs.yaml:2:19: `equal(y, 0.5)`: `.5` is not expected there",
    ),
    "an argument too few": (
        "- target: my.agents.Agent.run\n  rows: prompts\n  attributes: {uid: group(i)}\n",
        "specs.yaml:3:21: `group(i)`: `group` takes group(row, size), not 1",
    ),
    "rows of the result": (
        "- target: my.agents.Agent.run\n  rows: result.rows\n",
        "specs.yaml:2:9: `result.rows`: the rows are read when the call begins; name an argument",
    ),
    "rows that are only counted": (
        "- target: my.agents.Agent.run\n  rows: prompts\n  mode: count\n",
        "specs.yaml:3:3: `mode: count` records no call, so it has no rows: leave one of the two out",
    ),
    "chains of an argument": (
        "- target: my.agents.Agent.run\n  chains: prompts\n  facts: {reward: row.reward}\n",
        "specs.yaml:2:11: `prompts`: the call returns its chains; begin the path with result",
    ),
    "chains of a batch": (
        "- target: my.agents.Agent.run\n  chains: result\n  rows: inputs\n  facts: {reward: row.reward}\n",
        "specs.yaml:3:3: a batch returns no chains of its own: leave `rows` or `chains` out",
    ),
    "chains that are only counted": (
        "- target: my.agents.Agent.run\n  chains: result\n  mode: count\n  facts: {reward: row.reward}\n",
        "specs.yaml:3:3: `mode: count` records no call, so it has no chains: leave one of the two out",
    ),
    "chains of another trajectory": (
        "- target: my.agents.Agent.run\n  chains: result\n  of: {uid: a, rollout_n: b}\n"
        "  facts: {reward: row.reward}\n",
        "specs.yaml:3:3: `chains` belong to the call's own trajectory; uid and rollout_n name another one",
    ),
    "rows about trajectories, without facts": (
        "- target: my.agents.Agent.run\n  rows: states\n  of: row.id\n",
        "specs.yaml:3:3: rows `of` other trajectories say something about them: write `facts: {reward: row.reward}`",
    ),
    "a trajectory of a trajectory": (
        "- target: my.agents.Agent.run\n  role: trajectory\n  of: session\n",
        "specs.yaml:3:3: `of` says which trajectory a call belongs to; one that opens a trajectory has an `id`",
    ),
    "an outcome of what is no name": (
        "- target: my.agents.Agent.run\n  outcomes: {my handover: left}\n",
        "specs.yaml:2:14: `my handover` has a space in it: a dotted name has none",
    ),
    "final of a result": (
        "- target: my.agents.Agent.run\n  final: result.done\n",
        "specs.yaml:2:10: `result.done`: `final` looks at what a generator yields; begin the path with item, "
        "`item.finished`",
    ),
    "exclude without a star": (
        "- target: my.agents.Agent.run\n  exclude: [image]\n",
        "specs.yaml:2:3: `exclude:` leaves names out of a target that ends in `*` or has `subclasses: true`; "
        "arguments are left out with `capture: {exclude: [...]}`",
    ),
    "tag": (
        "- !!python/object/apply:os.system [echo]\n",
        "specs.yaml:1:3: the tag !!python/object/apply:os.system is not used in specs: remove it",
    ),
    "second document": (
        "- my.agents.Agent.run\n---\n- my.agents.Agent.stop\n",
        "specs.yaml:2:1: a second `---`: a spec is one list",
    ),
    "NUL": (
        "- my.agents.Agent.run\n- my.\0agents\n",
        "specs.yaml:2:6: YAML does not allow the character U+0000: remove it",
    ),
    "BEL": (
        "- my.agents.Agent.run \a\n",
        "specs.yaml:1:23: YAML does not allow the character U+0007: remove it",
    ),
    "NUL as an escape": (
        '- target: my.agents.Agent.run\n  label: "a\\0b"\n',
        "specs.yaml:2:10: a text with the character U+0000: remove it",
    ),
    "a control character in a key": (
        '- {target: my.agents.Agent.run, "\\a": 1}\n',
        "specs.yaml:1:33: a text with the character U+0007: remove it",
    ),
    "half a character": (
        '- "my.agents.\\ud800.run"\n',
        "specs.yaml:1:3: a text with the character U+D800: remove it",
    ),
    "a number that Python does not read": (
        f"- target: my.agents.Agent.run\n  label: {'9' * 5000}\n",
        f"specs.yaml:2:10: `{'9' * 40}...` cannot be read as !!int",
    ),
    "nested lists": (
        f"- {'[' * 2000}{']' * 2000}\n",
        "specs.yaml:1:34: nested more than 32 levels deep: an entry needs four at most",
    ),
    "nested mappings": (
        f"- target: my.agents.Agent.run\n  attributes: {'{a: ' * 1000}1{'}' * 1000}\n",
        "specs.yaml:2:132: nested more than 32 levels deep: an entry needs four at most",
    ),
    "aliases of aliases": (
        "- &a0 {target: my.agents.Agent.run, attributes: {a: b}}\n"
        + "".join(f"- &a{i} {{target: [{', '.join([f'*a{i - 1}'] * 20)}]}}\n" for i in range(1, 9)),
        "specs.yaml:1:16: with its aliases the file holds more than 100,000 values: write fewer",
    ),
    "unclosed bracket": (
        "- target: [my.agents.Agent.run\n  role: llm\n",
        "specs.yaml:2:7: not valid YAML: expected ',' or ']', but got ':'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_file_is_explained(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, message = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    Path("specs.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        compile_plan(["specs.yaml"], shipped=False)
    assert str(caught.value) == message


def test_all_mistakes_of_all_files_are_reported_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text("- a.b.c\n- target: a.b.d\n  rolle: llm\n  mode: all\n")
    Path("two.yaml").write_text("- agents\n- a.b.e\n")
    with pytest.raises(SpecError) as caught:
        compile_plan(["one.yaml", "two.yaml", "three.yaml"])
    assert [f"{problem.file}:{problem.line}" for problem in caught.value.problems] == [
        "one.yaml:3", "one.yaml:4", "two.yaml:1", "three.yaml:0",
    ]  # fmt: skip
    assert str(caught.value.problems[-1]) == "three.yaml: no such spec; did you mean two.yaml?"


PACKAGE = {
    "my/__init__.py": "",
    "my/agents.py": """
        import functools
        from my.app import app
        from my.verl_like import auto_await

        class Agent:
            def run(self, messages): ...
            def stop(self): ...
            @property
            def state(self): ...
            limit = 3

        class SearchAgent(Agent):
            async def search(self, query): ...

        @app.post("/generate")
        async def generate(request): ...

        @auto_await
        async def create(config): ...

        @app.get("/looks")
        def looks():
            import sys
            return sys._getframe(1).f_lineno

        @numba.njit(cache=True)
        def fast(x): ...

        @triton.jit
        def kernel(x): ...
        """,
    "my/tools.py": """
        import abc, torch
        class WebSearch(abc.ABC):
            @abc.abstractmethod
            def execute(self, query): ...
        class Model(torch.nn.Module):
            def forward(self, x): ...
        """,
    "my/app.py": "app = None\n",
    "my/verl_like.py": "def auto_await(function): return function\n",
    "my/broken.py": "def f(:\nclass Torn:\n    def run(self): ...\n",
    "my/guarded.py": "try:\n    class Guarded:\n        def run(self): ...\nexcept ImportError: ...\n",
    "my/lazy.py": "def __getattr__(name): ...\n",
}

UNRESOLVED = {
    "my.agents.SerchAgent.run": "no such name; did you mean `my.agents.SearchAgent.run`?",
    "my.agents.Agent.runn": "no such name; did you mean `my.agents.Agent.run`?",
    "my.agent.Agent.run": "no such name; did you mean `my.agents.Agent.run`?",
    "my.agents.Guarded.run": "no such name; `Guarded.run` moved to `my.guarded.Guarded.run`",
    "my.agents.Torn.run": "no such name; `Torn.run` moved to `my.broken.Torn.run`",
    "my.agents.WebSearch.execute": "no such name; `WebSearch.execute` moved to `my.tools.WebSearch.execute`",
    "my.agents.WebSearcher.execute": "no such name; `my.agents` has Agent, SearchAgent, generate, create, looks, fast, "
    "kernel",
    "my.tools.unheard_of": "no such name; `my.tools` has WebSearch, Model",
    "myy.agents.Agent.run": "no module `myy`; did you mean `my.agents.Agent.run`?",
    "quite_other.agents.Agent.run": "no module `quite_other`; the folder that holds it must be the working folder or "
    "on PYTHONPATH",
    "my.broken.f": "no such name; my/broken.py:1 is not valid Python (invalid syntax)",
    "my.lazy.thing": "its module makes names on access (`__getattr__`); name it where it is defined",
    "my.agents.Agent": "it is a class: name its methods, `my.agents.Agent.run` for example, or `my.agents.Agent.*`",
    "my.agents": "it is a module: name a function in it, or `my.agents.**` for all of them",
    "my.agents.Agent.limit": "it is a value, not a function; name a function",
    "my.agents.Agent.run.__wrapped__": "`__wrapped__` is the function below a decorator, and it has none",
    "my.agents.create.__wrapped__.__wrapped__": "`__wrapped__` is the function below a decorator, and it has 1",
    "my.agents.fast": "numba compiles it, and compiled code has no wrapper; name a function that calls it",
    "my.agents.kernel": "triton compiles it, and compiled code has no wrapper; name a function that calls it",
    "my.tools.Model.forward": "nn.Module.forward runs inside torch.compile and CUDA graphs; name the method that calls "
    "the model",
    "weakref.WeakKeyDictionary.get": "autotrace uses weakref to record a call, which would record itself: name the "
    "function that calls it",
    "threading.**": "autotrace uses threading to record a call, which would record itself: name the function that "
    "calls it",
    "time.sleep": "autotrace uses time to record a call, which would record itself: name the function that calls it",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, which is also the working folder."""
    import textwrap

    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verdict_of(entry: str) -> Verdict:
    """What is said about one entry of the user's own."""
    Path("specs.yaml").write_text(entry)
    plan = compile_plan(["specs.yaml"], shipped=False)
    (verdict,) = judge(plan, Resolver(Installed()), expected={target.key for target in plan.targets})
    return verdict


@pytest.mark.parametrize("name", ["math.sqrt", "builtins.len"])
def test_a_function_in_c_resolves_under_its_own_name(name: str, project: Path) -> None:
    verdict = verdict_of(f"- {name}\n")
    assert verdict.description is not None and not verdict.reason
    assert (verdict.description.kind, verdict.description.dotted) == ("C function", name)


@pytest.mark.parametrize("name", UNRESOLVED)
def test_a_name_that_leads_nowhere_is_explained(name: str, project: Path) -> None:
    verdict = verdict_of(f"- {name}\n")
    assert verdict.failed
    assert verdict.reason.replace(f"{project}/", "") == UNRESOLVED[name]


@pytest.mark.parametrize("name", ["my.agents.create.__wrapped__", "my.agents.generate.__wrapped__", "my.agents.looks"])
def test_a_function_below_a_decorator(name: str, project: Path) -> None:
    verdict = verdict_of(f"- {name}\n")
    assert verdict.state == "resolves" and verdict.name == name


def test_a_decorator_that_looks_at_its_caller_is_passed_over(project: Path) -> None:
    verdict = verdict_of("- my.agents.create\n")
    assert verdict.state == "resolves"
    assert verdict.notes == ("recorded below @auto_await, which looks at its caller's frame",)


def test_what_is_optional_does_not_fail(project: Path) -> None:
    assert not verdict_of("- {target: my.agents.Agent.runn, optional: true}\n").failed


def test_a_property_is_said_to_be_one(project: Path) -> None:
    verdict = verdict_of("- my.agents.Agent.state\n")
    assert verdict.state == "resolves"
    assert verdict.notes == ("a property: each read of it is recorded as one call",)


def test_an_abstract_method_needs_subclasses(project: Path) -> None:
    (note,) = verdict_of("- my.tools.WebSearch.execute\n").notes
    assert note == "it is abstract, what runs are its overrides: add `subclasses: true`"
    assert verdict_of("- {target: my.tools.WebSearch.execute, subclasses: true}\n").notes == ()


def test_chains_of_which_nothing_is_read_are_noted(project: Path) -> None:
    (note,) = verdict_of("- {target: my.agents.Agent.run, chains: result, facts: {reward: result.reward}}\n").mistakes
    assert note.startswith("chains: nothing is read of them; write `tokens: {prompt: row.prompt_ids,")
    assert verdict_of("- {target: my.agents.Agent.run, chains: result, facts: {reward: row.reward}}\n").mistakes == ()


def test_a_prompt_in_the_result_without_a_response_is_noted(project: Path) -> None:
    (note,) = verdict_of("- {target: my.agents.Agent.run, tokens: {prompt: result.ids}}\n").mistakes
    assert note.startswith("tokens.prompt: a prompt in the result is read only beside `response`")


def test_an_argument_that_does_not_exist_is_noted(project: Path) -> None:
    (tokens, capture) = verdict_of(
        "- {target: my.agents.Agent.run, tokens: {prompt: mesages}, capture: {include: [mesages]}}\n"
    ).mistakes
    assert tokens == "tokens.prompt: no argument `mesages`; did you mean `messages`?"
    assert capture == "capture: no argument `mesages`; did you mean `messages`?"
