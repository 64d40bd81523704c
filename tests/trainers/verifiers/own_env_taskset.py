"""A taskset that plays an interaction of its own."""

from __future__ import annotations

import verifiers.v1 as vf
from word_taskset import WordTaskset

__all__ = ["OwnEnv", "WordTaskset"]


class OwnEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class OwnEnv(vf.Env[OwnEnvConfig]):
    async def run(self, task, agents):
        await agents.agent.run(task)
