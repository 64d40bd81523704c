"""What every shape is made of: camelCase names, times in ISO 8601 (UTC), JSON that a database can hold."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from benchmax import limits
from benchmax.envs.datasets.rows import deeper

_FIRST_TIME, _LAST_TIME = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1, 9999))


def _iso(at: float) -> str:
    """A time in ISO 8601; a process may have written one that is out of range, which becomes the first or the last."""
    within = min(max(at, _FIRST_TIME), _LAST_TIME)
    return datetime.fromtimestamp(within, UTC).isoformat().replace("+00:00", "Z")


Time = Annotated[float, Field(allow_inf_nan=False), PlainSerializer(_iso, str)]


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what JSON or a database cannot hold: NaN, half characters, zero bytes."""
    if deeper(value, limits.JSON_DEPTH):
        raise ValueError(f"it is nested deeper than {limits.JSON_DEPTH} levels. Make it flatter.")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    if "\\u0000" in text.replace("\\\\", ""):  # after an escaped backslash, u0000 is plain text
        raise ValueError("zero bytes cannot be stored")
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_storable)]
"""An object a caller sends that is stored and given back."""

PlainText = Annotated[str, AfterValidator(lambda text: _storable({"text": text})["text"])]

_WEB_ADDRESS = r"^https?://[^\s@]+$"


def _web_address(url: str) -> str:
    if not re.fullmatch(_WEB_ADDRESS, url):
        raise ValueError(f"{url[:80]!r} is not a web address. Write it as https://host/v1, without user or password.")
    return url


WebAddress = Annotated[str, AfterValidator(_web_address), Field(json_schema_extra={"pattern": _WEB_ADDRESS})]


class Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class Success(Wire):
    success: bool
    message: str = ""


class Problem(BaseModel):
    """Every error's body."""

    error: str
