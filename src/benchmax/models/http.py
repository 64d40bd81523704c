"""Any server with the OpenAI chat API, at the cost of a bare HTTP call.

The history is kept as encoded messages and joined, so a turn copies its text only once.
A call has a deadline and a number of tries; when both are used up, a typed error is raised. A turn that failed
leaves the conversation as it was, and the same `reply` may be tried again.

Covered: connection, DNS and TLS errors, stalls, cut and garbled answers, 408, 409, 425, 429 with
Retry-After, 5xx; answers larger than the limit. Not covered: streaming, and redirects (reported, not followed).
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from time import monotonic
from typing import Literal, TypeAlias
from urllib.request import getproxies, proxy_bypass

import aiohttp
import aiohttp.abc
import yarl

from benchmax import limits
from benchmax.deadlines import deadline
from benchmax.envs.types import ChatMessage, ToolCall, ToolDefinition
from benchmax.errors import ConfigError, ModelError, ModelProtocolError, ModelRateLimited, ModelUnavailable
from benchmax.models import chat_api, http_errors, text_tools
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling, Usage, need_count, need_number
from benchmax.models.relay import reached_at
from benchmax.net.origins import LOOPBACK

ToolFormat: TypeAlias = Literal["native", "hermes"]
SessionLifetime: TypeAlias = AsyncGenerator[aiohttp.ClientSession, None]
KEY_VARIABLES = {"api.openai.com": "OPENAI_API_KEY", "openrouter.ai": "OPENROUTER_API_KEY"}
"""Hosts whose key is read from the environment when none is given. No key is sent to any other host."""
CONNECT_SECONDS = 30.0
_DIRECT_BYTES = limits.MIB  # aiohttp warns about larger bodies given as bytes
_READ_BYTES = 64 * 1024


class HttpModel(ModelClient):
    """A model behind an OpenAI-compatible server, at `base_url` (which often ends in /v1; /chat/completions is cut).

    `timeout` and `tries` bound one turn, retries included. `price` is (USD per million prompt tokens,
    USD per million completion tokens). With `tool_format="hermes"` tools travel as text, for servers that
    do not parse tool calls. With `Sampling.logprobs` the server is also asked for token ids, unless
    `token_ids` is off; the log-probabilities are as the server reports them (vLLM reports those sampled from
    when started with `--logprobs-mode processed_logprobs`). `key_variable` names the environment variable
    that holds the key. `resolver` resolves the host in place of the system (see `models.address_rules.pin`).
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
        key_variable: str | None = None,
        headers: Mapping[str, str] | None = None,
        tool_format: ToolFormat = "native",
        timeout: float = limits.MODEL_SECONDS,
        tries: int = limits.MODEL_TRIES,
        backoff: float = 0.5,
        connections: int = limits.MODEL_CONNECTIONS,
        price: tuple[float, float] | None = None,
        token_ids: bool = True,
        max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        resolver: aiohttp.abc.AbstractResolver | None = None,
    ) -> None:
        if tool_format not in ("native", "hermes"):
            raise ConfigError(f"tool_format is {tool_format!r}. Use 'native' or 'hermes'.")
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"name is {name!r}; give the model's name as the server knows it.")
        need_number("timeout", timeout, above=0)
        need_number("backoff", backoff, at_least=0)
        need_count("tries", tries)
        need_count("connections", connections)
        _check_price(price)
        self.name = name
        self.tool_format = tool_format
        self.timeout = timeout
        self.tries = tries
        self.backoff = backoff
        self.connections = connections
        self.price = price
        self.token_ids = token_ids
        self.max_tokens_field = max_tokens_field
        self.resolver = resolver
        self._url = chat_url(reached_at(base_url) if isinstance(base_url, str) else base_url)
        variable = key_variable or KEY_VARIABLES.get(self._url.host or "")
        if api_key is None and variable:
            api_key = os.environ.get(variable)
        self._headers = _headers(api_key, headers)
        self.endpoint = _endpoint(name, self._url, variable, api_key, headers)
        self._sessions: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, SessionLifetime]] = {}

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        return HttpConversation(self, tools, sampling)

    async def exchange(self, body: bytes) -> chat_api.ServerReply:
        """Send one request until it is answered, refused, or out of tries or time."""
        ends = monotonic() + self.timeout
        tries = 0
        last: ModelError | None = None
        try:
            with deadline(self.timeout):
                while True:
                    tries += 1
                    try:
                        return await self._once(body)
                    except (ModelUnavailable, ModelRateLimited, ModelProtocolError) as error:
                        last = error
                    pause = http_errors.wait_before(last, tries, self.backoff)
                    if tries >= self.tries or monotonic() + pause >= ends:
                        if tries > 1:
                            last.args = (f"After {tries} tries: {last}",)
                        raise last from None
                    await asyncio.sleep(pause)
        except TimeoutError:
            raise http_errors.timed_out(self.endpoint, self.timeout, tries, last) from None

    async def relay(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """Send a request as it is, once, and yield the answer's bytes as they come; raises for an error status."""
        session = await self._session()
        size = 0
        try:
            whole = aiohttp.ClientTimeout(total=self.timeout, sock_connect=CONNECT_SECONDS)
            async with session.post(self._url, data=_data(body), allow_redirects=False, timeout=whole) as response:
                if not 200 <= response.status < 300:
                    raise http_errors.refused(self.endpoint, response.status, response.headers, await _read(response))
                async for piece in response.content.iter_any():
                    size += len(piece)
                    if size > limits.MODEL_RESPONSE_BYTES:
                        raise _too_large()
                    yield piece
        except ModelError:  # some are OSErrors too
            raise
        except TimeoutError:
            raise http_errors.timed_out(self.endpoint, self.timeout, 1, None) from None
        except (aiohttp.ClientError, OSError) as error:
            raise http_errors.unreachable(self.endpoint, error) from None

    async def _session(self) -> aiohttp.ClientSession:
        known, _ = self._sessions.get(asyncio.get_running_loop(), (None, None))
        return known if known and not known.closed else await self._new_session()

    async def _once(self, body: bytes) -> chat_api.ServerReply:
        session = await self._session()
        try:
            async with session.post(self._url, data=_data(body), allow_redirects=False) as response:
                answer = await _read(response)
        except (aiohttp.ClientError, OSError) as error:
            # Without its cause: aiohttp's errors hold the request's headers, and so the key.
            raise http_errors.unreachable(self.endpoint, error) from None
        if not 200 <= response.status < 300:
            raise http_errors.refused(self.endpoint, response.status, response.headers, answer)
        try:
            return chat_api.decode_reply(answer)
        except ModelProtocolError:
            raise http_errors.garbled(self.endpoint, answer) from None

    async def _new_session(self) -> aiohttp.ClientSession:
        """A session for the running loop; those of loops that have ended are dropped."""
        for gone in [other for other in self._sessions if other.is_closed()]:
            del self._sessions[gone]
        lifetime = _session_lifetime(self)
        session = await anext(lifetime)
        self._sessions[asyncio.get_running_loop()] = session, lifetime
        return session

    async def aclose(self) -> None:
        """Close the connections, those of other loops too; the model may be used again."""
        here = asyncio.get_running_loop()
        sessions, self._sessions = self._sessions, {}
        for loop, (_, lifetime) in sessions.items():
            if loop is here:
                await lifetime.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(lifetime.aclose(), loop)
                await asyncio.wrap_future(closing)

    def __repr__(self) -> str:
        return f"HttpModel({self.name!r}, {self.endpoint.url!r})"


async def _session_lifetime(model: HttpModel) -> SessionLifetime:
    """A session in an async generator: a loop that shuts down finishes its generators, and so closes the session."""
    proxy = _proxy(model._url)
    resolver = None if proxy else model.resolver
    connector = aiohttp.TCPConnector(
        limit=model.connections, ttl_dns_cache=300, resolver=resolver, socket_factory=_new_socket
    )
    session = aiohttp.ClientSession(
        connector=connector,
        headers=model._headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        proxy=proxy,
    )
    try:
        yield session
    finally:
        await session.close()


class _Socket(socket.socket):
    """Reads little at once: asyncio asks for 256 KiB, and memory of that size is mapped again for every reply."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        return super().recv(min(size, _READ_BYTES), flags)


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    return _Socket(family, kind, protocol)


class HttpConversation(Conversation):
    """A conversation whose server parses tool calls, or in which tools, calls and results are text."""

    def __init__(self, model: HttpModel, tools: Sequence[ToolDefinition], sampling: Sampling) -> None:
        self._model = model
        self._tools = tools
        self._sampling = sampling
        self._as_text = model.tool_format == "hermes"
        self._head = chat_api.encode_head(
            model.name, sampling, () if self._as_text else tools, token_ids=model.token_ids and sampling.logprobs
        )
        self._encoded: list[bytes] = []
        self._call_ids: set[str] = set()
        self.trail = chat_api.TokenTrail()
        """The exact tokens so far; `trail.exact` is False once the server omits them or contradicts itself."""

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        if self._as_text:
            new = text_tools.as_text(new if self._encoded else text_tools.opening(new, self._tools))
        encoded = self._encoded + [chat_api.encode_message(message) for message in new]
        answer = await self._model.exchange(self._request(encoded, max_tokens))
        text, calls = answer.text, answer.calls
        if self._as_text and self._tools:
            text, written = text_tools.read_calls(text)
            calls = written + calls
        elif self._as_text:
            calls = []
        message: ChatMessage = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [self._identified(call).to_dict() for call in calls]
        # A server that does not parse calls gets back what it wrote.
        echo: ChatMessage = {"role": "assistant", "content": answer.text} if self._as_text else message
        encoded.append(chat_api.encode_message(echo))
        self._encoded = encoded
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning  # type: ignore[typeddict-unknown-key]
        finish = "tool_calls" if calls and answer.finish == "stop" else answer.finish
        return Reply(message, finish, self._usage(answer), self.trail.extend(answer))

    def _request(self, encoded: list[bytes], max_tokens: int | None) -> bytes:
        cap = chat_api.turn_cap(self._sampling, max_tokens)
        tail = b"]}" if cap is None else f'],"{self._model.max_tokens_field}":{cap}}}'.encode()
        first, *rest = encoded or [b""]
        if not rest:
            return self._head + first + tail
        # One join, and so one copy of the history, which may be long.
        return b",".join((self._head + first, *rest[:-1], rest[-1] + tail))

    def _identified(self, call: ToolCall) -> ToolCall:
        """The call with an id that is unique in the conversation."""
        call_id, count = call.id, len(self._call_ids)
        while not call_id or call_id in self._call_ids:
            count += 1
            call_id = f"call_{count}"
        self._call_ids.add(call_id)
        return call if call_id == call.id else ToolCall(call.name, call.arguments, call_id)

    def _usage(self, answer: chat_api.ServerReply) -> Usage:
        cost = answer.cost or 0.0
        if price := self._model.price:
            cost = (answer.prompt_tokens * price[0] + answer.completion_tokens * price[1]) / 1e6
        return Usage(answer.prompt_tokens, answer.completion_tokens, cost)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, unless it is larger than the limit."""
    chunks = []
    size = 0
    while not response.content.at_eof() and (chunk := await response.content.readany()):
        chunks.append(chunk)
        size += len(chunk)
        if size > limits.MODEL_RESPONSE_BYTES:
            raise _too_large()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large() -> ModelProtocolError:
    return ModelProtocolError(
        f"The model server's answer is larger than {limits.MODEL_RESPONSE_BYTES} bytes. Lower max_tokens."
    )


def _data(body: bytes) -> bytes | io.BytesIO:
    return body if len(body) < _DIRECT_BYTES else io.BytesIO(body)


def _check_price(price: object) -> None:
    if price is None:
        return
    if not isinstance(price, tuple | list) or len(price) != 2:
        raise ConfigError(
            f"price is {price!r}; give a pair (USD per million prompt tokens, USD per million completion tokens)."
        )
    for index, each in enumerate(price):
        need_number(f"price[{index}]", each, at_least=0)


def chat_url(base_url: str) -> yarl.URL:
    """Where chat completions are asked for."""
    try:
        url = yarl.URL(base_url)
        known = url.scheme in ("http", "https") and bool(url.host)
    except (TypeError, ValueError):  # not a text, or one with a port or an address that cannot be
        known = False
    if not known:  # without the URL: it may hold a password
        raise ConfigError(
            "base_url is not an http(s) URL. Give the server's address, such as http://localhost:8000/v1."
        )
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.with_path(path + "/chat/completions", keep_query=True)


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    result = {"Content-Type": "application/json", "User-Agent": "benchmax"}
    if key := (api_key or "").strip():
        if not (key.isascii() and key.isprintable()):
            raise ConfigError("The API key has characters that no key has. Copy it again.")
        result["Authorization"] = f"Bearer {key}"
    return {**result, **(headers or {})}


def _endpoint(
    name: str, url: yarl.URL, variable: str | None, api_key: str | None, headers: Mapping[str, str] | None
) -> http_errors.Endpoint:
    where = f"the key in {variable}" if variable else "the api_key you gave (often read from OPENAI_API_KEY)"
    hint = f"Check {where}." if api_key else f"No key was sent; set {variable or 'api_key'}."
    words = [word for value in (headers or {}).values() for word in value.split() if len(word) >= 8]
    secrets = [(api_key or "").strip(), url.password, *url.query.values(), *words, *_proxy_secrets(url)]
    shown = url.with_user(None).with_query(None)
    return http_errors.Endpoint(name, str(shown), hint, tuple(filter(None, secrets)))


def _proxy_secrets(url: yarl.URL) -> list[str]:
    """The proxy's password, as it is and as the environment spells it; aiohttp's errors show the proxy's URL."""
    try:
        proxy = yarl.URL(_proxy(url) or "")
    except ValueError:  # no URL: the first request will say so
        return []
    return [proxy.password or "", proxy.raw_password or ""]


def proxy_for(base_url: str) -> str | None:
    """The proxy through which a server at this address is reached, if any."""
    return _proxy(chat_url(base_url))


def _proxy(url: yarl.URL) -> str | None:
    """The proxy the environment names, looked up once for each session."""
    if url.host is None or url.host in LOOPBACK or proxy_bypass(url.host):
        return None
    return getproxies().get(url.scheme)
