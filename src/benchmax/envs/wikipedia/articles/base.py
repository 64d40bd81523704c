"""The port behind which an encyclopedia may be anything, and how its two tools speak to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from benchmax import limits
from benchmax.envs.generated_tasks import TEXT, arguments_schema
from benchmax.envs.types import ToolDefinition
from benchmax.errors import ToolError

SEARCH, GET = "search_wikipedia", "get_wikipedia_article"
MOST_RESULTS = 50
DEFAULT_RESULTS = 10
_LIMIT = {"type": "integer", "default": DEFAULT_RESULTS}
TOOLS = [
    ToolDefinition(GET, "Returns an article.", arguments_schema(title=TEXT)),
    ToolDefinition(SEARCH, "Searches articles by words.", arguments_schema({"limit": _LIMIT}, q=TEXT)),
]
"""By name."""
_CUT = "\n[cut: the article has {} characters]"


class Found(NamedTuple):
    """An article that a search found, and the part of it that fits the query."""

    title: str
    snippet: str


class Articles(Protocol):
    """An encyclopedia. Its methods raise ToolError with what the model is to read."""

    async def search(self, q: str, limit: int) -> Sequence[Found]:
        """The articles that fit the query, best first."""

    async def article(self, title: str) -> str | None:
        """The text of the article with this title; None when there is none."""

    async def close(self) -> None:
        """Free everything."""


async def call_tool(articles: Articles, name: str, arguments: dict[str, Any]) -> str:
    """Run one tool call; what goes wrong is a text that begins with `Error:`."""
    try:
        if name == SEARCH:
            q, limit = _text(arguments, "q"), _limit(arguments)
            return shown_results(await articles.search(q, limit), q)
        if name == GET:
            title = _text(arguments, "title")
            return shown_article(await articles.article(title), title)
    except ToolError as error:
        return f"Error: {error}"
    return f"Error: There is no tool {name!r}. Use {SEARCH} or {GET}."


def shown_results(found: Sequence[Found], q: str) -> str:
    if not found:
        return f"No results for {q[:100]!r}. Try other words."
    return "\n".join(f"{number}. {each.title}: {each.snippet}" for number, each in enumerate(found, 1))


def shown_article(text: str | None, title: str) -> str:
    if text is None:
        return f"Error: There is no article {title[:100]!r}. Search for its title with {SEARCH}."
    cut = limits.WIKIPEDIA_ARTICLE_CHARS
    return text if len(text) <= cut else text[:cut] + _CUT.format(len(text))


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolError(f"{name} must be a text. Give one.")
    return value.strip()


def _limit(arguments: dict[str, Any]) -> int:
    value = arguments.get("limit")
    if value is None:
        return DEFAULT_RESULTS
    if type(value) is not int or not 1 <= value <= MOST_RESULTS:
        raise ToolError(f"limit must be a whole number from 1 to {MOST_RESULTS}.")
    return value
