"""An environment that settings name, and its rows: in this process, or in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmax.concurrency import run_sync
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import ExampleSet, load_examples
from benchmax.envs.loading import find_rows, load_env_class, make_env
from benchmax.envs.remote.process_environment import Confinement
from benchmax.envs.remote.proxy import RemoteEnv

Source = tuple[Callable[[], BaseEnv], Callable[[str, int], ExampleSet]]
"""What makes the environment, and what reads rows for it: by their name, and the fewest there must be."""


def open_named_env(spec: str, arguments: Mapping[str, Any], *, lenient: bool, sandbox: bool) -> Source:
    return _sandboxed(spec, arguments, lenient) if sandbox else _loaded(spec, arguments, lenient)


def _loaded(spec: str, arguments: Mapping[str, Any], lenient: bool) -> Source:
    """Its code is loaded here."""
    env_class = load_env_class(spec)

    def read(name: str, min_rows: int) -> ExampleSet:
        return load_examples(find_rows(env_class, name), env_class, lenient=lenient, min_rows=min_rows)

    return lambda: make_env(env_class, arguments), read


def _sandboxed(spec: str, arguments: Mapping[str, Any], lenient: bool) -> Source:
    """Its code is loaded in a process of its own that is confined before."""
    env = RemoteEnv(spec, constructor_args=arguments, sandbox=Confinement())

    def read(name: str, min_rows: int) -> ExampleSet:
        async def asked() -> ExampleSet:
            return await env.preprocess(await env.find_rows(name), lenient=lenient, min_rows=min_rows)

        with env.given_up_when_interrupted():
            return run_sync(asked())

    return lambda: env, read
