#!/usr/bin/env bash
# One real GRPO step of `python -m verl.trainer.main_ppo` on CPU with a real vLLM engine:
#
#     VENV=... [LAUNCH=autotrace-run] ./run_ppo.sh [hydra overrides]
#
# 4 prompts x n 2 = 8 trajectories, each: generate, tool call, generate. 2 to 4 minutes on two cores, mostly imports.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "${VENV:?the environment made by setup.sh}" && pwd)
data=$venv/e2e
export PATH="$venv/bin:$PATH" PYTHONPATH="$here/shim:$here${PYTHONPATH:+:$PYTHONPATH}"
export VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1
export RAY_DEDUP_LOGS=0 RAY_USAGE_STATS_ENABLED=0 TORCHDYNAMO_DISABLE=1
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false WANDB_MODE=disabled MLFLOW_DISABLE_TELEMETRY=true
model=actor_rollout_ref.model actor=actor_rollout_ref.actor rollout=actor_rollout_ref.rollout
exec ${LAUNCH:-} python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$data/train.parquet" data.val_files="$data/val.parquet" data.train_batch_size=4 \
    data.max_prompt_length=256 data.max_response_length=128 data.return_raw_chat=True \
    data.dataloader_num_workers=0 data.filter_overlong_prompts=False \
    $model.path="$data/model" $model.use_remove_padding=False $model.enable_gradient_checkpointing=False \
    +$model.override_config.attn_implementation=eager \
    $actor.strategy=fsdp2 $actor.ppo_mini_batch_size=4 $actor.ppo_micro_batch_size_per_gpu=2 \
    $actor.use_kl_loss=False $actor.use_torch_compile=False $actor.fsdp_config.use_torch_compile=False \
    $rollout.name=vllm $rollout.mode=async $rollout.tensor_model_parallel_size=1 $rollout.dtype=float32 \
    $rollout.enforce_eager=True $rollout.max_model_len=512 $rollout.max_num_seqs=8 $rollout.max_num_batched_tokens=512 \
    +$rollout.enable_sleep_mode=False $rollout.free_cache_engine=False $rollout.load_format=auto \
    $rollout.n=2 $rollout.temperature=0.25 $rollout.log_prob_micro_batch_size_per_gpu=2 $rollout.agent.num_workers=1 \
    $rollout.checkpoint_engine.update_weights_bucket_megabytes=16 \
    $rollout.multi_turn.enable=True $rollout.multi_turn.max_assistant_turns=3 \
    reward.custom_reward_function.path="$here/reward_fn.py" reward.custom_reward_function.name=compute_score \
    reward.num_workers=1 \
    trainer.device=cpu trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.logger='[console]' \
    trainer.val_before_train=False trainer.total_training_steps=1 trainer.total_epochs=1 \
    trainer.save_freq=-1 trainer.test_freq=-1 trainer.resume_mode=disable \
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1 \
    +ray_kwargs.ray_init.address=local ray_kwargs.ray_init.num_cpus=8 +ray_kwargs.ray_init.num_gpus=1 +ray_kwargs.ray_init.include_dashboard=False "$@"
