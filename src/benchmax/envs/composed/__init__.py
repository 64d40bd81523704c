"""Several environments in one run: each example belongs to one of them, and is played with its tools and its rewards.

composed_env.py  `ComposedEnv` and `compose`; start reading here
parts.py         how parts are named and written, and to which of them an example belongs
"""

from benchmax.envs.composed.composed_env import ComposedEnv, compose

__all__ = ["ComposedEnv", "compose"]
