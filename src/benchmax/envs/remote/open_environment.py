"""An environment that settings name, and its rows: in this process, or in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmax.concurrency import run_sync
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import ExampleSet, load_examples
from benchmax.envs.loading import check_arguments, find_rows, load_env_class, make_env
from benchmax.envs.remote.process_limits import Confinement
from benchmax.envs.remote.proxy import RemoteEnv


class NamedEnv(NamedTuple):
    """An environment that settings name."""

    env_class: type[BaseEnv]
    """In a sandbox, that of its proxy."""
    make: Callable[[], BaseEnv]
    read: Callable[[str | None, int, int | None], ExampleSet]
    """Examples of rows by their name: of at least so many, and of the first so many."""


def open_named_env(
    spec: str, arguments: Mapping[str, Any], *, lenient: bool, sandbox: bool, folder: str | None = None
) -> NamedEnv:
    """The environment `spec` names; dotted paths are looked up in `folder`, by default the current one."""
    return _sandboxed(spec, arguments, lenient) if sandbox else _loaded(spec, arguments, lenient, folder)


def _loaded(spec: str, arguments: Mapping[str, Any], lenient: bool, folder: str | None) -> NamedEnv:
    """Its code is loaded here."""
    env_class = load_env_class(spec, folder)
    check_arguments(env_class, arguments)

    def read(name: str | None, min_rows: int, limit: int | None) -> ExampleSet:
        return load_examples(find_rows(env_class, name), env_class, lenient=lenient, min_rows=min_rows, limit=limit)

    return NamedEnv(env_class, lambda: make_env(env_class, arguments), read)


def _sandboxed(spec: str, arguments: Mapping[str, Any], lenient: bool) -> NamedEnv:
    """Its code is loaded in a process of its own that is confined before."""
    env = RemoteEnv(spec, constructor_args=arguments, sandbox=Confinement())

    def read(name: str | None, min_rows: int, limit: int | None) -> ExampleSet:
        async def asked() -> ExampleSet:
            return await env.preprocess(await env.find_rows(name), lenient=lenient, min_rows=min_rows)

        with env.given_up_when_interrupted():
            found = run_sync(asked())
        return ExampleSet(found.examples[:limit], found.report)

    return NamedEnv(type(env), lambda: env, read)
