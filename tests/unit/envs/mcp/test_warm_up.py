"""A process that has spoken once with the SDK: what that leaves behind in it, which every server would inherit."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
import json, logging, os, sys, threading
import mcp.server.mcpserver
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import warm_up

def state():
    return [len(logging.getLogger().handlers), logging.getLogger().level, logging.root.manager.disable,
            threading.active_count(), len(os.listdir("/proc/self/fd")), os.getcwd(), dict(os.environ)]

def unbuilt(kind):
    return sum((not each.__pydantic_complete__) + unbuilt(each) for each in kind.__subclasses__())

import pydantic
before, lacking = state(), unbuilt(pydantic.BaseModel)
if sys.argv[2] == "broken":
    sys.modules["mcp.server.mcpserver"].MCPServer = None
warm_up.warm_up()
print(json.dumps({"same": state() == before, "built": lacking - unbuilt(pydantic.BaseModel)}))
"""


def warmed_up(how: str) -> dict[str, object]:
    from benchmax.envs.mcp.fork import loader

    ran = subprocess.run([sys.executable, "-c", CODE, loader.LOADER, how], capture_output=True, text=True, check=True)
    said: dict[str, object] = json.loads(ran.stdout)
    return said


def test_what_the_sdk_builds_is_there_and_nothing_else_has_changed() -> None:
    said = warmed_up("whole")
    assert said["same"] is True
    assert said["built"] > 0


def test_an_sdk_that_is_not_as_known_is_left_alone() -> None:
    assert warmed_up("broken") == {"same": True, "built": 0}
