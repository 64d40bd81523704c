"""An environment in processes of its own, so that its packages, crashes and memory stay there.

    async with EnvHost(await open_remote_env(bundle, processes=4)) as host:
        rollouts = await run_batch(host, examples, model)

`RemoteEnv` has the hooks of the environment it stands for; everything above it works unchanged. Messages are JSON over
a private socket: nothing from the other side is ever unpickled here.

Covered
- A process that dies (crash, `os._exit`, memory limit) fails the calls it had; it is replaced, the others go on.
- A process that does not answer a cancelled call is killed, also when C code holds its interpreter lock.
- The processes end when this one does, however it ends. They see few environment variables, and none of its files.

Not covered
- The processes run as the same user, with network and files, and may send signals to others of that user; with
  `sandbox=Confinement()` they do not.
- Programs that an environment starts and detaches into a session of their own outlive it, but for those in a sandbox.
"""

from __future__ import annotations

from benchmax.envs.remote.placement import example_context
from benchmax.envs.remote.proxy import RemoteEnv, open_remote_env
from benchmax.envs.remote.surroundings import Confinement, ProcessLimits

__all__ = ["Confinement", "ProcessLimits", "RemoteEnv", "example_context", "open_remote_env"]
