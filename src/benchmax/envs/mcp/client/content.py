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
    content = raw.get("content")
    for item in content if isinstance(content, list) else ():
        if isinstance(item, Mapping):
            text, part = _read(item)
            has_text |= item.get("type") == "text"
            if text:
                texts.append(text)
            if part is not None:
                parts.append(part)
    structured = raw.get("structuredContent")
    if not has_text and not texts and not parts and structured is not None:
        texts.append(_shown(structured))
    return ToolResult("\n".join(texts), bool(raw.get("isError")), tuple(parts))


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
