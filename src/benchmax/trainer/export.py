"""A trained checkpoint as files that other programs load.

`export_adapter` writes a peft adapter; `export_merged` a whole model directory with a model card, for plain
transformers, vLLM and the like. Both appear whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmax import metrics
from benchmax.errors import UsageError
from benchmax.files.atomic import refuse_filled, replacing_folder
from benchmax.inference.weights.store import KNOWN, is_name, read_card, resolve
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer.checkpoint import Checkpoint, plain_disk_errors
from benchmax.trainer.config import TrainConfig, dump_toml
from benchmax.trainer.open_checkpoint import read_weights, trained_policy
from benchmax.trainer.rundir import check_run, read_config, read_metrics
from benchmax.trainer.task import file_settings


def export_adapter(run: Path, out: Path, *, which: str = "best") -> Path:
    """Write the LoRA adapter of a checkpoint, in peft's format."""
    check_run(run)
    config = read_config(run)
    if config.model.tune != "lora":
        raise UsageError("This run trained all weights, so there is no adapter. Export it merged.")
    checkpoint, weights = read_weights(run, which)
    peft = trained_policy(config, weights).peft
    assert peft is not None
    with _model_folder(out) as folder:
        peft.save_pretrained(folder)
        settings = folder / "adapter_config.json"  # without the base model's folder on this machine
        named = json.loads(settings.read_text("utf-8")) | {"base_model_name_or_path": base_name(config.model.name)}
        settings.write_text(json.dumps(named, indent=2, sort_keys=True) + "\n", "utf-8")
        (folder / "README.md").write_text(model_card(run, config, checkpoint, library="peft"), "utf-8")
    return out.absolute()


def export_merged(run: Path, out: Path, *, which: str = "best", dtype: str = "float32") -> Path:
    """Write a whole model directory: safetensors, tokenizer, model card."""
    from transformers import AutoTokenizer

    check_run(run)
    config = read_config(run)
    checkpoint, weights = read_weights(run, which)
    model = _merged_model(config, weights).to(getattr(torch, dtype))
    with _model_folder(out) as folder:
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(resolve(config.model.name)).save_pretrained(folder)
        (folder / "README.md").write_text(model_card(run, config, checkpoint), "utf-8")
    return out.absolute()


@torch.no_grad()
def _merged_model(config: TrainConfig, weights: Mapping[str, Tensor]) -> Any:
    """A plain transformers model with the trained weights in place."""
    policy = trained_policy(config, weights)
    merged, model = policy.sampler_weights(), policy.model
    if policy.peft is not None:
        model = policy.peft.unload()  # without the adapter's layers; its change is in `merged`
        own = dict(model.named_parameters())
        for name, weight in merged.items():
            own[name].copy_(weight)
    model.config.use_cache = True
    return model


def base_name(model: str) -> str:
    """What the base model is called on any machine: its own name, or the last part of a path.

    Not the hub's name of a known model: peft would put the adapter on the hub's weights, which differ.
    """
    if is_name(model):
        return model
    path = os.path.expanduser(model)
    return os.path.basename(os.path.realpath(path)) if os.path.exists(path) or os.path.isabs(path) else model


def model_card(run: Path, config: TrainConfig, checkpoint: Checkpoint, *, library: str = "transformers") -> str:
    """What the model is, how it was trained, and what it earned; it contains no path of this machine."""
    licence, base_weights = _licence(config.model.name), _base_weights(config.model.name, library)
    config = _portable(config)
    served = f"{config.model.name}:FOLDER" if library == "peft" else "FOLDER"
    evals = [line for line in read_metrics(run) if line["split"] == "eval" and line["step"] <= checkpoint.step]
    method, trained = _method(run, config)
    head = {"base_model": config.model.name, **licence, "library_name": library, "tags": ["benchmax", method]}
    front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in head.items())
    rows = "\n".join(
        f"| {line['step']} | {line['values'].get(metrics.REWARD, float('nan')):.3f} "
        f"| {line['values'].get(metrics.SOLVE_RATE, float('nan')):.3f} |"
        for line in evals
    )
    settings = dump_toml(config)
    return f"""---
{front}
---
# {run.name}

{config.model.name} {trained},
{checkpoint.step} steps ({"LoRA adapter" if config.model.tune == "lora" else "all weights"}), by benchmax.
{base_weights}
```bash
benchmax serve {served}   # FOLDER holds this file
```

## Held-out rows

| step | mean reward | solved |
| --- | --- | --- |
{rows}

## Settings

```toml
{settings}```
"""


def _method(run: Path, config: TrainConfig) -> tuple[str, str]:
    """How the model was trained, as a tag and as text. An environment given in code is named by its rollouts only."""
    rollouts = (rollout for file in (run / "rollouts").glob("*.jsonl") for rollout in read_rollouts(file))
    env = config.data.env or next((rollout.env for rollout in rollouts), "")
    if not env and config.sft.data:
        return "sft", "trained on given answers"
    return "grpo", f"trained with GRPO on the environment `{env or '(given in code)'}`"


def _base_weights(model: str, library: str) -> str:
    """A paragraph on base weights that were quantised, which an adapter fits alone; empty for others."""
    card, name = read_card(resolve(model)), base_name(model)
    if card is None or not card.quantisation:
        return ""
    known = KNOWN.get(model)
    others = f"; they are not the full-precision weights of {known.original}" if known and known.original else ""
    made = f"\nThe base weights were dequantised from {card.quantisation} ({card.file}){others}.\n"
    if library != "peft":
        return made
    fetched = f"`benchmax models pull {name}` fetches them, " if known else ""
    return f"""{made}The adapter belongs on the dequantised ones: {fetched}`benchmax models path {name}`
prints their folder, for peft.
For use without benchmax, export the merged weights instead: `benchmax export RUN FOLDER`.
"""


def _licence(model: str) -> dict[str, str]:
    """The base model's licence, which holds for what was made from it; empty where it is not known."""
    card = read_card(resolve(model))
    return {"license": card.license.lower()} if card and card.license.lower() not in ("", "-", "unknown") else {}


def _portable(config: TrainConfig) -> TrainConfig:
    """The settings without paths of this machine."""
    config = config.model_copy(deep=True)
    config.model.name = base_name(config.model.name)
    config.output.dir = Path(config.output.dir).name
    config.data.env = ",".join(Path(env).name if Path(env).is_absolute() else env for env in config.data.env.split(","))
    for section, field in file_settings(config):
        given = Path(getattr(section, field))
        if given.is_absolute():
            setattr(section, field, given.name)
    return config


@contextmanager
def _model_folder(out: Path) -> Iterator[Path]:
    """A new folder for a model; UsageError when something is there already."""
    out = out.absolute()
    refuse_filled(out)
    with replacing_folder(out) as folder, plain_disk_errors(out):
        yield folder
        # Some writers make files that only their owner may read; a server of another user must read the model.
        mode = (folder / "README.md").stat().st_mode & 0o777
        for file in folder.rglob("*"):
            if file.is_file():  # a tokenizer with several chat templates has a folder of them
                file.chmod(mode)
