"""A model on a server that a user of the platform named: its address is checked and pinned before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmax.models.address_rules import AddressRules, pin
from benchmax.models.http import HttpModel
from benchmax.net.origins import origin


async def endpoint_model(llm: Mapping[str, Any]) -> HttpModel:
    """The client of an OpenAI-compatible server, with its address checked and pinned."""
    url = str(llm["base_url"])
    resolver = await pin(url, AddressRules.of(llm.get("reach")))
    if version := llm.get("api_version"):
        url += ("&" if "?" in url else "?") + f"api-version={version}"
    return HttpModel(
        str(llm["model"]),
        url,
        str(llm.get("api_key") or ""),
        resolver=resolver,
        # OpenAI's own newer models refuse the old name.
        max_tokens_field="max_completion_tokens" if origin(url).host == "api.openai.com" else "max_tokens",
    )
