"""The environment's own solution of an example, played as a model's answer would be: through the real tools."""

from __future__ import annotations

from itertools import takewhile

from benchmax.envs.demonstration import Script, Turn
from benchmax.envs.types import ChatMessage, Example
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings

DONE = "Done."


async def play_demonstration(
    host: EnvHost, example: Example, settings: RolloutSettings = RolloutSettings()
) -> tuple[Rollout, list[Turn]] | None:
    """The rollout of `demonstrate`, and its turns; None where the environment has no solution for the example."""
    turns, deadline = list[Turn](), settings.tool_seconds
    script = await host.perform(Script.of, host.env.demonstrate, example, deadline=deadline, label="demonstrate")
    if script is None:
        return None

    async def next_turn(messages: list[ChatMessage]) -> Turn:
        since_last_turn = takewhile(lambda message: message["role"] == "tool", reversed(messages))
        results = [str(message.get("content")) for message in since_last_turn][::-1]
        turn = await host.perform(script.turn, results, deadline=deadline, label="demonstrate")
        turns.append(DONE if turn is None else turn)
        return turns[-1]

    return await run_rollout(host, example, ScriptedModel(next_turn, name="demonstrate"), settings), turns
