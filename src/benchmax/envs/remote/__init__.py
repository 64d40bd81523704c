"""Runs an environment in child processes, so that its packages, crashes and memory stay there.

    async with EnvHost(await open_remote_env(bundle, processes=4)) as host:
        rollouts = await run_batch(host, examples, model)

`RemoteEnv` (`proxy`) has the hooks of the environment it stands for; everything above it works unchanged.
`process_pool` keeps the processes running, `process` is one of them, `child` starts and ends it under a `reaper` or in
a sandbox, `routing` keeps siblings together, and `wire` is the protocol: JSON over a private socket, so that nothing of
a child is ever unpickled here. `process_limits` is what a child gets of the machine, `output_lines` reads what it
prints, `preprocess` makes examples of rows in it. The child runs `benchmax.bundle.environment_process`.
`open_environment` opens an environment that settings name.

Covered
- A process that dies (crash, `os._exit`, memory limit) fails the calls it had and is replaced; the others continue.
- A process that does not answer a cancelled call is killed, also when C code holds its interpreter lock.
- The processes end when this one does, however it ends, and with them all they started. They inherit few environment
  variables and no open files.

Not covered
- The processes run as the same user, with network and files, may send signals to others of that user, and may kill
  their own reaper; with `sandbox=Confinement()` they do not. Model-written code needs a sandbox as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmax.envs.remote.process_limits import Confinement, ProcessLimits
from benchmax.envs.remote.routing import example_context

if TYPE_CHECKING:
    from benchmax.envs.remote.proxy import RemoteEnv, open_remote_env

__all__ = ["Confinement", "ProcessLimits", "RemoteEnv", "example_context", "open_remote_env"]


def __getattr__(name: str) -> Any:
    # The other end of `wire` needs nothing of the proxy, which loads datasets and search.
    if name in ("RemoteEnv", "open_remote_env"):
        from benchmax.envs.remote import proxy

        return getattr(proxy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
