"""The environment that a run's settings name, and its rows: in this process, or in a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import ExampleSet, load_examples
from benchmax.envs.loading import find_rows, load_env_class, make_env
from benchmax.envs.remote import Confinement, RemoteEnv
from benchmax.trainer.config.sections import DataConfig

Source = tuple[Callable[[], BaseEnv], Callable[[str, int], ExampleSet]]
"""What makes the environment, and what reads rows for it: by their name, and the fewest there must be."""


def open_source(data: DataConfig) -> Source:
    return _sandboxed(data) if data.sandbox else _loaded(data)


def _loaded(data: DataConfig) -> Source:
    """Its code is loaded here."""
    env_class = load_env_class(data.env)

    def read(name: str, min_rows: int) -> ExampleSet:
        return load_examples(find_rows(env_class, name), env_class, lenient=data.lenient, min_rows=min_rows)

    return lambda: make_env(env_class, data.env_args), read


def _sandboxed(data: DataConfig) -> Source:
    """Its code is loaded in a process of its own that is confined before."""
    env = RemoteEnv(data.env, constructor_args=data.env_args, sandbox=Confinement())

    def read(name: str, min_rows: int) -> ExampleSet:
        asked = env.preprocess(find_rows(type(env), name), lenient=data.lenient, min_rows=min_rows)
        with ThreadPoolExecutor(1) as thread:  # a loop of the caller's may be running
            return thread.submit(asyncio.run, asked).result()

    return lambda: env, read
