#!/usr/bin/env bash
# `make demo`: veRL's own agent loops, traced into a local MLflow store; then the same trajectories in the terminal.
set -euo pipefail
cd "$(dirname "$0")/.."
unset MLFLOW_TRACKING_URI AUTOTRACE_TRACKING_URI AUTOTRACE_BACKEND
export AUTOTRACE_RUN_DIR=$PWD/autotrace-runs

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

say autotrace-run --project autotrace-demo --logprobs 1 python examples/verl_loop/main.py
say autotrace ls --train --tree
say autotrace ls --step 1 --sort reward
best=$(autotrace ls --step 1 --sort reward --limit 1 --json | python -c 'import json, sys; print(json.load(sys.stdin)["trace_id"][:12])')
say autotrace show "$best"
say autotrace diagnose

printf '\nTo read them in the browser, with findings, tokens, forks and timelines:\n\n    %s view %s\n\n' "$(command -v autotrace)" "$AUTOTRACE_RUN_DIR"
printf 'To see them in MLflow (http://127.0.0.1:5000, experiment autotrace-demo):\n\n    %s\n\n' \
    "$(command -v mlflow) server --backend-store-uri sqlite:///$AUTOTRACE_RUN_DIR/mlflow.db"
