"""Each engine has an environment of its own; what is not installed here is not collected (``make engines``: both)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine_run import ROOT, installed

collect_ignore = [
    *([] if installed("vllm") else ["test_vllm.py", "test_vllm_server.py"]),
    *([] if installed("sglang") else ["test_sglang.py", "test_sglang_server.py", "test_sglang_verl.py"]),
    *([] if installed("vllm") or installed("sglang") else ["test_cost.py"]),
]


def pytest_report_header() -> str | None:
    """Say why nothing is collected here in an environment without an engine."""
    return None if installed("vllm") or installed("sglang") else "tests/engines: needs vLLM or SGLang (make engines)"


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for SGLang: two layers, random weights."""
    from tiny_llama import make

    return make(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for vLLM: the one of the end-to-end test if its environment has it, else one with random weights."""
    trained = Path(sys.prefix) / "e2e" / "model"
    if (trained / "model.safetensors").exists():
        return trained
    import subprocess

    folder = tmp_path_factory.mktemp("model")
    subprocess.run([sys.executable, str(ROOT / "tests" / "e2e" / "tiny_model.py"), str(folder)], check=True)
    return folder
