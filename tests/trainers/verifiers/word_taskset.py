"""A taskset as somebody writes one for verifiers: rewards with weights, a metric, state, a file in the runtime."""

from __future__ import annotations

import verifiers.v1 as vf

__all__ = ["WordTaskset"]


class WordData(vf.TaskData):
    word: str


class WordState(vf.State):
    folder: str = ""


class WordTask(vf.Task[WordData, WordState, vf.TaskConfig]):
    async def setup(self, trace, runtime):
        await runtime.write("word.txt", self.data.word.encode())
        trace.state.folder = "ready"

    @vf.reward(weight=2.0)
    async def reversed_word(self, trace, runtime) -> float:
        word = (await runtime.read("word.txt")).decode()
        assert trace.state.folder == "ready"
        return float(trace.last_reply == word[::-1])

    @vf.reward
    async def form(self, trace) -> dict[str, float]:
        if trace.last_reply == "crash":
            raise RuntimeError("the scorer is out")
        return {"lower": float(trace.last_reply.islower()), "turns": 0.5 * trace.num_turns}


class WordConfig(vf.TasksetConfig):
    words: int = 3


class WordTaskset(vf.Taskset[WordTask, WordConfig]):
    def load(self):
        for word in ["abc", "tool", "river", "stone"][: self.config.words]:
            data = WordData(prompt=f"Reverse {word}.", system_prompt="Only the word.", word=word)
            yield WordTask(data, self.config.task)
