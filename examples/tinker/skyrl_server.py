"""SkyRL's Tinker server from an ordinary virtual environment: Tinker's API on machines of your own.

    pip install 'skyrl[tinker,jax]==0.4.0' aiohttp                    Python 3.12, apart from benchmax
    python skyrl_server.py --backend jax --base-model Qwen/Qwen3-0.6B --port 8000

SkyRL's own command wants `uv run` as its parent, to start its engine in the same way, and answers a request to sample
without `sample_sequence_ids`, which `tinker` 0.26 and later insist on. Both are put right here; all else is SkyRL's.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

try:
    import skyrl.tinker.api as api
    import uvicorn
    from fastapi import Depends, Request
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv
except ImportError as error:
    sys.exit(f"{error}. Run: pip install 'skyrl[tinker,jax]==0.4.0' aiohttp")

ROUTE = "/api/v1/asample"


def engine_command(parent: list[str], config: EngineConfig) -> list[str]:
    return [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]


async def asample(
    asked: api.SampleRequest, request: Request, session: Any = Depends(api.get_session)
) -> dict[str, Any]:
    pending = await api.asample(asked, request, session)
    names = [f"{pending.request_id}:{index}" for index in range(asked.num_samples)]
    return {**pending.model_dump(), "sample_sequence_ids": names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model(parser, EngineConfig)
    parser.add_argument("--port", type=int, default=8000)
    asked = vars(parser.parse_args())
    port = asked.pop("port")
    api._build_uv_run_cmd_engine = engine_command
    routes = api.app.router.routes
    routes[:] = [route for route in routes if getattr(route, "path", "") != ROUTE]
    api.app.post(ROUTE)(asample)
    api.app.state.engine_config = EngineConfig.model_validate(asked)
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
