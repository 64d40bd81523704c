#!/usr/bin/env bash
# GRPO on the math environment: 2 GPUs, 160 calculators on this machine. Further words are SkyRL's settings, or --smoke.
#   DATA_DIR=~/data/math NUM_GPUS=2 MODEL=Qwen/Qwen2.5-3B-Instruct LOGGER=console bash examples/skyrl/run_benchmax_math.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. examples/skyrl/python.sh
DATA_DIR="${DATA_DIR:-$HOME/data/math}"
NUM_GPUS="${NUM_GPUS:-2}"
run_python examples/skyrl/benchmax_math.py \
  data.train_data="['$DATA_DIR/train.parquet']" \
  data.val_data="['$DATA_DIR/test.parquet']" \
  trainer.policy.model.path="${MODEL:-Qwen/Qwen2.5-3B-Instruct}" \
  trainer.algorithm.advantage_estimator=grpo \
  trainer.algorithm.use_kl_loss=true \
  trainer.policy.optimizer_config.lr=1.0e-7 \
  trainer.strategy=fsdp \
  trainer.placement.colocate_all=true \
  trainer.placement.policy_num_gpus_per_node="$NUM_GPUS" \
  trainer.placement.ref_num_gpus_per_node="$NUM_GPUS" \
  trainer.epochs=20 \
  trainer.train_batch_size=32 \
  trainer.policy_mini_batch_size=32 \
  trainer.eval_batch_size=64 \
  trainer.eval_interval=5 \
  trainer.ckpt_interval=20 \
  trainer.max_prompt_length=2048 \
  trainer.logger="${LOGGER:-$([ -n "${WANDB_API_KEY:-}" ] && echo wandb || echo console)}" \
  trainer.project_name=benchmax \
  trainer.run_name=benchmax-math \
  generator.n_samples_per_prompt=5 \
  generator.max_turns=7 \
  generator.max_input_length=8192 \
  generator.sampling_params.max_generate_length=1024 \
  generator.inference_engine.num_engines="$NUM_GPUS" \
  generator.inference_engine.gpu_memory_utilization=0.8 \
  "$@"
