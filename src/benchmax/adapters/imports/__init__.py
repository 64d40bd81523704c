"""Environments of other libraries as benchmax environments: `NAME:address` wherever an environment is named.

addresses      what stands behind the colon, with settings: `ID?split=test`
verifiers_env  `verifiers:ID`, a taskset of verifiers
openenv_env    `openenv:URL`, a server of OpenEnv's protocol
skyrl_gym_env  `skyrl_gym:ID`, a text environment of skyrl-gym

Each is a function from the address to a class, in the group `benchmax.imports` (`benchmax.plugins`). reasoning-gym
needs none: its tasks are the environments `reasoning/…`.
"""
