"""Requests of the OpenAI API, answered by a local model: whole, or as a stream of chunks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmax.envs.types import ChatMessage, ToolDefinition
from benchmax.errors import BenchmaxError, ContextExceeded
from benchmax.inference.local import LocalModel
from benchmax.inference.server import openai_api as api
from benchmax.inference.server.stream import TextStream
from benchmax.inference.tokens.chat import parse_reply
from benchmax.inference.tokens.conversation_cache import ConversationCache
from benchmax.inference.tokens.token_model import Sampled, finish_reason
from benchmax.models.base import Sampling
from benchmax.models.text_tools import plain_text

RequestT = TypeVar("RequestT", bound=api.Request)
PreparedT = TypeVar("PreparedT")


class StreamFailed(Exception):
    """A stream broke after its first chunk; `body` is the error to send."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        known = isinstance(error, BenchmaxError)
        self.body = api.error_body(str(error) if known else "The server failed.", kind="server_error")


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


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat request, tokenised."""

    request: api.ChatRequest
    messages: list[ChatMessage]
    tools: tuple[ToolDefinition, ...]
    prompt: list[int]
    prompt_turns: int

    @property
    def jobs(self) -> list[_Job]:
        drawn = (self.request.sampling(index) for index in range(self.request.n))
        return [_Job(i, self.prompt, each.with_seed(each.seed, self._most)) for i, each in enumerate(drawn)]

    @property
    def _most(self) -> int | None:
        """Tokens of a reply: as many as were asked for, and fit the context that was."""
        context, asked = self.request.max_context_tokens, self.request.max_tokens
        room = None if context is None else context - len(self.prompt)
        return min((each for each in (asked, room) if each is not None), default=None)


@dataclass(slots=True)
class _StreamedChoice:
    """A completion while it is streamed."""

    job: _Job
    text: TextStream
    offset: int = 0
    """Where in the text its next token begins."""


class LocalCompletions:
    """Answers requests with a local model."""

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        self.conversations = ConversationCache(model.chat)

    async def chat(self, request: api.ChatRequest) -> api.Json:
        chat = await _prepared(self._prepare_chat, request)
        drawn = await _all(self.model, chat.jobs)
        choices = [self._chat_choice(chat, index, sampled) for index, sampled in enumerate(drawn)]
        more: api.Json = {"usage": api.usage(len(chat.prompt), sum(len(sampled.ids) for sampled in drawn))}
        if request.return_token_ids:
            more["prompt_token_ids"] = chat.prompt
        return api.Reply("chat.completion", self.model.name).body(choices, **more)

    async def complete(self, request: api.CompletionRequest) -> api.Json:
        jobs = await _prepared(self._completion_jobs, request)
        drawn = await _all(self.model, jobs)
        choices = [
            api.completion_choice(self.model.chat, request, job.index, job.prompt, sampled)
            for job, sampled in zip(jobs, drawn, strict=True)
        ]
        spent = api.usage(_prompt_tokens(jobs), sum(len(sampled.ids) for sampled in drawn))
        return api.Reply("text_completion", self.model.name).body(choices, usage=spent)

    async def chat_stream(self, request: api.ChatRequest) -> AsyncGenerator[api.Json, None]:
        chat = await _prepared(self._prepare_chat, request)
        reply = api.Reply("chat.completion.chunk", self.model.name)
        more: api.Json = {"usage": None} if request.stream_options.include_usage else {}
        opening = {"prompt_token_ids": chat.prompt} if request.return_token_ids else {}
        texts = [self._text_stream(job, tools=bool(chat.tools)) for job in chat.jobs]
        spent = 0
        async with contextlib.aclosing(_pieces(self.model, chat.jobs)) as pieces:
            roles = [_chunk(index, {"role": "assistant", "content": ""}) for index in range(request.n)]
            async for piece in pieces:
                while roles:  # only now: before the first token an error can still be an error reply
                    yield reply.body([roles.pop(0)], **more, **opening)
                spent += len(piece.ids)
                for choice in self._chat_chunks(chat, texts[piece.index], piece):
                    yield reply.body([choice], **more)
        if request.stream_options.include_usage:
            yield reply.body([], usage=api.usage(len(chat.prompt), spent))

    async def complete_stream(self, request: api.CompletionRequest) -> AsyncGenerator[api.Json, None]:
        jobs = await _prepared(self._completion_jobs, request)
        reply = api.Reply("text_completion", self.model.name)
        more: api.Json = {"usage": None} if request.stream_options.include_usage else {}
        streamed = [_StreamedChoice(job, self._text_stream(job)) for job in jobs]
        spent = 0
        async with contextlib.aclosing(_pieces(self.model, jobs)) as pieces:
            async for piece in pieces:
                spent += len(piece.ids)
                yield reply.body([self._completion_chunk(request, streamed[piece.index], piece)], **more)
        if request.stream_options.include_usage:
            yield reply.body([], usage=api.usage(_prompt_tokens(jobs), spent))

    def _prepare_chat(self, request: api.ChatRequest) -> _Chat:
        messages, tools = request.chat(), request.definitions()
        # Templates may drop parts of what an assistant said, such as its thoughts, and whitespace.
        given = (plain_text(message.get("content")) for message in messages if message["role"] != "assistant")
        described = sum(len(tool.description or "") for tool in tools)
        self._check_length(described + sum(len(text.strip()) for text in given))
        prompt, prompt_turns = self.conversations.prompt(messages, tools)
        if len(prompt) >= (request.max_context_tokens or len(prompt) + 1):
            raise ContextExceeded(
                f"The conversation has {len(prompt)} tokens; {request.max_context_tokens} were allowed for it with its "
                "reply. Shorten the prompt or the tool output."
            )
        return _Chat(request, messages, tools, prompt, prompt_turns)

    def _completion_jobs(self, request: api.CompletionRequest) -> list[_Job]:
        self._check_length(max((len(prompt) for prompt in request.each() if isinstance(prompt, str)), default=0))
        prompts = [prompt for prompt in request.prompts(self.model.chat) for _ in range(request.n)]
        return [_Job(index, prompt, request.sampling(index)) for index, prompt in enumerate(prompts)]

    def _check_length(self, characters: int) -> None:
        """Raise ContextExceeded for a text that cannot fit however few tokens it makes: counting them may take long."""
        if characters > self.model.context * self.model.chat.longest_token:
            raise ContextExceeded(
                f"The conversation has {characters:,} characters; {self.model.name} takes {self.model.context} tokens "
                "with its reply. Shorten the prompt or the tool output."
            )

    def _text_stream(self, job: _Job, *, tools: bool = False) -> TextStream:
        return TextStream(self.model.chat, job.sampling.stop, tools=tools)

    def _message(self, chat: _Chat, sampled: Sampled, index: int) -> ChatMessage:
        message = parse_reply(sampled.text, tools=bool(chat.tools), salt=(len(chat.prompt), index))
        self.conversations.keep(
            chat.messages,
            message,
            chat.tools,
            [*chat.prompt, *sampled.ids],
            chat.prompt_turns,
        )
        return message

    def _chat_choice(self, chat: _Chat, index: int, sampled: Sampled) -> api.Json:
        message = self._message(chat, sampled, index)
        choice: api.Json = {"index": index, "message": api.chat_message(message), "logprobs": None}
        choice["finish_reason"] = finish_reason(sampled, message)
        return choice | self._token_fields(chat.request, sampled.ids, sampled.logprobs)

    def _token_fields(self, request: api.ChatRequest, ids: Sequence[int], logprobs: Sequence[float]) -> api.Json:
        fields: api.Json = {}
        if request.logprobs:
            fields["logprobs"] = api.chat_logprobs(self.model.chat, ids, logprobs)
        if request.return_token_ids:
            fields["token_ids"] = list(ids)
        return fields

    def _chat_chunks(self, chat: _Chat, text: TextStream, piece: _Piece) -> list[api.Json]:
        """The chunks to send for a piece; tokens whose text is held back are still sent when asked for."""
        if piece.done is None:
            new = text.push(piece.ids)
            tokens = self._token_fields(chat.request, piece.ids, piece.logprobs)
            return [_chunk(piece.index, {"content": new}) | tokens] if new or tokens else []
        message = self._message(chat, piece.done, piece.index)
        chunks = []
        if rest := text.finish(message["content"]):
            chunks.append(_chunk(piece.index, {"content": rest}))
        for place, call in enumerate(message.get("tool_calls") or ()):
            chunks.append(_chunk(piece.index, {"tool_calls": [{"index": place, **call}]}))
        return [*chunks, _chunk(piece.index, {}) | {"finish_reason": finish_reason(piece.done, message)}]

    def _completion_chunk(self, request: api.CompletionRequest, streamed: _StreamedChoice, piece: _Piece) -> api.Json:
        shown = streamed.text.push(piece.ids) if piece.done is None else streamed.text.finish(piece.done.text)
        finish = piece.done.finish if piece.done else None
        choice: api.Json = {"index": piece.index, "text": shown, "finish_reason": finish, "logprobs": None}
        if request.logprobs is not None:
            choice["logprobs"] = api.completion_logprobs(self.model.chat, piece.ids, piece.logprobs, streamed.offset)
            streamed.offset += sum(map(len, choice["logprobs"]["tokens"]))
        if request.return_token_ids:
            choice |= {"token_ids": list(piece.ids), "prompt_token_ids": streamed.job.prompt}
        return choice


def _chunk(index: int, delta: dict[str, Any]) -> api.Json:
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


def _prompt_tokens(jobs: list[_Job]) -> int:
    """Prompt tokens, each prompt counted once however many choices it has."""
    return sum(len(prompt) for prompt in {id(job.prompt): job.prompt for job in jobs}.values())


async def _prepared(prepare: Callable[[RequestT], PreparedT], request: RequestT) -> PreparedT:
    """A request tokenised, in a thread when it is long; a short one would only take longer there."""
    return await asyncio.to_thread(prepare, request) if request.is_long else prepare(request)


async def _all(model: LocalModel, jobs: list[_Job]) -> list[Sampled]:
    """Sample every choice; when one fails or the client disconnects, the others are cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(model.complete(job.prompt, job.sampling)) for job in jobs]
    except* Exception as errors:
        raise _first(errors) from None
    return [task.result() for task in tasks]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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
