"""The demo as an environment, with rows of its own: `benchmax validate examples/mcp_demo/env.py`."""

import json
from pathlib import Path
from typing import Any

from benchmax import Example, ToolCall
from benchmax.envs.mcp import PackedWorkdir, ParallelMcpEnv
from benchmax.envs.mcp.provisioners import LocalProvisioner

WORKDIR = PackedWorkdir(Path(__file__).parent)


class McpDemoEnv(ParallelMcpEnv):
    system_prompt = (
        "Compute what is asked. Store the result as the variable `answer`, "
        "write it on a line of answer.log, and say it."
    )
    PRIMARY_REWARD_KEY = "variable"

    def __init__(self, num_servers: int = 4, **kwargs: Any) -> None:
        super().__init__(WORKDIR, LocalProvisioner(WORKDIR, num_servers), **kwargs)

    @classmethod
    def load_dataset(cls, dataset_name: str = "sums", **kwargs: Any) -> tuple[list[dict[str, Any]], None]:
        rows = [{"prompt": f"What is {n} * 7 + {n % 5}?", "ground_truth": n * 7 + n % 5} for n in range(11, 43)]
        return rows, None

    @classmethod
    def gold_tool_calls(cls, example: Example) -> list[ToolCall]:
        truth = (example["task"] or {})["ground_truth"]
        return [
            ToolCall("define_variable", json.dumps({"name": "answer", "value": truth})),
            ToolCall("append_log", json.dumps({"filename": "answer.log", "message": str(truth)})),
        ]
