"""The servers of a configuration (`mcpServers`), read and checked.

In the servers' command, args, env and url, placeholders stand for what differs between machines or rollouts:

    ${{ sync_workdir }}   the workdir, on the machine that runs the servers
    ${{ workspace }}      the rollout's private directory, which is also the server's working directory
    ${{ port }}           a free port for the server, for servers that speak HTTP
    ${NAME}               (not in command) an environment variable of the agent, so that keys stay out of the file
    $${NAME}              a literal ${NAME}
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmax.errors import EnvDefinitionError, did_you_mean
from benchmax.sandbox import Network

_KNOWN = {"command", "args", "env", "read", "url", "headers", "fork", "start_seconds", "memory", "network"}
_IGNORED = {"type", "transport", "cwd", "timeout", "description", "autoApprove", "alwaysAllow", "disabled"}
"""Keys of other clients; the working directory is always the rollout's."""
_UNSUPPORTED = frozenset({"sse", "ws", "websocket"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_PLACEHOLDER = re.compile(r"\$\{\{\s*(\w+)\s*\}\}")
_PLACEHOLDERS = ("sync_workdir", "workspace", "port")
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)\}")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
"""They expand `${NAME}` in their arguments themselves."""
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])i?B?", re.IGNORECASE)
START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One MCP server: a command to run, a URL to reach, or both (a command that serves HTTP)."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fork: bool = True
    """Whether a Python server is forked from a process that has imported its packages."""
    start_seconds: float = START_SECONDS
    memory: str | None = None
    """A limit for the server and all its child processes, such as 512MB."""
    read: tuple[str, ...] = ()
    """Files and folders that it may read in addition to the system, its program and the workdir."""
    network: Network = "host"
    """`none`: it connects to nothing; one that serves HTTP can be called on its port."""

    def filled(self, values: Mapping[str, str]) -> ServerSpec:
        """A copy with the placeholders in `values` replaced."""

        def fill(part: str, text: str) -> str:
            return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text) if "${{" in text else text

        return self._rewritten(fill)

    def with_variables(self, variables: Mapping[str, str]) -> ServerSpec:
        """A copy with every `${NAME}` replaced by the variable of that name."""
        shell = os.path.basename(self.command or "") in _SHELLS  # has variables of its own

        def rewrite(part: str, text: str) -> str:
            own = part == "command" or (shell and part == "args")
            return text if own else self._expanded(part, text, variables)

        expanded = self._rewritten(rewrite)
        _check_url(f"MCP server {self.name!r}", expanded.url)
        return expanded

    def _rewritten(self, rewrite: Callable[[str, str], str]) -> ServerSpec:
        """A copy with every text rewritten; `rewrite` gets the part's name and the text."""
        return replace(
            self,
            command=rewrite("command", self.command) if self.command is not None else None,
            args=tuple(rewrite("args", arg) for arg in self.args),
            env={key: rewrite("env", value) for key, value in self.env.items()},
            url=rewrite("url", self.url) if self.url is not None else None,
            headers={key: rewrite("headers", value) for key, value in self.headers.items()},
            read=tuple(rewrite("read", path) for path in self.read),
        )

    def _expanded(self, part: str, text: str, variables: Mapping[str, str]) -> str:
        def value_of(match: re.Match[str]) -> str:
            try:
                return variables[match[1]]
            except KeyError:
                raise EnvDefinitionError(
                    f"MCP server {self.name!r}: {part} names ${{{match[1]}}}, which is not set. "
                    f"Set it where the servers run, or write $${{{match[1]}}} if it is to stay as it is."
                ) from None

        return _VARIABLE.sub(value_of, text).replace("$${", "${") if "${" in text else text

    def as_config(self) -> dict[str, Any]:
        """The keys of mcp_config.yaml that differ from their defaults."""
        usual = ServerSpec(self.name)
        return {key: value for key in sorted(_KNOWN) if (value := getattr(self, key)) != getattr(usual, key)}


def parse_config(config: Any, source: str) -> tuple[ServerSpec, ...]:
    """The servers of a configuration; EnvDefinitionError names the first mistake."""
    servers = config.get("mcpServers") if isinstance(config, Mapping) else None
    if not isinstance(servers, Mapping) or not servers:
        raise EnvDefinitionError(f"{source} needs the key mcpServers, with one server or more under it. Add it.")
    wanted = {name: each for name, each in servers.items() if not (isinstance(each, Mapping) and each.get("disabled"))}
    if not wanted:
        raise EnvDefinitionError(f"Every server in {source} is disabled. Enable one.")
    return tuple(_parse_server(name, each, source) for name, each in wanted.items())


def _parse_server(name: Any, raw: Any, source: str) -> ServerSpec:
    where = f"{source}, server {name!r}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EnvDefinitionError(f"{where}: a name is at most 32 letters, digits, - and _. Rename it.")
    if not isinstance(raw, Mapping):
        raise EnvDefinitionError(
            f"{where} must be a mapping with command or url, not {type(raw).__name__}. Correct it."
        )
    _refuse_unknown(where, map(str, raw))
    command, url = raw.get("command"), raw.get("url")
    if not isinstance(command, str | None) or not isinstance(url, str | None) or not (command or url):
        raise EnvDefinitionError(f"{where} needs a command to run or a url to reach, as text. Add one.")
    for key in ("type", "transport"):
        if str(raw.get(key) or "").lower() in _UNSUPPORTED:
            raise EnvDefinitionError(
                f"{where} has the {key} {raw[key]!r}, which is not supported. "
                "Give the url at which it speaks streamable HTTP (often /mcp in place of /sse), or a command."
            )
    if url is None or not _VARIABLE.match(url):  # else it is checked when the variable is known
        _check_url(where, url)
    spec = ServerSpec(
        name, command or None, _texts(where, "args", raw.get("args")), _pairs(where, "env", raw.get("env")), url,
        _pairs(where, "headers", raw.get("headers")), _fork(where, raw), _seconds(where, raw), _memory(where, raw),
        _read(where, raw), _network(where, raw),
    )  # fmt: skip
    _check_placeholders(where, spec)
    return spec


def _check_url(where: str, url: str | None) -> None:
    if url is not None and not re.fullmatch(r"https?://\S+", _PLACEHOLDER.sub("0", url)):
        raise EnvDefinitionError(f"{where}: url {url!r} does not begin with http:// or https://. Correct it.")


def _fork(where: str, raw: Mapping[str, Any]) -> bool:
    fork = raw.get("fork", True)
    if not isinstance(fork, bool):
        raise EnvDefinitionError(f"{where}: fork must be true or false, not {fork!r}. Correct it.")
    return fork


def _seconds(where: str, raw: Mapping[str, Any]) -> float:
    seconds = raw.get("start_seconds", START_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 600:
        raise EnvDefinitionError(f"{where}: start_seconds must be a number up to 600. Correct it.")
    return float(seconds)


def _memory(where: str, raw: Mapping[str, Any]) -> str | None:
    memory = raw.get("memory")
    if memory is None:
        return None
    if not raw.get("command"):
        raise EnvDefinitionError(f"{where}: memory is for servers that are started here. Remove it.")
    try:
        memory_bytes(memory)
    except ValueError as error:
        raise EnvDefinitionError(f"{where}: {error}") from None
    return str(memory)


def _read(where: str, raw: Mapping[str, Any]) -> tuple[str, ...]:
    paths = _texts(where, "read", raw.get("read"))
    for path in paths:
        if not path.startswith(("/", "~", "$")):
            raise EnvDefinitionError(f"{where}: read names {path!r}. Write the whole path, as the workdir is open.")
        if not path.strip("/."):
            raise EnvDefinitionError(f"{where}: read names {path!r}, the whole disk. Name the folders that it needs.")
    return paths


def _network(where: str, raw: Mapping[str, Any]) -> Network:
    network = raw.get("network")
    if network is None or network is True or network == "host":
        return "host"
    if network is not False and network != "none":
        raise EnvDefinitionError(f"{where}: network must be host or none, not {network!r}. Correct it.")
    if not raw.get("command"):
        raise EnvDefinitionError(f"{where}: network is for servers that are started here. Remove it.")
    return "none"


def memory_bytes(text: Any) -> int:
    """The bytes of an amount such as 512MB or 1.5GB; ValueError when it is not one."""
    match = _MEMORY.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or not float(match[1]):
        raise ValueError(f"memory must be an amount such as 512MB or 1.5GB, not {text!r}. Write it with its unit.")
    return int(float(match[1]) * 1024 ** ("KMGT".index(match[2].upper()) + 1))


def _refuse_unknown(where: str, keys: Iterable[str]) -> None:
    for key in keys:
        if key not in _KNOWN and key not in _IGNORED:
            hint = did_you_mean(key, _KNOWN) or f"Use {', '.join(sorted(_KNOWN))}."
            raise EnvDefinitionError(f"{where} has the unknown key {key!r}. {hint}")


def _texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(each, str | int | float) for each in value):
        raise EnvDefinitionError(f"{where}: {key} must be a list of texts. Put each word on a line of its own.")
    return tuple(_plain(each) for each in value)


def _pairs(where: str, key: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(each, str | int | float) for each in value.values()):
        raise EnvDefinitionError(f"{where}: {key} must map names to texts. Quote the values.")
    return {str(name): _plain(each) for name, each in value.items()}


def _plain(value: str | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_placeholders(where: str, spec: ServerSpec) -> None:
    def check(part: str, text: str) -> str:
        if "\0" in text:
            raise EnvDefinitionError(f"{where} has a NUL character in {text!r}. Remove it.")
        for name in _PLACEHOLDER.findall(text):
            if name == "port" and spec.url is None:
                raise EnvDefinitionError(
                    f"{where} has a ${{{{ port }}}} but no url. Add url: http://127.0.0.1:${{{{ port }}}}/mcp."
                )
            if name not in _PLACEHOLDERS:
                known = ", ".join(f"${{{{ {each} }}}}" for each in _PLACEHOLDERS)
                raise EnvDefinitionError(f"{where}: there is no ${{{{ {name} }}}}. Use one of {known}.")
        return text

    spec._rewritten(check)
    if wrong := [name for name in spec.env if not name or "=" in name or "\0" in name]:
        raise EnvDefinitionError(f"{where}: {wrong[0]!r} is no name of a variable. Correct it under env.")
