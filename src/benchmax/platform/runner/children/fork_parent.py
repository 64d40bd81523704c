"""The model a forked run begins with: the checkpoint it was forked from, as a whole model in the run's own folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def parent_model(run_dir: Path, parent: Mapping[str, Any], model: str) -> Path:
    """The folder of that model, made when it is not there yet."""
    from benchmax.trainer.export import export_merged

    checkpoint = str(parent["checkpoint"])
    out = run_dir / "parent" / "model" / f"{Path(model).name}-{checkpoint}"
    if not out.is_dir():
        out.parent.mkdir(mode=0o700, exist_ok=True)
        export_merged(run_dir / "parent", out, which=checkpoint)
    return out
