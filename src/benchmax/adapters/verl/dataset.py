"""Rows as verl's RLHFDataset reads them: `python -m benchmax.adapters.verl.dataset ENV --out train.parquet`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmax.adapters.example_rows import carry
from benchmax.envs.base_env import BaseEnv, with_system_prompt
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import find_rows, load_env_class
from benchmax.errors import BenchmaxError

AGENT = "benchmax"
"""The name of the agent loop in verl's configuration."""


def write_dataset(env: type[BaseEnv], rows: Any, out: str | Path) -> int:
    """Write the rows of an environment; returns how many there are."""
    from datasets import Dataset

    examples = list(load_examples(rows, env))
    Dataset.from_list(
        [
            {
                "prompt": list(with_system_prompt(example["prompt_messages"], env.system_prompt)),
                "data_source": env.__name__,
                "agent_name": AGENT,
                "reward_model": {"style": "rule", "ground_truth": ""},
                "extra_info": {"index": index},
                **carry(example),
            }
            for index, example in enumerate(examples)
        ]
    ).to_parquet(str(out))
    return len(examples)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmax.adapters.verl.dataset", description=__doc__)
    parser.add_argument("env", help="a name of `benchmax env list`, main.py:Class, or package.module.Class")
    parser.add_argument("--data", help="its rows: a file, hf:owner/name, or a name that it loads itself")
    parser.add_argument("--out", required=True, help="the parquet file")
    asked = parser.parse_args(words)
    try:
        env = load_env_class(asked.env)
        count = write_dataset(env, find_rows(env, asked.data), asked.out)
    except BenchmaxError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{count} rows in {asked.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
