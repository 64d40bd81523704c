"""What goes wrong with a model call, as typed errors, and how long to wait before the next try."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmax import retries
from benchmax.errors import ContextExceeded, ModelError, ModelRateLimited, ModelRejected, ModelTimeout, ModelUnavailable
from benchmax.files.redaction import Redactor
from benchmax.models.chat_api import excerpt, not_the_api

LONGEST_PAUSE = 8.0
_SAID_CHARS = 2000
"""How much of an error body is read for a message; of that, an excerpt is shown."""
_SECRET_CHARS = 4
"""A password in a URL may be shorter than a key."""

# OpenAI and vLLM; vLLM's decoder; llama.cpp; SGLang; TGI; Anthropic and those who follow it.
TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|longer than the maximum model length"
    r"|exceed_context_size|exceeds? the available context|context (size|window|length) (has been )?exceeded"
    r"|longer than the model's context length|exceeds the maximum allowed length"
    r"|tokens. \+ .max_new_tokens. must be|prompt is too long|max_tokens must be at least 1, got (0|-\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model's address as error messages show it, and the secrets they must not show."""

    model: str
    url: str
    key_hint: str
    secrets: tuple[str, ...] = ()

    def clean(self, text: str) -> str:
        """The beginning of a text, without the secrets."""
        return Redactor(self.secrets, _SECRET_CHARS)(text[:_SAID_CHARS])


def refused(endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error for a reply with a status other than success."""
    code, text = _said(body)
    said = excerpt(endpoint.clean(text))
    answer = f"{endpoint.url} answered {status}: {said}"
    if (status in (400, 413, 422) or status >= 500) and TOO_LONG.search(f"{code} {text}"):
        return ContextExceeded(f"The conversation no longer fits {endpoint.model}: {said}. Shorten it.")
    if status == 413:
        return ContextExceeded(f"{answer}. The conversation is too large for this server; shorten it.")
    if status == 429 and "insufficient_quota" not in code:
        wait = retries.retry_after(headers)
        return ModelRateLimited(f"{answer}. Lower the number of rollouts at once, or wait.", wait)
    if status in retries.TEMPORARY or status >= 500:
        return ModelUnavailable(f"{answer}. Look at the server's log.")
    return ModelRejected(f"{answer}. {_advice(endpoint, status, said)}", status)


def garbled(endpoint: Endpoint, body: bytes) -> ModelError:
    """The error for a success that holds no reply; some routers put an error status into the body."""
    try:
        status = json.loads(body)["error"]["code"]
    except (ValueError, RecursionError, LookupError, TypeError):
        status = None
    if isinstance(status, int) and 400 <= status < 600:
        return refused(endpoint, status, {}, body)
    return not_the_api(endpoint.clean(body[:_SAID_CHARS].decode("utf-8", "replace")))


def unreachable(endpoint: Endpoint, error: Exception) -> ModelUnavailable:
    reason = excerpt(endpoint.clean(str(error) or type(error).__name__))
    return ModelUnavailable(f"No answer from {endpoint.url}: {reason}. Check that the server is up and the URL right.")


def timed_out(endpoint: Endpoint, seconds: float, tries: int, last: ModelError | None) -> ModelTimeout:
    before = f" The last of {tries - 1} failed tries: {last}" if last else ""
    return ModelTimeout(
        f"{endpoint.model} at {endpoint.url} did not answer within {seconds:g} s.{before} "
        "Raise `timeout`, lower max_tokens, or look at the server's load."
    )


def wait_before(error: ModelError, tries: int, first: float) -> float:
    """Seconds until the next try."""
    asked = error.retry_after if isinstance(error, ModelRateLimited) else None
    return retries.pause(tries, first, LONGEST_PAUSE, asked)


def _said(body: bytes) -> tuple[str, str]:
    """The code and the message of an error body."""
    try:
        raw: Any = json.loads(body)
    except (ValueError, RecursionError):
        return "", body[:_SAID_CHARS].decode("utf-8", "replace")
    if isinstance(raw, list) and raw:
        raw = raw[0]
    error = raw.get("error", raw) if isinstance(raw, Mapping) else raw
    if not isinstance(error, Mapping):
        return "", str(error)
    code = f"{error.get('code') or ''} {error.get('type') or ''}"
    return code, str(error.get("message") or error.get("detail") or body[:_SAID_CHARS].decode("utf-8", "replace"))


def _advice(endpoint: Endpoint, status: int, said: str) -> str:
    if status in (401, 403):
        return endpoint.key_hint
    if status == 404:
        return f"Check the model name {endpoint.model!r} and the URL {endpoint.url}."
    if status == 429:
        return "The account has no quota left; check its plan and billing."
    if 300 <= status < 400:
        return "The server moved; set base_url to its new address."
    if "return_token_ids" in said:
        return "This server returns no token ids; create the model with token_ids=False."
    if "max_completion_tokens" in said:
        return 'Create the model with max_tokens_field="max_completion_tokens".'
    return "Correct the request: model name, sampling, tools and messages."
