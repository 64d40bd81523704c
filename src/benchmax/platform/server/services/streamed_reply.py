"""A streamed chat completion, joined from its chunks into the form of a whole answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmax.files.atomic import object_in
from benchmax.net.sse import EventReader

_NOT_IN_PARTS = frozenset({"role", "id", "type", "name"})
"""Texts that come whole, in one chunk or in several; all others come in parts."""


class StreamedReply:
    """Reads server-sent events in pieces of any size. What does not have the API's shape is ignored."""

    def __init__(self) -> None:
        self.error: Any = None
        self._events = EventReader()
        self._choices: dict[int, _Choice] = {}
        self._about: dict[str, Any] = {}

    def feed(self, piece: bytes) -> list[dict[str, Any]]:
        """Add the chunks that end in this piece, and return them."""
        return self._add_all(self._events.feed(piece))

    def whole(self) -> dict[str, Any]:
        """The answer, when its stream is over."""
        self._add_all(self._events.end())
        choices = [self._choices[index].whole() | {"index": index} for index in sorted(self._choices)]
        return {**self._about, "choices": choices}

    def _add_all(self, events: Iterable[bytes]) -> list[dict[str, Any]]:
        chunks = [chunk for data in events if (chunk := object_in(data)) is not None]
        for chunk in chunks:
            self._add(chunk)
        return chunks

    def _add(self, chunk: Mapping[str, Any]) -> None:
        self.error = chunk.get("error") or self.error
        for name in ("model", "usage", "prompt_token_ids"):
            if chunk.get(name) is not None:
                self._about[name] = chunk[name]
        for choice in objects(chunk.get("choices")):
            self._choices.setdefault(_index(choice), _Choice()).add(choice)


class _Choice:
    def __init__(self) -> None:
        self._message = _Merged()
        self._finish: Any = None
        self._lists: dict[str, list[Any]] = {}

    def add(self, choice: Mapping[str, Any]) -> None:
        if isinstance(delta := choice.get("delta"), dict):
            self._message.add(delta)
        self._finish = choice.get("finish_reason") or self._finish
        logprobs = choice.get("logprobs")
        scored = logprobs.get("content") if isinstance(logprobs, dict) else None
        for name, values in (("token_ids", choice.get("token_ids")), ("logprobs", scored)):
            if isinstance(values, list):
                self._lists.setdefault(name, []).extend(values)

    def whole(self) -> dict[str, Any]:
        found: dict[str, Any] = {"message": self._message.whole(), "finish_reason": self._finish}
        if "token_ids" in self._lists:
            found["token_ids"] = self._lists["token_ids"]
        if "logprobs" in self._lists:
            found["logprobs"] = {"content": self._lists["logprobs"]}
        return found


class _Text(list[str]):
    """The parts of a text."""


class _Merged:
    """One object from its parts: texts one after the other, entries of a list by their `index`."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def add(self, part: Mapping[str, Any]) -> None:
        for name, value in part.items():
            if isinstance(value, str) and name not in _NOT_IN_PARTS:
                self._kept(name, _Text).append(value)
            elif isinstance(value, dict):
                self._kept(name, _Merged).add(value)
            elif entries := objects(value):
                for entry in entries:
                    self._kept(name, dict).setdefault(_index(entry), _Merged()).add(entry)
            elif value is not None and name != "index":
                self._values[name] = value

    def whole(self) -> dict[str, Any]:
        return {name: _joined(value) for name, value in self._values.items()}

    def _kept(self, name: str, kind: type[Any]) -> Any:
        if not isinstance(self._values.get(name), kind):
            self._values[name] = kind()
        return self._values[name]


def _joined(value: Any) -> Any:
    if isinstance(value, _Merged):
        return value.whole()
    if isinstance(value, dict):
        return [value[index].whole() for index in sorted(value)]
    return "".join(value) if isinstance(value, _Text) else value


def _index(entry: Mapping[str, Any]) -> int:
    index = entry.get("index")
    return index if isinstance(index, int) else 0


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, of a value that may be anything."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
