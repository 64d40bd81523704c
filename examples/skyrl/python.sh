# Sourced by the run scripts: `run_python FILE …` with a Python that has SkyRL.
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
