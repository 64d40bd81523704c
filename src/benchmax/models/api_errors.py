"""Errors as the OpenAI API reports them: the status and the body that its clients expect."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from benchmax.errors import (
    ContextExceeded,
    ModelError,
    ModelProtocolError,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    NotFoundError,
)

_UPSTREAM: dict[type[ModelError], int] = {ModelUnavailable: 503, ModelTimeout: 504, ModelProtocolError: 502}
FAILED = "The server failed; its log says why."


def error_body(message: str, *, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_response(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Status and body for an error; an unexpected one is a 500 that reveals nothing."""
    if isinstance(error, ContextExceeded):
        return 400, error_body(str(error), code="context_length_exceeded")
    if isinstance(error, NotFoundError):
        return 404, error_body(str(error), code="model_not_found")
    if isinstance(error, ModelRateLimited):
        return 429, error_body(str(error), kind="rate_limit_error", code="rate_limit_exceeded")
    for kind, status in _UPSTREAM.items():
        if isinstance(error, kind):
            return status, error_body(str(error), kind="server_error", code="model_unavailable")
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
