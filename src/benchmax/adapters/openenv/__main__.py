"""`python -m benchmax.adapters.openenv ENV`: serve an environment to every trainer that uses OpenEnv's protocol."""

from __future__ import annotations

import argparse
import sys

from benchmax import limits
from benchmax.adapters.openenv.server import make_app
from benchmax.envs.loading import find_rows, load_env_class, parse_env_args
from benchmax.errors import BenchmaxError
from benchmax.rollouts.settings import RolloutSettings


def main(words: list[str] | None = None) -> int:
    asked = _parser().parse_args(words)
    try:
        env = load_env_class(asked.env)
        settings = RolloutSettings(max_turns=asked.max_turns)
        rows = find_rows(env, asked.data)
        arguments = parse_env_args(asked.env_arg)
        app = make_app(env, rows, env_args=arguments, settings=settings, sessions=asked.sessions)
    except BenchmaxError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    import uvicorn

    uvicorn.run(app, host=asked.host, port=asked.port, log_level="warning")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmax.adapters.openenv", description=__doc__)
    parser.add_argument("env", help="a name of `benchmax env list`, main.py:Class, or package.module.Class")
    parser.add_argument("--data", help="its rows: a file, hf:owner/name, or a name that it loads itself")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="an argument of its constructor")
    parser.add_argument("--max-turns", type=int, help="model turns of one rollout")
    parser.add_argument("--sessions", type=int, default=limits.ROLLOUTS_AT_ONCE, help="rollouts at once")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    return parser


if __name__ == "__main__":
    sys.exit(main())
