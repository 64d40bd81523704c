# Sourced by the run scripts: `run_python FILE …` with a Python that has SkyRL, `run_grpo NAME …` with what both share.
#   PYTHON=/path/to/python   one of your own; without it, `python` if it has SkyRL, or uv, which brings everything.
run_python() {
  if [ -n "${PYTHON:-}" ]; then
    exec "$PYTHON" "$@"
  elif python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("skyrl") is None)' 2>/dev/null; then
    exec python "$@"
  elif command -v uv >/dev/null; then
    exec uv run --isolated --no-project --python 3.12 --with 'skyrl[fsdp]==0.4.0' --with 'skyrl-gym==0.4.0' \
      --with-editable '.[data,envs,mcp]' "$@"
  fi
  echo "error: SkyRL is not installed here. Install uv, or set PYTHON to a Python 3.12 with: pip install 'skyrl[fsdp]==0.4.0' skyrl-gym==0.4.0 '.[data,envs,mcp]'" >&2
  exit 2
}

# GRPO on the rows in DATA_DIR with `benchmax_NAME.py`; what follows are SkyRL's settings.
run_grpo() {
  local name="$1" gpus="${NUM_GPUS:-2}" data="${DATA_DIR:-$HOME/data/$1}"
  shift
  run_python "examples/skyrl/benchmax_$name.py" \
    data.train_data="['$data/train.parquet']" \
    data.val_data="['$data/test.parquet']" \
    trainer.policy.model.path="${MODEL:-Qwen/Qwen2.5-3B-Instruct}" \
    trainer.algorithm.advantage_estimator=grpo \
    trainer.algorithm.use_kl_loss=true \
    trainer.policy.optimizer_config.lr=1.0e-7 \
    trainer.strategy=fsdp \
    trainer.placement.colocate_all=true \
    trainer.placement.policy_num_gpus_per_node="$gpus" \
    trainer.placement.ref_num_gpus_per_node="$gpus" \
    trainer.epochs=20 \
    trainer.eval_batch_size=64 \
    trainer.eval_interval=5 \
    trainer.logger="${LOGGER:-$([ -n "${WANDB_API_KEY:-}" ] && echo wandb || echo console)}" \
    trainer.project_name=benchmax \
    trainer.run_name="benchmax-$name" \
    generator.n_samples_per_prompt=5 \
    generator.sampling_params.max_generate_length=1024 \
    generator.inference_engine.num_engines="$gpus" \
    generator.inference_engine.gpu_memory_utilization=0.8 \
    "$@"
}
