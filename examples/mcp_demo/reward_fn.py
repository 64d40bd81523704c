"""The three things a reward can read: what was said, what the servers remember, what lies in the files."""

from pathlib import Path
from typing import Any

from benchmax.envs.reward_helpers import extract_completion_text


def said_it(completion: Any, ground_truth: Any, **kwargs: Any) -> float:
    """The answer names the number."""
    return float(str(ground_truth) in extract_completion_text(completion))


async def variable_is_set(ground_truth: Any, mcp_client: Any, **kwargs: Any) -> float:
    """The server remembers it as `answer`."""
    result = await mcp_client.call_tool("get_variable", {"name": "answer"}, raise_on_error=False)
    return float(not result.is_error and result.data == float(ground_truth))


def logged_it(ground_truth: Any, workspace: Path, **kwargs: Any) -> float:
    """The file answer.log has it on a line."""
    log = workspace / "answer.log"
    return float(log.is_file() and str(ground_truth) in log.read_text(encoding="utf-8").split())


reward_functions = {"completion": said_it, "variable": variable_is_set, "log": logged_it}
