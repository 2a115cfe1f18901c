"""What torch and datasets do with functions that they are given: the same with recorded ones."""

from __future__ import annotations

import pytest

from .conftest import Host
from .test_realistic import same

PROGRAMS: dict[str, tuple[str, str, int]] = {
    "fingerprints of datasets": (
        "f",
        "import datasets\nfrom datasets.fingerprint import Hasher\n"
        "def f(row): return {'y': row['x'] + 1}\n"
        "def go(x):\n"
        "    table = datasets.Dataset.from_dict({'x': [1, 2]})\n"
        "    return table.map(f)['y'][:], table.map(f, num_proc=None)['y'][:], Hasher.hash(f) == Hasher.hash(f)\n",
        4,
    ),
    "torch's script and symbolic trace": (
        "f g",
        "import torch, torch.fx\n"
        "def f(x: torch.Tensor, n: int = 2) -> torch.Tensor: return x * n\ndef g(x): return x + f(x)\n"
        "def go(x):\n"
        "    one = torch.ones(2)\n"
        "    graph = torch.fx.symbolic_trace(g)\n"
        "    return torch.jit.script(f)(one).tolist(), graph(one).tolist(), graph.code, g(one).tolist(), \\\n"
        "        torch.vmap(f)(one).tolist(), torch.func.grad(lambda v: f(v).sum())(one).tolist()\n",
        0,
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_gives_the_same(host: Host, program: str) -> None:
    same(host, *PROGRAMS[program])
