"""Errors as the OpenAI API reports them: the status and the body that its clients expect."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from benchmax.errors import (
    ContextExceeded,
    ModelProtocolError,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    NotFoundError,
)

_ANSWERS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (ContextExceeded, 400, "invalid_request_error", "context_length_exceeded"),
    (NotFoundError, 404, "invalid_request_error", "model_not_found"),
    (ModelRateLimited, 429, "rate_limit_error", "rate_limit_exceeded"),
    (ModelUnavailable, 503, "server_error", "model_unavailable"),
    (ModelTimeout, 504, "server_error", "model_unavailable"),
    (ModelProtocolError, 502, "server_error", "model_unavailable"),
)
"""Errors with their status, type and code; the first that fits counts."""
FAILED = "The server failed; its log says why."


def error_body(message: str, *, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_response(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Status and body for an error; an unexpected one is a 500 that reveals nothing."""
    for known, status, kind, code in _ANSWERS:
        if isinstance(error, known):
            return status, error_body(str(error), kind=kind, code=code)
    if isinstance(error, RecursionError):
        return 400, error_body("The request is nested too deeply.")
    if isinstance(error, ModelRejected | ValueError):
        return 400, error_body(_first_issue(error) if isinstance(error, ValidationError) else str(error))
    return 500, error_body(FAILED, kind="server_error")


def _first_issue(error: ValidationError) -> str:
    issue = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in issue["loc"])
    message = issue["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
