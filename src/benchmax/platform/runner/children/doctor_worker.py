"""`python -m benchmax.platform.runner.children.doctor_worker BEAT [confined]`: the process of an examination.

It opens the bundle, so it holds nothing worth taking: few variables, no database, a folder of its own. It may run on
another Python minor than the platform, with little but benchmax itself, so it imports no more than the doctor needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.doctor import examine
from benchmax.doctor.interpreter_watch import send_beats
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.loading import load_env_class, own_rows
from benchmax.envs.remote.reaper import go_under_guard
from benchmax.errors import BenchmaxError, UsageError
from benchmax.files.atomic import write_text

MOST_ANSWERS = 200
TOOLS_SECONDS = 30.0


def main() -> int:
    orders = json.load(sys.stdin)
    beating, confined = int(sys.argv[1]), sys.argv[2:] == ["confined"]
    if not confined:  # a sandbox ends all that is in it
        go_under_guard(beating)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if most := orders.get("memory_bytes"):
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    send_beats(beating, Path(orders["dump"]))
    try:
        found = asyncio.run(_examine(orders))
    except (BenchmaxError, OSError) as error:
        found = {"problem": str(error)}
    write_text(Path(orders["report"]), json.dumps(found, default=str), durable=False)
    sys.stdout.flush()
    os._exit(0)  # threads of the environment must not hold the end


async def _examine(orders: Mapping[str, Any]) -> dict[str, Any]:
    env_class, arguments = _open(orders)
    rows = orders.get("rows")
    if rows is None:
        if not overrides(env_class, "load_dataset"):
            raise UsageError(f"{env_class.__name__} has no rows of its own. Choose a dataset to examine it on.")
        rows = own_rows(env_class)
    diagnosis = await examine(env_class, arguments, rows=rows, supervised=True)
    found = diagnosis.to_dict()
    found["answers"] = found["answers"][:MOST_ANSWERS]
    return {**found, "tools": await _tools(env_class, arguments)}


def _open(orders: Mapping[str, Any]) -> tuple[type[BaseEnv], dict[str, Any]]:
    if "cls" not in orders:
        return load_env_class(orders["spec"]), {}
    from benchmax.bundle.load import allow_loading, load_bundle
    from benchmax.bundle.metadata import read_bundle_files

    allow_loading()
    env_class, arguments = load_bundle(read_bundle_files(orders["cls"], orders["metadata"]), instantiate=False)
    return env_class, arguments


async def _tools(env_class: type[BaseEnv], arguments: dict[str, Any]) -> list[str] | None:
    """The names of the tools; None when they cannot be listed, which the report says already."""
    try:
        async with asyncio.timeout(TOOLS_SECONDS):
            env = env_class(**arguments)
            try:
                return [str(tool.name) for tool in await env.list_tools()]
            finally:
                await env.shutdown()
    except Exception:
        return None


if __name__ == "__main__":
    sys.exit(main())
