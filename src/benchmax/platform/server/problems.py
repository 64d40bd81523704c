"""Every answer that is not a success: `{"error": text}`. What the caller can fix is explained; the rest is logged."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, OperationalError
from starlette.exceptions import HTTPException

from benchmax.errors import BenchmaxError, NotFoundError

log = structlog.get_logger("benchmax.server")

DAMAGED = ("malformed", "not a database", "invalid page")
"""How databases call it."""


class Refused(HTTPException):
    """A refusal with its status and message."""

    def __init__(self, status: int, words: str, **headers: str) -> None:
        super().__init__(status, words, {name.replace("_", "-"): value for name, value in headers.items()} or None)


def problem(status: int, words: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": words}, status, headers)


def install(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(BenchmaxError, _usage)
    app.add_exception_handler(DatabaseError, _database)
    app.add_exception_handler(IntegrityError, _taken)
    app.add_exception_handler(DataError, _data)
    app.add_exception_handler(UnicodeEncodeError, _data)
    app.add_exception_handler(RecursionError, _data)


def unexpected(error: Exception) -> JSONResponse:
    """500: an id to find it in the log by, and nothing else."""
    if isinstance(error, OperationalError):
        return _busy(error)
    if isinstance(error, DatabaseError) and any(sign in str(error.orig) for sign in DAMAGED):
        log.error("database", exc_info=error)
        return problem(503, "The platform's database is damaged. Its administrator should restore a backup.")
    number = f"err_{secrets.token_hex(8)}"
    log.error("unexpected", id=number, exc_info=error)
    return problem(500, f"Something went wrong on the server ({number}). The server's log has the details.")


def _busy(error: OperationalError) -> JSONResponse:
    log.error("database", exc_info=error)
    return problem(503, "The database cannot be reached or written now. Try again.", {"Retry-After": "5"})


async def _refused(_: Request, error: Any) -> JSONResponse:
    return problem(error.status_code, str(error.detail), dict(error.headers or {}))


async def _usage(_: Request, error: Any) -> JSONResponse:
    return problem(404 if isinstance(error, NotFoundError) else 400, str(error))


async def _database(_: Request, error: Any) -> JSONResponse:
    return unexpected(error)


async def _taken(_: Request, error: Any) -> JSONResponse:
    """Two requests used the same name at the same moment."""
    log.warning("taken", exc_info=error)
    return problem(409, "Another request made or changed the same thing in this moment. Look, then try again.")


async def _data(_: Request, error: Any) -> JSONResponse:
    return problem(400, "A value cannot be stored: half a character, a number out of range, or nested too deep.")


async def _invalid(_: Request, error: Any) -> JSONResponse:
    """400, as clients of the published API expect, not 422."""
    return problem(400, "; ".join(map(_said, error.errors()))[:2000])


def _said(issue: Mapping[str, Any]) -> str:
    """What is wrong with one value, and where it stands."""
    where = ".".join(str(part) for part in issue["loc"][1:])
    kind, context = issue["type"], issue.get("ctx", {})
    if kind == "json_invalid":
        return f"The body is not JSON: {context.get('error')}, at character {where}. Send one JSON object."
    if not where and issue["loc"][0] == "body":
        return "The body is not a JSON object. Send one, with Content-Type: application/json."
    if kind == "string_pattern_mismatch":
        said = f"{str(issue['input'])[:80]!r} has not the form that is asked for"
    elif kind == "too_long":
        said = f"has a length of {context.get('actual_length')}; at most {context.get('max_length')} is taken"
    else:
        said = issue["msg"].removeprefix("Value error, ")
    return f"{where or issue['loc'][0]}: {said}"
