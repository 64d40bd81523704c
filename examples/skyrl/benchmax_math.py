"""Train a model on the math environment with SkyRL: 160 calculators on this machine (32 prompts, 5 samples each)."""

import sys
from functools import partial

from benchmax.adapters.skyrl.entrypoint import main
from benchmax.envs.math.math_env import MathEnvLocal

if __name__ == "__main__":
    servers, few = partial(MathEnvLocal, num_local_servers=160), partial(MathEnvLocal, num_local_servers=6)
    sys.exit(main({"MathEnv": servers}, smoke_envs={"MathEnv": few}))
