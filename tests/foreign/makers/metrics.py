"""What each logger leaves behind: wandb, TensorBoard, transformers, veRL's file and console loggers, MLflow."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

STEPS = range(1, 11)
CONFIG = {"lr": 1e-3, "actor": {"clip": 0.2}}


def of_step(step: int) -> dict[str, float]:
    return {"actor/entropy": 0.5**step, "loss": 1.0 / step}


def main(top: str) -> None:
    place = Path(top)
    for name in ("wandb", "tensorboard", "transformers", "verl", "console", "mlflow"):
        (place / name).mkdir(parents=True)
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": str(place / "wandb"), "WANDB_SILENT": "true"}
    import wandb

    run = wandb.init(project="p", config=CONFIG)
    run.config["seed"] = 7
    for step in STEPS:
        run.log(of_step(step), step=step)
    run.finish()

    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(place / "tensorboard")) as writer:
        for step in STEPS:
            for name, value in of_step(step).items():
                writer.add_scalar(name, value, step)

    from transformers import TrainerState

    state = TrainerState(log_history=[{"step": step, "epoch": 0.1, **of_step(step)} for step in STEPS])
    state.save_to_json(str(place / "transformers" / "trainer_state.json"))

    from verl.utils.logger.aggregate_logger import LocalLogger
    from verl.utils.tracking import FileLogger

    os.environ["VERL_FILE_LOGGER_PATH"] = str(place / "verl" / "experiment.jsonl")
    logger = FileLogger("project", "experiment")
    with (place / "console" / "train.log").open("w") as file, contextlib.redirect_stdout(file):
        print("(TaskRunner pid=7) loading")
        for step in STEPS:
            logger.log(of_step(step), step)
            LocalLogger().log(of_step(step), step)
    logger.finish()

    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{place / 'mlflow' / 'mlflow.db'}")
    flat = {"lr": 1e-3, "actor/clip": 0.2, "seed": 7}
    with mlflow.start_run(run_name="r"):
        mlflow.log_params(flat)
        for step in STEPS:
            mlflow.log_metrics(of_step(step), step=step)
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    mlflow.set_tracking_uri(f"file://{place / 'mlruns'}")
    with mlflow.start_run(run_name="r"):
        mlflow.log_params(flat)
        for step in STEPS:
            mlflow.log_metrics(of_step(step), step=step)


if __name__ == "__main__":
    main(sys.argv[1])
