#!/usr/bin/env bash
# GRPO on the math environment: 2 GPUs, 160 calculators on this machine. Further words are SkyRL's settings, or --smoke.
#   DATA_DIR=~/data/math NUM_GPUS=2 MODEL=Qwen/Qwen2.5-3B-Instruct LOGGER=console bash examples/skyrl/run_benchmax_math.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. examples/skyrl/python.sh
run_grpo math \
  trainer.train_batch_size=32 \
  trainer.policy_mini_batch_size=32 \
  trainer.ckpt_interval=20 \
  trainer.max_prompt_length=2048 \
  generator.max_turns=7 \
  generator.max_input_length=8192 \
  "$@"
