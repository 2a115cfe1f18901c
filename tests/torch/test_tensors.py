"""What is recorded of a tensor is read from it without running any operation, so without any mode of torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autotrace.record.fields import ABSENT
from autotrace.record.formulas import value_of
from autotrace.record.snapshot import Limits, snapshot


class Counting(TorchFunctionMode):
    """Notes each function of torch's that is called while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran.append(str(function))
        return function(*args, **(kwargs or {}))


def test_a_tensor_is_described_without_its_modes() -> None:
    tensor = torch.zeros(2, 30)
    small, elsewhere = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 3, device="meta")
    with Counting() as mode:
        assert snapshot({"x": tensor}, Limits())["x"] == {
            "…": "tensor", "dtype": "torch.float32", "shape": [2, 30], "device": "cpu",
        }  # fmt: skip
        assert snapshot(small, Limits()) == [[0.0] * 3] * 2, "a small one is shown"
        assert snapshot(elsewhere, Limits())["device"] == "meta"
        assert mode.ran == []
        assert tensor.sum() == 0 and mode.ran


def test_paths_read_tensors_in_memory() -> None:
    values = {"i": 1, "result": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "elsewhere": torch.empty(2, device="meta")}
    assert value_of("result[i][0]").read(values) == 3.0
    assert value_of("result[i].tolist").read(values)() == [3.0, 4.0]
    assert value_of("result[9]").read(values) is None
    assert value_of("mean(result[i], result[0])").read(values) == 7 / 3
    assert value_of("sum(elsewhere)").read(values) is ABSENT
    assert value_of("elsewhere[i]").read(values) is None, "not in memory"
