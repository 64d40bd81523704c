"""The environment of a run, opened in a process of its own with its packages."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmax.files.redaction import Redactor
from benchmax.platform.runner.children import sandboxing
from benchmax.platform.runner.children.child_process import ChildProcess, log_time, write_log

if TYPE_CHECKING:
    from benchmax.bundle import Bundle
    from benchmax.envs.remote import RemoteEnv
    from benchmax.envs.remote.process_limits import ProcessLimits


@asynccontextmanager
async def opened_env(child: ChildProcess, variables: Mapping[str, str] | None = None) -> AsyncIterator[RemoteEnv]:
    """The bundle's environment, in a process of its own with its packages, with the child's variables or others."""
    from benchmax.bundle import read_bundle_files
    from benchmax.envs.remote import open_remote_env
    from benchmax.files.redaction import keep_secret

    files, variables = child.files, child.variables if variables is None else variables
    bundle = read_bundle_files(files["env_cls_path"], files["env_metadata_path"])
    python = await install_packages(bundle, child)
    child.say("opening the environment")
    hide = Redactor(variables.values())
    keep_secret(variables.values())
    confined = await sandboxing.confinement()
    with sandboxing.reachable_models(confined) as models:
        env = await open_remote_env(
            bundle,
            python=python,
            variables={**variables, **models},
            process_limits=env_limits(),
            sandbox=confined,
            output=lambda stream, line: write_log(f"{log_time()} env {stream}: {hide(line)}", sys.stdout),
        )
        try:
            yield env
        finally:
            await env.shutdown()


async def install_packages(bundle: Bundle, child: ChildProcess) -> Path:
    """The interpreter of a bundle, with its packages."""
    from benchmax.bundle import envs_venv, with_implied_packages

    metadata = await asyncio.to_thread(with_implied_packages, bundle.pickled, bundle.metadata)
    if metadata.pip_dependencies:
        child.say("installing the environment's packages")
    sandboxing.needs_python(metadata.python_version)
    venvs = Path(child.message["venvs"])
    return await asyncio.to_thread(envs_venv, metadata, venvs, wheels_only=sandboxing.several_users())


def env_limits() -> ProcessLimits:
    """What one environment process may use: half of the machine's memory, or `BENCHMAX_ENV_MEMORY` GiB (0: all)."""
    from benchmax.config import setting
    from benchmax.envs.remote.process_limits import ProcessLimits
    from benchmax.errors import ConfigError

    given = setting("ENV_MEMORY")
    if not given:
        return ProcessLimits(memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    try:
        size = float(given)
    except ValueError:
        size = math.nan
    if not 0 <= size < math.inf:
        raise ConfigError(f"BENCHMAX_ENV_MEMORY is {given!r}. Give a number of GiB, 0 for no limit.")
    return ProcessLimits(memory_bytes=int(size * 2**30) or None)
