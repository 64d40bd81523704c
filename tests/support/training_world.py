"""Small training runs for tests: the settings of one, and how to run it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from benchmax.trainer.config import TrainConfig, build_config
from benchmax.trainer.tiny_model import make_tiny

Result = TypeVar("Result")


def config(directory: Path, folder: Path, **tree: Any) -> TrainConfig:
    """Four short steps of a tiny model by the plain recipe, as far as `tree` says nothing else."""
    base: dict[str, Any] = {
        "recipe": "plain",
        "model": {"name": str(directory), "tune": "full", "device": "cpu"},
        "optim": {"lr": 1e-2},
        "rollouts": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "max_turns": 1},
        "eval": {"every": 4},
        "checkpoint": {"every": 2},
        "limits": {"steps": 4},
        "output": {"dir": str(folder), "name": "run"},
    }
    for section, values in tree.items():
        base[section] = {**base.get(section, {}), **values} if isinstance(values, dict) else values
    return build_config(base)


def store_tiny(home: Path, name: str, **sizes: int) -> Path:
    """A toy model under a name, in a store of its own."""
    path = make_tiny(home / "models" / name, **{"hidden": 32, "layers": 2, **sizes})
    card = {"name": name, "title": "Toy", "source": "test", "license": "-", "sha256": "-", "parameters": 1, "bytes": 1}
    (path / "benchmax.json").write_text(json.dumps(card))
    return path


def go(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)
