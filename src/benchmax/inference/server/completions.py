"""Requests of the OpenAI API, answered by a local model: whole, or as a stream of chunks."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmax.concurrency import all_or_cancel
from benchmax.envs.types import ChatMessage
from benchmax.errors import BenchmaxError, ContextExceeded, ModelUnavailable
from benchmax.inference.local_model import LocalModel
from benchmax.inference.server import openai_api as api
from benchmax.inference.server.stream import TextStream
from benchmax.inference.tokens.chat import parse_reply
from benchmax.inference.tokens.conversation_cache import ConversationCache
from benchmax.inference.tokens.token_model import Sampled, finish_reason
from benchmax.models.base import Sampling
from benchmax.models.chat_api import turn_cap
from benchmax.models.openai_error_bodies import error_body, error_response
from benchmax.models.text_tools import plain_text


class StreamFailed(Exception):
    """A stream broke after its first chunk; `body` is the error to send."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        known = isinstance(error, BenchmaxError)
        self.body = error_body(str(error) if known else "The server failed.", kind="server_error")


@dataclass(frozen=True, slots=True)
class _Job:
    """One choice to be sampled."""

    index: int
    prompt: list[int]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of one choice: new tokens, or at the end, as `done`, all of it."""

    index: int
    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    done: Sampled | None = None


class _Answer(ABC):
    """A request, tokenised, and the parts of its reply."""

    whole_kind: api.Kind = "text_completion"
    chunk_kind: api.Kind = "text_completion"

    def __init__(self, server: LocalCompletions, jobs: list[_Job], *, tools: bool = False) -> None:
        self.server, self.model, self.jobs = server, server.model, jobs
        self.texts = [TextStream(self.model.chat, job.sampling.stop, tools=tools) for job in jobs]
        self.opening: list[api.Json] = []
        """Choices that begin a stream."""
        self.about: api.Json = {}
        """Fields of the whole reply, or of the opening of a stream."""

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens, each prompt counted once however many choices it has."""
        return sum(len(prompt) for prompt in {id(job.prompt): job.prompt for job in self.jobs}.values())

    @abstractmethod
    def choice(self, index: int, sampled: Sampled) -> api.Json:
        """A whole choice."""

    @abstractmethod
    def chunks(self, piece: _Piece) -> list[api.Json]:
        """What to send of a choice when a piece of it has come."""


class _Chat(_Answer):
    """A chat."""

    whole_kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, server: LocalCompletions, request: api.ChatRequest) -> None:
        self.request = request
        self.messages, self.tools = request.chat(), request.definitions()
        self._check_length(server)
        self.prompt, self.prompt_turns = server.conversations.prompt(self.messages, self.tools)
        context = request.max_context_tokens
        if context is not None and len(self.prompt) >= context:
            raise ContextExceeded(
                f"The conversation has {len(self.prompt)} tokens; {context} were allowed for it with its reply. "
                "Shorten the prompt or the tool output."
            )
        room = None if context is None else context - len(self.prompt)
        drawn = (request.sampling(index) for index in range(request.n))
        jobs = [_Job(i, self.prompt, each.with_seed(each.seed, turn_cap(each, room))) for i, each in enumerate(drawn)]
        super().__init__(server, jobs, tools=bool(self.tools))
        self.opening = [_chunk(job.index, {"role": "assistant", "content": ""}) for job in jobs]
        self.about = {"prompt_token_ids": self.prompt} if request.return_token_ids else {}

    def _check_length(self, server: LocalCompletions) -> None:
        # Templates may drop parts of what an assistant said, such as its thoughts, and whitespace.
        given = (plain_text(message.get("content")) for message in self.messages if message["role"] != "assistant")
        described = sum(len(tool.description or "") for tool in self.tools)
        server.check_length(described + sum(len(text.strip()) for text in given))

    def choice(self, index: int, sampled: Sampled) -> api.Json:
        message = self._message(index, sampled)
        choice: api.Json = {"index": index, "message": api.chat_message(message), "logprobs": None}
        choice["finish_reason"] = finish_reason(sampled, message)
        return choice | self._token_fields(sampled.ids, sampled.logprobs)

    def chunks(self, piece: _Piece) -> list[api.Json]:
        """Tokens whose text is held back are still sent when asked for."""
        text = self.texts[piece.index]
        if piece.done is None:
            new = text.push(piece.ids)
            tokens = self._token_fields(piece.ids, piece.logprobs)
            return [_chunk(piece.index, {"content": new}) | tokens] if new or tokens else []
        message = self._message(piece.index, piece.done)
        chunks = []
        if rest := text.finish(message["content"]):
            chunks.append(_chunk(piece.index, {"content": rest}))
        for place, call in enumerate(message.get("tool_calls") or ()):
            chunks.append(_chunk(piece.index, {"tool_calls": [{"index": place, **call}]}))
        return [*chunks, _chunk(piece.index, {}) | {"finish_reason": finish_reason(piece.done, message)}]

    def _message(self, index: int, sampled: Sampled) -> ChatMessage:
        message = parse_reply(sampled.text, tools=bool(self.tools), salt=(len(self.prompt), index))
        ids = [*self.prompt, *sampled.ids]
        self.server.conversations.keep(self.messages, message, self.tools, ids, self.prompt_turns)
        return message

    def _token_fields(self, ids: Sequence[int], logprobs: Sequence[float]) -> api.Json:
        fields: api.Json = {}
        if self.request.logprobs:
            fields["logprobs"] = api.chat_logprobs(self.model.chat, ids, logprobs)
        if self.request.return_token_ids:
            fields["token_ids"] = list(ids)
        return fields


class _Completion(_Answer):
    """A plain completion; a whole choice is a chunk of all its tokens."""

    def __init__(self, server: LocalCompletions, request: api.CompletionRequest) -> None:
        self.request = request
        server.check_length(max((len(prompt) for prompt in request.each() if isinstance(prompt, str)), default=0))
        prompts = [prompt for prompt in request.prompts(server.model.chat) for _ in range(request.n)]
        jobs = [_Job(index, prompt, request.sampling(index)) for index, prompt in enumerate(prompts)]
        super().__init__(server, jobs)
        self.offsets = [0] * len(jobs)
        """Where in the text of each choice its next token begins."""

    def choice(self, index: int, sampled: Sampled) -> api.Json:
        return self._chunk(_Piece(index, sampled.ids, sampled.logprobs), sampled.text, sampled.finish)

    def chunks(self, piece: _Piece) -> list[api.Json]:
        text = self.texts[piece.index]
        if piece.done is None:
            return [self._chunk(piece, text.push(piece.ids), None)]
        return [self._chunk(piece, text.finish(piece.done.text), piece.done.finish)]

    def _chunk(self, piece: _Piece, text: str, finish: str | None) -> api.Json:
        index = piece.index
        choice: api.Json = {"index": index, "text": text, "finish_reason": finish, "logprobs": None}
        if self.request.logprobs is not None:
            known = api.completion_logprobs(self.model.chat, piece.ids, piece.logprobs, self.offsets[index])
            choice["logprobs"] = known
            self.offsets[index] += sum(map(len, known["tokens"]))
        if self.request.return_token_ids:
            choice |= {"token_ids": list(piece.ids), "prompt_token_ids": self.jobs[index].prompt}
        return choice


class LocalCompletions:
    """Answers requests with a local model."""

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        self.conversations = ConversationCache(model.chat)

    async def whole(self, request: api.ChatRequest | api.CompletionRequest) -> api.Json:
        """The reply in one piece."""
        answer = await self._prepared(request)
        # When one choice fails or the client disconnects, the others are cancelled.
        drawn = await all_or_cancel(self.model.complete(job.prompt, job.sampling) for job in answer.jobs)
        choices = [answer.choice(index, sampled) for index, sampled in enumerate(drawn)]
        spent = api.usage(answer.prompt_tokens, sum(len(sampled.ids) for sampled in drawn))
        head = api.reply_head(answer.whole_kind, self.model.name)
        return {**head, "choices": choices, "usage": spent, **answer.about}

    async def stream(self, request: api.ChatRequest | api.CompletionRequest) -> AsyncGenerator[api.Json, None]:
        """The reply in chunks."""
        answer = await self._prepared(request)
        head, spent = api.reply_head(answer.chunk_kind, self.model.name), 0
        counted = request.stream_options.include_usage
        more: api.Json = {"usage": None} if counted else {}
        async with contextlib.aclosing(_pieces(self.model, answer.jobs)) as pieces:
            async for piece in pieces:
                while answer.opening:  # only now: before the first token an error can still be an error reply
                    yield {**head, "choices": [answer.opening.pop(0)], **more, **answer.about}
                spent += len(piece.ids)
                for choice in answer.chunks(piece):
                    yield {**head, "choices": [choice], **more}
        if counted:
            yield {**head, "choices": [], "usage": api.usage(answer.prompt_tokens, spent)}

    def failure(self, error: Exception) -> tuple[int, api.Json]:
        """Status and body for an error; where it is unexpected, the engine may know why."""
        status, body = error_response(error)
        trouble = self.model.engine.trouble if status == 500 else ""
        return error_response(ModelUnavailable(trouble)) if trouble else (status, body)

    def check_length(self, characters: int) -> None:
        """Raise ContextExceeded for a text that cannot fit however few tokens it makes: counting them may take long."""
        if characters > self.model.context * self.model.chat.longest_token:
            raise ContextExceeded(
                f"The conversation has {characters:,} characters; {self.model.name} takes {self.model.context} tokens "
                "with its reply. Shorten the prompt or the tool output."
            )

    async def _prepared(self, request: api.ChatRequest | api.CompletionRequest) -> _Answer:
        """A request tokenised, in a thread when it is long; a short one would only take longer there."""
        kind: Any = _Chat if isinstance(request, api.ChatRequest) else _Completion
        answer: _Answer = await asyncio.to_thread(kind, self, request) if request.is_long else kind(self, request)
        return answer


def _chunk(index: int, delta: dict[str, Any]) -> api.Json:
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


async def _pieces(model: LocalModel, jobs: list[_Job]) -> AsyncGenerator[_Piece, None]:
    """Pieces of all choices as they come. An error before the first is raised as it is, a later one as StreamFailed."""
    queue: asyncio.Queue[_Piece | BaseException] = asyncio.Queue()
    tasks = [asyncio.create_task(_sample(model, job, queue)) for job in jobs]
    open_jobs, begun = len(jobs), False
    try:
        while open_jobs:
            piece = await queue.get()
            if isinstance(piece, BaseException):
                raise StreamFailed(piece) if begun else piece
            begun = True
            open_jobs -= piece.done is not None
            yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _sample(model: LocalModel, job: _Job, queue: asyncio.Queue[_Piece | BaseException]) -> None:
    loop = asyncio.get_running_loop()

    def on_tokens(ids: list[int], logprobs: list[float]) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, _Piece(job.index, ids, logprobs))

    try:
        sampled = await model.complete(job.prompt, job.sampling, on_tokens=on_tokens)
    except Exception as error:
        queue.put_nowait(error)
    else:
        queue.put_nowait(_Piece(job.index, done=sampled))
