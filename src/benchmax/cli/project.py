"""A project on the command line: a folder with `main.py`, which defines one environment, and its rows beside it.

`main.py` may hold two dicts, VALIDATE_CONFIG and LAUNCH_CONFIG; what is given on the command line wins over them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.readers import Source
from benchmax.envs.loading import find_rows
from benchmax.errors import UsageError

EXAMINATION = ("examples", "group_samples", "max_turns", "max_tool_calls", "pace", "seed")
VALIDATE_KEYS = ("env_args", *EXAMINATION)
"""What VALIDATE_CONFIG may hold."""
LAUNCH_KEYS = ("name", "env_args", "pip", "args")
"""What LAUNCH_CONFIG may hold; `args` are launch arguments."""
TRAIN, HELD_OUT = "train_dataset.jsonl", "eval_dataset.jsonl"

EnvName = Annotated[
    str | None,
    typer.Argument(help="arithmetic, main.py[:Class] or package.module.Class; the project's when omitted."),
]
Data = Annotated[str | None, typer.Option(help="Rows: a file, or a name the environment loads. Same as --train.")]
TrainRows = Annotated[str | None, typer.Option(help=f"Training rows; {TRAIN} of the project.")]
EvalRows = Annotated[str | None, typer.Option("--eval", help=f"Held-out rows; {HELD_OUT}.")]
Directory = Annotated[Path, typer.Option("--dir", help="The project's folder.")]
RunFile = Annotated[str, typer.Option(help="The project's file that defines the environment.")]
Module = Annotated[str | None, typer.Option(help="A module to take the environment from, instead of a file.")]
EnvClass = Annotated[str | None, typer.Option(help="The class, when there are several.")]
Packages = Annotated[list[str] | None, typer.Option(help="A package the environment needs; repeatable.")]
EnvArgs = Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the constructor; repeatable.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Leave unusable rows out instead of stopping.")]
Sandbox = Annotated[
    bool, typer.Option("--sandbox", help="Run the environment in a sandbox; its code is not loaded outside of it.")
]
BaseUrl = Annotated[
    str | None, typer.Option(help="An OpenAI-compatible server that has the model, like http://localhost:8000/v1.")
]
ApiKeyVar = Annotated[str | None, typer.Option(help="The environment variable that holds the server's key.")]


def env_spec(env: str | None, directory: Path, run_file: str, module: str | None, env_class: str | None) -> str:
    """The environment an argument names, as `load_env_class` takes it."""
    if env is not None:
        return f"{env}:{env_class}" if env_class and env.endswith(".py") else env
    if module is not None:
        if env_class is None:
            raise UsageError("--module needs --env-class: name the class to take from the module.")
        return f"{module}.{env_class}"
    path = directory / run_file
    if not path.is_file():
        raise UsageError(
            f"There is no {path} here. Name an environment (benchmax validate arithmetic), "
            "or the project's folder and file with --dir and --run-file; `benchmax setup` makes a new project."
        )
    return f"{path}:{env_class}" if env_class else str(path)


def project_home(env: str | None, directory: Path) -> Path:
    """The folder whose dataset files belong to the environment."""
    file = (env or "").partition(":")[0]
    return Path(file).parent if file.endswith(".py") else directory


def project_config(cls: type[BaseEnv], name: str, keys: Sequence[str]) -> Mapping[str, Any]:
    """The dict `name` of the environment's module, if it has one."""
    config = getattr(sys.modules.get(cls.__module__), name, {})
    if not isinstance(config, Mapping):
        raise UsageError(f"{name} is {type(config).__name__}; make it a dict.")
    unknown = [key for key in config if key not in keys]
    if unknown:
        raise UsageError(f"{name} has the unknown key {unknown[0]!r}. Known: {', '.join(keys)}.")
    return config


def project_rows(
    cls: type[BaseEnv], train: str | None, evaluation: str | None, home: Path
) -> tuple[Source, Source | None]:
    """Training and held-out rows: those named, those beside the environment's file, or its own."""
    if train is None and (home / TRAIN).is_file() and not _brings_rows(cls):
        train = str(home / TRAIN)
        beside = home / HELD_OUT
        evaluation = evaluation or (str(beside) if beside.is_file() else None)
    return _source(cls, train), _source(cls, evaluation) if evaluation else None


def again(source: Source) -> Source:
    """Rows that can be read more than once."""
    return list(source) if isinstance(source, Iterator) else source


def _source(cls: type[BaseEnv], name: str | None) -> Source:
    """A file, or what the environment's own load_dataset returns for a name."""
    if name is None and not _brings_rows(cls):
        raise UsageError(
            f"{cls.__name__} brings no rows of its own. Give some with --data FILE, or put {TRAIN} next to its file."
        )
    return find_rows(cls, name)  # type: ignore[no-any-return]


def _brings_rows(cls: type[BaseEnv]) -> bool:
    return any("load_dataset" in vars(each) for each in cls.__mro__ if each is not BaseEnv)
