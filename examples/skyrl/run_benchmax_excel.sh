#!/usr/bin/env bash
# GRPO on spreadsheets: 2 GPUs here, 5 rented machines with 20 servers each. Further words are SkyRL's settings, or --smoke.
#   EXCEL_CLOUD=gcp DATA_DIR=~/data/excel NUM_GPUS=2 MODEL=Qwen/Qwen2.5-3B-Instruct LOGGER=console bash examples/skyrl/run_benchmax_excel.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. examples/skyrl/python.sh
run_grpo excel \
  trainer.train_batch_size=20 \
  trainer.policy_mini_batch_size=20 \
  trainer.ckpt_interval=10 \
  trainer.max_prompt_length=3000 \
  generator.max_turns=10 \
  generator.max_input_length=16384 \
  "$@"
