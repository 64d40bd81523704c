"""Chat completions of a model session, answered like any other and recorded.

A model of this machine is asked for token ids as well: they are recorded, and left out of the answer unless the caller
asked for them. What an endpoint says is passed on as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, cast

from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from benchmax import limits
from benchmax.errors import ContextExceeded, UsageError
from benchmax.models.openai_error_bodies import FAILED, error_response
from benchmax.net import sse
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import models
from benchmax.platform.server.services.completions import Gone, answer
from benchmax.platform.server.services.model_sessions import ModelSession, ModelSessions
from benchmax.platform.server.services.models import ChosenModel
from benchmax.platform.server.services.streamed_reply import StreamedReply, objects
from benchmax.platform.wire.base import Time

BROKEN_OFF = "The client hung up, or the session ended, before the answer was whole."
_CALL_BYTES = limits.MODEL_SESSION_BYTES // 2
"""Of one call; a larger one is recorded without its texts."""
_TIME = TypeAdapter(Time)


async def recorded_answer(services: Services, session: ModelSession, body: Mapping[str, Any], gone: Gone) -> Response:
    """The answer of the session's model, whole or streamed."""
    call = _Call(services.model_sessions, session, body)
    try:
        chosen = await run_in_threadpool(models.choose_own, services, session.owner_id, session.asked_model)
        response = await answer(services, chosen, _bounded(session, chosen, body), gone)
    except UsageError as error:
        status, problem = error_response(error)
        return _record_whole(call, JSONResponse(problem, status), hidden=False)
    except Exception:
        call.end({}, _failure(500, FAILED))
        raise
    hidden = not chosen.base_url and not body.get("return_token_ids")
    if not isinstance(response, StreamingResponse):
        return _record_whole(call, response, hidden)
    pieces = cast("AsyncGenerator[bytes, None]", response.body_iterator)
    response.body_iterator = _record_stream(call, pieces, hidden)
    return response


def _bounded(session: ModelSession, chosen: ChosenModel, body: Mapping[str, Any]) -> dict[str, Any]:
    """The request with the session's context, for a model that counts tokens before it answers."""
    if chosen.base_url:
        return dict(body)
    most = session.max_context_tokens
    return {**body, "return_token_ids": True, **({"max_context_tokens": most} if most else {})}


class _Call:
    """One call, from its beginning to its record."""

    def __init__(self, sessions: ModelSessions, session: ModelSession, body: Mapping[str, Any]) -> None:
        self.session = session
        self._sessions = sessions
        self._body = body
        self._began = time.time()
        self._number = sessions.begin_call(session)

    def end(self, reply: Mapping[str, Any], error: Mapping[str, Any] | None) -> None:
        """Record it with what was answered."""
        about = self._about(reply)
        full = _encoded({**about, **_asked(self._body), **_answered(reply), "error": error, "left_out": False})
        if full is not None and len(full) <= _CALL_BYTES:
            self._sessions.keep_call(self.session, self._number, full, whole=True)
            return
        bare = _encoded({**about, **_asked({}), **_answered({}), "error": error, "left_out": True}) or b"{}"
        self._sessions.keep_call(self.session, self._number, bare, whole=False)

    def _about(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        model = reply.get("model")
        return {
            "index": self._number,
            "created_at": _TIME.dump_python(self._began),
            "seconds": round(time.time() - self._began, 3),
            "stream": bool(self._body.get("stream")),
            "asked_model": str(self._body.get("model", "")),
            "model": model[:200] if isinstance(model, str) else None,
        }


def _asked(body: Mapping[str, Any]) -> dict[str, Any]:
    others = {name: value for name, value in body.items() if name not in ("messages", "tools", "model", "stream")}
    return {"messages": body.get("messages") or [], "tools": body.get("tools") or [], "sampling": others}


def _answered(reply: Mapping[str, Any]) -> dict[str, Any]:
    choices = objects(reply.get("choices"))
    first: Mapping[str, Any] = choices[0] if choices else {}
    prompt, drawn = reply.get("prompt_token_ids"), [choice.get("token_ids") for choice in choices]
    return {
        "message": first.get("message"),
        "finish_reason": first.get("finish_reason"),
        "choices": choices if len(choices) > 1 else [],
        "usage": reply.get("usage") or _counted(prompt, drawn),
        "prompt_token_ids": prompt,
        "token_ids": first.get("token_ids"),
    }


def _counted(prompt: Any, drawn: list[Any]) -> dict[str, int] | None:
    """The usage of a stream that did not say it."""
    if not isinstance(prompt, list):
        return None
    spent = sum(len(ids) for ids in drawn if isinstance(ids, list))
    return {"prompt_tokens": len(prompt), "completion_tokens": spent, "total_tokens": len(prompt) + spent}


def _encoded(call: Mapping[str, Any]) -> bytes | None:
    """None for what JSON cannot hold: NaN, or values nested too deeply."""
    try:
        return json.dumps(call, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None


# Whole answers


def _record_whole(call: _Call, response: Response, hidden: bool) -> Response:
    """Record a whole answer, and return it; without its token ids where they are `hidden`."""
    reply = json.loads(bytes(response.body))
    if response.status_code != 200:
        call.end({}, _failure(response.status_code, reply.get("error")))
        return response
    headers = {name: value for name, value in response.headers.items() if name.startswith("x-benchmax")}
    if (too_long := _context_error(call.session, reply)) is not None:
        status, problem = error_response(too_long)
        call.end(reply, _failure(status, problem["error"]))
        return JSONResponse(problem, status, headers)
    call.end(reply, None)
    return JSONResponse(_without_ids(reply), headers=headers) if hidden else response


def _context_error(session: ModelSession, reply: Mapping[str, Any]) -> ContextExceeded | None:
    """Whether the prompt was too long; an endpoint says only with its answer how many tokens there were."""
    most, usage = session.max_context_tokens, reply.get("usage")
    spent = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if most is None or not isinstance(spent, int) or spent < most:
        return None
    return ContextExceeded(
        f"The conversation has {spent} tokens; the session allows {most} with its reply. "
        "Shorten the prompt or the tool output, or open the session with a larger max_context_tokens."
    )


def _failure(status: int, error: Any) -> dict[str, Any]:
    known = error if isinstance(error, dict) else {"message": error}
    code = known.get("code")
    words = str(known.get("message", ""))[: limits.ERROR_CHARS]
    return {"status": status, "message": words, "code": code if isinstance(code, str) else None}


# Streams


async def _record_stream(call: _Call, pieces: AsyncGenerator[bytes, None], hidden: bool) -> AsyncIterator[bytes]:
    reply, whole = StreamedReply(), False
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                chunks = reply.feed(piece)
                if shown := b"".join(map(_shown, chunks)) if hidden and chunks else piece:
                    yield shown
        whole = True
    finally:
        error = _failure(200, reply.error) if reply.error else None
        call.end(reply.whole(), error if whole or error else _failure(200, BROKEN_OFF))


def _shown(chunk: Mapping[str, Any]) -> bytes:
    """An event of a local model as it is without token ids; nothing, where it was sent for their sake alone."""
    plain = _without_ids(chunk)
    if plain.get("choices") and all(map(_is_silent, plain["choices"])):
        return b""
    return sse.event(plain)


def _is_silent(choice: Mapping[str, Any]) -> bool:
    return choice["delta"] == {"content": ""} and not choice["logprobs"] and not choice["finish_reason"]


def _without_ids(reply: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in reply.items() if name != "prompt_token_ids"}
    if "choices" in plain:
        plain["choices"] = [{k: v for k, v in choice.items() if k != "token_ids"} for choice in plain["choices"]]
    return plain
