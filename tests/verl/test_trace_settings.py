"""The backend of veRL's own trace, as a command line sets it for veRL's own configuration."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_module

from autotrace.launch.checks import switched_off
from autotrace.launch.options import Options

WORDS = {
    "mlflow": ["actor_rollout_ref.rollout.trace.backend=mlflow"],
    "weave": ["trainer.nnodes=1", "++actor_rollout_ref.rollout.trace.backend='weave'"],
    "trackio": ["actor_rollout_ref.rollout.trace.backend=trackio"],
    None: ["actor_rollout_ref.rollout.trace.backend=null"],
}
KNOWN = ("mlflow", "weave", "jsonl")


@pytest.mark.parametrize("config", ["ppo_trainer", "ppo_megatron_trainer"])
def test_a_trace_that_gets_nothing_is_told_from_each_other_by_the_words_that_verl_reads(config: str) -> None:
    to_file, to_both = (
        Options(backends=backends, origins={"backends": "option --backend"})
        for backends in (("jsonl",), ("mlflow", "weave"))
    )
    by_default = Options(backends=("jsonl",), origins={"backends": "default"})  # veRL's configuration then chooses
    with initialize_config_module("verl.trainer.config", version_base=None):
        for backend, words in WORDS.items():
            assert compose(config, overrides=words).actor_rollout_ref.rollout.trace.backend == backend
            lines = switched_off(["python", "-m", "verl.trainer.main_ppo", *words], to_file, KNOWN)
            assert len(lines) == (backend is not None)
            if backend == "trackio":
                assert lines[0].startswith("veRL's V1 trainer (its default) records nothing into trackio")
                assert switched_off(words, to_both, KNOWN) == switched_off(words, by_default, KNOWN) == lines
                continue
            assert all(f"add --backend {backend}" in line for line in lines)
            assert switched_off(words, to_both, KNOWN) == switched_off(words, by_default, KNOWN) == []
