"""torch.compile(fullgraph=True) over watched functions: one graph, no break. Run in the environment of ``make e2e``.

vLLM compiles its models so; a wrapper that read a clock in the compiled region would be a crash at start-up.
"""

from __future__ import annotations

import builtins
import copy
import importlib
import io
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from autotrace.adapters import registry
from autotrace.config.plan import Plan, Settings, Target
from autotrace.patch import engine
from autotrace.record import calls, faults, template

SOURCE = """
import torch
def helper(x, scale=2.0, *, shift=1.0):
    return x * scale + shift
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def scaled(self, x):
        return helper(x, shift=0.5)
    @staticmethod
    def static(x):
        return x.relu()
    def forward(self, x):
        return self.static(self.scaled(self.linear(x)))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range(2)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
def run(model, x):
    return model(x)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "compiled.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    faults.counts.clear()
    targets = [Target("all", ("compiled.**",)), Target("forward", ("compiled.Model.forward",))]
    registry.start(Plan(tuple(targets), Settings(), "digest"), str(tmp_path / "run"), "run-1")
    torch._dynamo.reset()
    yield importlib.import_module("compiled")
    assert hasattr(builtins, template.COMPILING)
    engine.stop()
    assert not hasattr(builtins, template.COMPILING)
    sys.modules.pop("compiled")
    assert not {name for name in faults.counts if name.startswith("fault:")}


def test_the_recorder_knows_how_to_ask_torch(module: ModuleType) -> None:
    assert calls.compiling is torch.compiler.is_compiling


def test_a_watched_model_compiles_to_one_graph(module: ModuleType) -> None:
    model, x = module.Model(), torch.randn(3, 4)
    expected = module.run(model, x)
    before = calls.probes["all"].counts.calls
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(x), expected)
    assert len(graphs) == 1 and torch._dynamo.explain(model)(x).graph_break_count == 0
    assert calls.probes["all"].counts.calls == before, "something was recorded inside the compiled region"
    assert torch.equal(module.run(compiled, x), expected) and calls.probes["all"].counts.calls == before + 1


def test_a_watched_function_compiles_by_itself(module: ModuleType) -> None:
    compiled = torch.compile(module.helper, fullgraph=True, backend="eager")
    x = torch.ones(2)
    assert compiled(x, 3.0).tolist() == [4.0, 4.0] and compiled(x, shift=0.0).tolist() == [2.0, 2.0]


def test_forward_is_refused(module: ModuleType) -> None:
    assert not hasattr(module.Model.forward, "__wrapped__") and not hasattr(module.Layer.forward, "__wrapped__")


def test_models_are_copied_and_saved_as_before(module: ModuleType) -> None:
    model, x = module.Model(), torch.randn(3, 4)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)):
        assert torch.equal(again(x), model(x))


def test_export(module: ModuleType) -> None:
    x = torch.randn(3, 4)
    model = module.Model().eval()
    assert torch.allclose(torch.export.export(model, (x,)).module()(x), model(x))
