"""The server's log: one JSON object a line on standard error, without keys and tokens."""

from __future__ import annotations

import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from benchmax.files.redaction import MARK

_SECRET = re.compile(
    r"sk_[0-9a-f]{8}_[\w-]{8,}|(?i:bearer\s+)[\w.~+/=-]{8,}|(?<=/uploads/)[\w-]{8,}|(?<=token=)[\w-]{8,}"
)


def configure() -> None:
    """Set logging up for a server process."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hide_secrets,
            structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def hide_secrets(_: Any, __: str, event: EventDict) -> EventDict:
    """Replace what looks like one of our keys or tokens."""
    return {name: _SECRET.sub(MARK, value) if isinstance(value, str) else value for name, value in event.items()}
