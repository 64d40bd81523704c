"""Every answer that is not a success: `{"error": text}`. What the caller can fix is explained; the rest is logged."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, TypeVar

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, OperationalError
from starlette.exceptions import HTTPException

from benchmax.errors import BenchmaxError, NotFoundError

log = structlog.get_logger("benchmax.server")
T = TypeVar("T")

_DAMAGED = ("malformed", "not a database", "invalid page")
"""Words of databases for a file that is damaged."""
_HANDLED = (HTTPException, RequestValidationError, BenchmaxError, DatabaseError, UnicodeEncodeError, RecursionError)


class Refused(HTTPException):
    """A refusal with its status and message."""

    def __init__(self, status: int, words: str, **headers: str) -> None:
        super().__init__(status, words, {name.replace("_", "-"): value for name, value in headers.items()} or None)


def required(found: T | None, words: str) -> T:
    """What was looked up; Refused (404) with these words when it is not there, or not the caller's."""
    if found is None:
        raise Refused(404, words)
    return found


def problem(status: int, words: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": words}, status, headers)


def install(app: FastAPI) -> None:
    for kind in _HANDLED:
        app.add_exception_handler(kind, _handle)


def unexpected(error: Exception) -> JSONResponse:
    """500: an id to find it in the log by, and nothing else."""
    if isinstance(error, OperationalError):
        log.error("database", exc_info=error)
        return problem(503, "The database cannot be reached or written now. Try again.", {"Retry-After": "5"})
    if isinstance(error, DatabaseError) and any(words in str(error.orig) for words in _DAMAGED):
        log.error("database", exc_info=error)
        return problem(503, "The platform's database is damaged. Its administrator should restore a backup.")
    number = f"err_{secrets.token_hex(8)}"
    log.error("unexpected", id=number, exc_info=error)
    return problem(500, f"Something went wrong on the server ({number}). The server's log has the details.")


async def _handle(_: Request, error: Exception) -> JSONResponse:
    match error:
        case HTTPException():
            return problem(error.status_code, str(error.detail), dict(error.headers or {}))
        case RequestValidationError():  # 400, as clients of the published API expect, not 422
            return problem(400, "; ".join(map(_message, error.errors()))[:2000])
        case BenchmaxError():
            return problem(404 if isinstance(error, NotFoundError) else 400, str(error))
        case IntegrityError():  # two requests used the same name at the same moment
            log.warning("taken", exc_info=error)
            return problem(409, "Another request changed the same thing at the same moment. Look, then try again.")
        case DataError() | UnicodeEncodeError() | RecursionError():
            return problem(
                400, "A value cannot be stored: half a character, a number out of range, or nested too deep."
            )
    return unexpected(error)


def _message(issue: Mapping[str, Any]) -> str:
    """What is wrong with one value, and where it stands."""
    where = ".".join(str(part) for part in issue["loc"][1:])
    kind, context = issue["type"], issue.get("ctx", {})
    if kind == "json_invalid":
        return f"The body is not JSON: {context.get('error')}, at character {where}. Send one JSON object."
    if not where and issue["loc"][0] == "body":
        return "The body is not a JSON object. Send one, with Content-Type: application/json."
    if kind == "string_pattern_mismatch":
        said = f"{str(issue['input'])[:80]!r} does not have the expected form"
    elif kind == "too_long":
        said = f"has a length of {context.get('actual_length')}; at most {context.get('max_length')} is taken"
    else:
        said = issue["msg"].removeprefix("Value error, ")
    return f"{where or issue['loc'][0]}: {said}"
