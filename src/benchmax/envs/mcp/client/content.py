"""An MCP tool's result for a model: text, images as content parts, and a description of everything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmax.envs.types import ToolResult


def as_tool_result(raw: Mapping[str, Any]) -> ToolResult:
    """Convert a raw result: what is not text becomes a content part or a description."""
    texts: list[str] = []
    parts: list[dict[str, Any]] = []
    has_text = False
    for item in content_of(raw):
        text, part = _read(item)
        has_text |= item.get("type") == "text"
        if text:
            texts.append(text)
        if part is not None:
            parts.append(part)
    structured = raw.get("structuredContent")
    if not has_text and not texts and not parts and structured is not None:
        texts.append(_shown(structured))
    if raw.get("isError") and not texts:
        texts.append("The tool failed and gave no reason.")
    return ToolResult("\n".join(texts), bool(raw.get("isError")), tuple(parts))


def content_of(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The content of a result: a list of items, or what servers write in its place, such as a text."""
    content = raw.get("content", raw.get("toolResult"))  # the second is of 2024-10-07
    items = content if isinstance(content, list) else [content]
    texts = [{"type": "text", "text": each} if isinstance(each, str) else each for each in items]
    return [each for each in texts if isinstance(each, Mapping)]


def _shown(structured: Any) -> str:
    """A structured value as text, without the `{"result": …}` in which servers wrap what is not an object."""
    if isinstance(structured, Mapping) and set(structured) == {"result"}:
        structured = structured["result"]
    return structured if isinstance(structured, str) else json.dumps(structured, ensure_ascii=False)


def _read(item: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    kind = item.get("type")
    if kind == "text":
        return str(item.get("text") or ""), None
    if kind == "image":
        return "", _image(item.get("mimeType"), item.get("data"))
    if kind == "audio":
        return _described("audio", item), None
    if kind == "resource_link":
        return f"[resource {item.get('name') or ''}: {item.get('uri') or ''}]", None
    if kind == "resource" and isinstance(inner := item.get("resource"), Mapping):
        if isinstance(inner.get("text"), str):
            return str(inner["text"]), None
        if str(inner.get("mimeType")).startswith("image/"):
            return "", _image(inner["mimeType"], inner.get("blob"))
        return _described(f"resource {inner.get('uri') or ''}", {**inner, "data": inner.get("blob")}), None
    return f"[{kind or 'content'} that cannot be shown]", None


def _image(kind: Any, data: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{kind or 'image/png'};base64,{data or ''}"}}


def _described(what: str, item: Mapping[str, Any]) -> str:
    size = len(str(item.get("data") or "")) * 3 // 4
    return f"[{what}, {item.get('mimeType') or 'unknown type'}, about {size:,} bytes]"
