"""A project on the command line: a folder with `main.py`, which defines one environment, and its rows beside it.

`main.py` may hold two dicts, VALIDATE_CONFIG and LAUNCH_CONFIG; what is given on the command line wins over them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.datasets.readers import Source
from benchmax.envs.loading import find_rows, load_env_class, parse_env_args, refuse_unknown_arguments
from benchmax.errors import UsageError

EXAMINATION = ("examples", "group_samples", "max_turns", "max_tool_calls", "pace", "seed")
VALIDATE_KEYS = ("env_args", *EXAMINATION)
"""What VALIDATE_CONFIG may hold."""
LAUNCH_KEYS = ("name", "env_args", "pip", "args")
"""What LAUNCH_CONFIG may hold; `args` are launch arguments."""
TRAIN, HELD_OUT = "train_dataset.jsonl", "eval_dataset.jsonl"

EnvArgs = Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the constructor; repeatable.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Leave unusable rows out instead of stopping.")]
Sandbox = Annotated[
    bool, typer.Option("--sandbox", help="Run the environment in a sandbox; its code is not loaded outside of it.")
]
BaseUrl = Annotated[
    str | None, typer.Option(help="An OpenAI-compatible server that has the model, like http://localhost:8000/v1.")
]
ApiKeyVar = Annotated[str | None, typer.Option(help="The environment variable that holds the server's key.")]


@dataclass(frozen=True, slots=True)
class ProjectOptions:
    """The options that name a project's environment and rows."""

    env: Annotated[
        str | None,
        typer.Argument(help="arithmetic, main.py[:Class] or package.module.Class; the project's when omitted."),
    ] = None
    data: Annotated[
        str | None, typer.Option(help="Rows: a file, or a name the environment loads. Same as --train.")
    ] = None
    train: Annotated[str | None, typer.Option(help=f"Training rows; {TRAIN} of the project.")] = None
    evaluation: Annotated[str | None, typer.Option("--eval", help=f"Held-out rows; {HELD_OUT}.")] = None
    directory: Annotated[Path, typer.Option("--dir", help="The project's folder.")] = Path()
    run_file: Annotated[str, typer.Option(help="The project's file that defines the environment.")] = "main.py"
    module: Annotated[str | None, typer.Option(help="A module to take the environment from, instead of a file.")] = None
    env_class: Annotated[str | None, typer.Option(help="The class, when there are several.")] = None
    env_arg: EnvArgs = None
    pip: Annotated[list[str] | None, typer.Option(help="A package the environment needs; repeatable.")] = None

    def load_class(self) -> type[BaseEnv]:
        """The environment's class."""
        if self.env is not None:
            named = f"{self.env}:{self.env_class}" if self.env_class and self.env.endswith(".py") else self.env
            return load_env_class(named)
        if self.module is not None:
            if self.env_class is None:
                raise UsageError("--module needs --env-class: name the class to take from the module.")
            return load_env_class(f"{self.module}.{self.env_class}")
        path = self.directory / self.run_file
        if not path.is_file():
            raise UsageError(
                f"There is no {path} here. Name an environment (benchmax validate arithmetic), "
                "or the project's folder and file with --dir and --run-file; `benchmax setup` makes a new project."
            )
        return load_env_class(f"{path}:{self.env_class}" if self.env_class else str(path))

    def arguments(self, cls: type[BaseEnv], *configs: Mapping[str, Any]) -> dict[str, Any]:
        """What the constructor gets: from the dicts of `main.py`, of which the last wins, and from the command line."""
        arguments: dict[str, Any] = {}
        for config in configs:
            arguments |= config.get("env_args", {})
        arguments |= parse_env_args(self.env_arg, self.env, self.data)
        refuse_unknown_arguments(cls, arguments)
        return arguments

    def rows(self, cls: type[BaseEnv]) -> tuple[Source, Source | None]:
        """Training and held-out rows: those named, those beside the environment's file, or its own."""
        file = (self.env or "").partition(":")[0]
        home = Path(file).parent if file.endswith(".py") else self.directory
        train, evaluation = self.data or self.train, self.evaluation
        if train is None and (home / TRAIN).is_file() and not overrides(cls, "load_dataset"):
            train = str(home / TRAIN)
            beside = home / HELD_OUT
            evaluation = evaluation or (str(beside) if beside.is_file() else None)
        return _source(cls, train), _source(cls, evaluation) if evaluation else None


def project_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a `ProjectOptions`: on the command line, each of its fields is an option."""
    fields = signature(ProjectOptions, eval_str=True).parameters
    own = list(signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def run(**given: Any) -> None:
        command(ProjectOptions(**{name: given.pop(name) for name in fields}), **given)

    run.__signature__ = Signature([*fields.values(), *own])  # type: ignore[attr-defined]
    return run


def project_config(cls: type[BaseEnv], name: str, keys: Sequence[str]) -> Mapping[str, Any]:
    """The dict `name` of the environment's module, if it has one."""
    config = getattr(sys.modules.get(cls.__module__), name, {})
    if not isinstance(config, Mapping):
        raise UsageError(f"{name} is {type(config).__name__}; make it a dict.")
    unknown = [key for key in config if key not in keys]
    if unknown:
        raise UsageError(f"{name} has the unknown key {unknown[0]!r}. Known: {', '.join(keys)}.")
    return config


def refuse_server_without_model(base_url: str | None, model: str | None) -> None:
    if base_url and not model:
        raise UsageError(f"--base-url {base_url} needs --model: name the model that the server should use.")


def rereadable(source: Source) -> Source:
    """Rows that can be read more than once."""
    return list(source) if isinstance(source, Iterator) else source


def _source(cls: type[BaseEnv], name: str | None) -> Source:
    """A file, or what the environment's own load_dataset returns for a name."""
    if name is None and not overrides(cls, "load_dataset"):
        raise UsageError(
            f"{cls.__name__} brings no rows of its own. Give some with --data FILE, or put {TRAIN} next to its file."
        )
    return find_rows(cls, name)  # type: ignore[no-any-return]
