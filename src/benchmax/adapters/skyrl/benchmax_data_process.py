# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["benchmax[data,envs,mcp]"]
#
# [tool.uv.sources]
# benchmax = { path = "../../../..", editable = true }
# ///
"""A dataset as SkyRL reads it: `train.parquet` and `test.parquet`, with the tools in the system prompt.

    uv run src/benchmax/adapters/skyrl/benchmax_data_process.py \\
      --local_dir ~/data/math --dataset_name words --env_path benchmax.envs.math.math_env.MathEnvLocal

A row has `prompt` (messages, the tools described in the first), `env_class` and `data_source` (the environment's name,
without Local or Skypilot), `benchmax_example` (the whole example, for our generator), and, as texts, `ground_truth` and
`init_rollout_args` where the example has them. Splits named train and test are kept; of everything else a fifth is held
out for the test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.adapters.example_rows import carry
from benchmax.envs.base_env import BaseEnv, with_system_prompt
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.datasets.split import split_rows
from benchmax.envs.loading import constructor_parameters, load_env_class, make_env, parse_env_args
from benchmax.envs.types import Example, ToolDefinition
from benchmax.errors import BenchmaxError, DatasetError, describe_error
from benchmax.files.atomic import replacing
from benchmax.models.text_tools import as_text, opening
from benchmax.rollouts.host import EnvHost

TRAIN_SHARE = 0.8
SEED = 42
PLACES = ("Local", "Skypilot")
"""What the name of a class says of where its servers run: one dataset serves them all."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write train.parquet and test.parquet for SkyRL.")
    parser.add_argument("--local_dir", required=True, help="The folder to write to; it is made.")
    parser.add_argument("--dataset_name", required=True, help="A name the environment loads, a file, or hf:owner/name.")
    parser.add_argument("--env_path", required=True, help="The environment's class, such as package.module.MyEnv.")
    parser.add_argument("--env_arg", "--env-arg", action="append", metavar="KEY=VALUE", help="For its constructor.")
    asked = parser.parse_args(argv)
    try:
        folder, env_class = Path(asked.local_dir).expanduser(), load_env_class(asked.env_path)
        written = process(folder, asked.dataset_name, env_class, parse_env_args(asked.env_arg))
    except (BenchmaxError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for path, rows in written.items():
        sys.stdout.write(f"{path}: {rows} rows\n")
    return 0


def process(
    folder: Path, dataset_name: str, env_class: type[BaseEnv], env_args: Mapping[str, Any] | None = None
) -> dict[Path, int]:
    """Write both files; returns how many rows each has."""
    splits = examples_of(env_class, dataset_name)
    tools = asyncio.run(tools_of(env_class, splits["train"], env_args or {}))
    folder.mkdir(parents=True, exist_ok=True)
    return {
        path: write(path, [row_of(example, env_class, tools) for example in examples])
        for path, examples in ((folder / f"{split}.parquet", splits[split]) for split in ("train", "test"))
    }


def examples_of(env_class: type[BaseEnv], name: str) -> dict[str, list[Example]]:
    """The examples to train on and to test with."""
    rows = _rows(env_class, name)
    if isinstance(rows, Mapping) and set(rows) == {"train", "test"}:
        return {split: list(load_examples(part, env_class)) for split, part in rows.items()}
    parts = list(rows.values()) if isinstance(rows, Mapping) else [rows]
    examples = [example for part in parts for example in load_examples(part, env_class)]
    train, test = split_rows(examples, TRAIN_SHARE, SEED)
    if not train or not test:
        raise DatasetError(f"{name} has {len(examples)} rows, too few to hold a fifth out. Give at least five.")
    return {"train": train, "test": test}


def _rows(env_class: type[BaseEnv], name: str) -> Any:
    if name.startswith("hf:") or os.path.isfile(name):
        return name
    try:
        rows, _ = env_class.load_dataset(name)
    except BenchmaxError:
        raise
    except Exception as error:
        raise DatasetError(
            f"{env_class.__name__}.load_dataset({name!r}) failed: {describe_error(error)}. "
            "Give a name it knows, the path of a file, or hf:owner/name."
        ) from error
    parts = rows.values() if isinstance(rows, Mapping) else [rows]
    if not all(hasattr(part, "__len__") for part in parts):
        raise DatasetError(f"{name} is a stream without a length, which cannot be split. Load it without streaming.")
    return rows


async def tools_of(
    env_class: type[BaseEnv], examples: Sequence[Example], env_args: Mapping[str, Any]
) -> list[ToolDefinition]:
    """The tools of the environment, made as the rows need it; servers are started for nothing else, so one will do."""
    known = constructor_parameters(env_class)
    given: dict[str, Any] = {"num_local_servers": 1} if "num_local_servers" in known else {}
    levels = {(example.get("init_rollout_args") or {}).get("level") for example in examples}
    if "level" in known and len(levels) == 1 and None not in levels:
        given["level"] = levels.pop()
    async with EnvHost(lambda: make_env(env_class, {**given, **env_args})) as host:
        return list((await host.toolbox()).tools)


def row_of(example: Example, env_class: type[BaseEnv], tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    """One row of the file."""
    messages = as_text(opening(with_system_prompt(example["prompt_messages"], env_class.system_prompt), tools))
    task, name = example.get("task") or {}, canonical_name(env_class)
    optional = {"ground_truth": task.get("ground_truth"), "init_rollout_args": example.get("init_rollout_args")}
    return {
        "prompt": [{"role": message["role"], "content": message["content"]} for message in messages],
        "env_class": name,
        "data_source": name,
        **carry(example),
        **{key: _text(value) for key, value in optional.items() if value is not None},
    }


def canonical_name(env_class: type[BaseEnv]) -> str:
    """The name of the parent, where a class only says in what place its parent runs: ExcelEnv for ExcelEnvLocal."""
    name = env_class.__name__
    for place in PLACES:
        bare = name.removesuffix(place).removeprefix(place)
        if bare != name and any(parent.__name__ == bare for parent in env_class.__mro__[1:]):
            return bare
    return name


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write the rows in one step; returns how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = dict.fromkeys(name for row in rows for name in row)
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    kinds = [(name, pa.list_(message) if name == "prompt" else pa.string()) for name in names]
    with replacing(path) as file:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(kinds)), file)
    return len(rows)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
