"""Values → literals of SOQL and SOSL, for those who write queries: no value can end its literal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from benchmax.envs.crm.org.base import malformed

_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_UNESCAPED = {written[1]: meant for meant, written in _ESCAPES.items()}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SEARCH_SIGNS = re.compile(r"""([?&|!{}\[\]()^~*:\\"'+\-])""")
WILDCARDS = "%_"


def text(value: str) -> str:
    """A text in single quotes."""
    return "'" + "".join(_ESCAPES.get(char, char) for char in value) + "'"


def texts(values: Iterable[str]) -> str:
    """A list of texts, for IN."""
    return "(" + ", ".join(map(text, values)) + ")"


def moment(value: datetime) -> str:
    """A time, without quotes as SOQL wants it."""
    return f"{value.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def search_words(value: str) -> str:
    """What stands between the braces of FIND, with every sign of the search language taken as a letter."""
    return _SEARCH_SIGNS.sub(r"\\\1", value)


def read_text(body: str) -> str:
    """What a quoted text means; QueryError when it has an escape that is none."""
    return _ESCAPE.sub(_meant, body)


def _meant(escape: re.Match[str]) -> str:
    if escape[1] not in _UNESCAPED:
        raise malformed(f"illegal escape {escape[0]!r}")
    return _UNESCAPED[escape[1]]


def read_pattern(body: str) -> str:
    r"""The same for LIKE, whose % and _ stand for any letters unless they are escaped; `\` is the escape again."""

    def meant(part: re.Match[str]) -> str:
        char = part[1]
        if char in WILDCARDS:
            return f"\\{char}"
        found = _meant(part)
        return "\\\\" if found == "\\" else found

    return _ESCAPE.sub(meant, body)
