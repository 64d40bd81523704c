"""A solution told by an environment in a process of its own, played through its real tools there."""

from benchmax import ToolDefinition, make_example
from benchmax.bundle import dump_bundle
from benchmax.doctor.gold.answer_search import Gold
from benchmax.doctor.gold.demonstrations import SCRIPT, Demonstrator
from benchmax.doctor.probe_player import ProbePlayer
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.remote import open_remote_env
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.settings import RolloutSettings


class Vault(BaseEnv):
    """The code stands in no column: only the tool knows it."""

    async def list_tools(self):
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return [ToolDefinition("look_up", "The code of a person.", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return str(sum(map(ord, tool_args["name"])))

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        code = str(sum(map(ord, task["name"])))
        return {"right": float(messages[-1]["content"] == f"The code is {code}.")}

    def demonstrate(self, example):
        if example["task"]["name"] == "nobody":
            return
        code = yield "look_up", {"name": example["task"]["name"]}
        yield f"The code is {code}."


def asked(name):
    return make_example([{"role": "user", "content": f"What is the code of {name}?"}], {"name": name})


async def test_a_generator_in_another_process_is_asked_turn_by_turn():
    env = await open_remote_env(dump_bundle(Vault))
    try:
        async with EnvHost(env) as host:
            demonstrator = Demonstrator(ProbePlayer(host, RolloutSettings()), Gold())
            assert demonstrator.scripted
            shown = await demonstrator.solve(asked("Ada"))
            assert (shown.source, shown.reward) == (SCRIPT, 1.0)
            (call,), text = shown.turns
            assert (call.name, call.arguments_dict(), text) == ("look_up", {"name": "Ada"}, "The code is 262.")
            assert await demonstrator.solve(asked("nobody")) is None
    finally:
        await env.shutdown()


async def test_what_a_demonstration_raises_is_told():
    class Broken(Vault):
        def demonstrate(self, example):
            raise KeyError("gone")

    env = await open_remote_env(dump_bundle(Broken))
    try:
        async with EnvHost(env) as host:
            demonstrator = Demonstrator(ProbePlayer(host, RolloutSettings()), Gold())
            assert await demonstrator.solve(asked("Ada")) is None
            assert "gone" in demonstrator.error
    finally:
        await env.shutdown()
