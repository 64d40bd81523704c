"""A language model that grades answers, for corpora whose answers have many forms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from benchmax.envs.reward_helpers import accepted_answers
from benchmax.errors import UsageError
from benchmax.rewards.judge import Judge
from benchmax.rewards.rubric import Rubric, judge_rubric

TokenProvider = Callable[[], str | Awaitable[str | None] | None]
CORRECT = Rubric(
    "Correctness",
    "The response states the same as the reference answer. Only what it says in answer to the question counts; "
    "several candidates are no answer.",
    score_map={0.0: "wrong, or no answer", 0.5: "partly right", 1.0: "right and complete"},
)


class AnswerJudge:
    """Grades answers with a model; it can be pickled, and asks for its key when it is first used."""

    def __init__(self, base_url: str | None, model: str | None, token: TokenProvider | None, timeout: float) -> None:
        if not model or not base_url:
            raise UsageError("A judge needs both judge_base_url and judge_model. Give both, or neither.")
        self._base_url, self._model, self._token, self._timeout = base_url, model, token, timeout
        self._judge: Judge | None = None

    async def grade(self, question: str, answer: str, truth: Any) -> float:
        """0, 0.5 or 1. Raises JudgeError when there is no verdict."""
        if not answer.strip():
            return 0.0
        judge = self._judge or self._opened(await self._key())
        reference = " / ".join(accepted_answers(truth))
        return (await judge_rubric(judge, CORRECT, question, answer, reference)).score

    def _opened(self, key: str | None) -> Judge:
        """The one judge, whichever of several first answers asks for it."""
        if self._judge is None:
            self._judge = Judge(
                name=self._model, base_url=self._base_url, api_key=key, timeout=self._timeout, cache=10_000
            )
        return self._judge

    async def close(self) -> None:
        if self._judge is not None:
            judge, self._judge = self._judge, None
            await judge.aclose()

    async def _key(self) -> str | None:
        if self._token is None:
            return None
        found = await asyncio.to_thread(self._token)
        return found if isinstance(found, str) or found is None else await found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._base_url, self._model, self._token, self._timeout)
