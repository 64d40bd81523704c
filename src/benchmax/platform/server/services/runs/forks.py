"""A checkpoint as the start of another run. Its files get second names in the new run's directory, so that the new run
needs nothing of the old one, which may continue, remove the checkpoint, or be deleted.

    <new run>/parent/  run.json  config.json  metrics.jsonl  checkpoints/step-N/…  base/…  (the parent's own start)
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from benchmax.errors import UsageError
from benchmax.files.links import open_plain, read_plain

PARENT = "parent"
CONFIG_BYTES = 4 * 1024 * 1024
"""Of the settings of a run; a larger file is none."""


def link_parent(old: Path, new: Path, chosen: Path) -> None:
    """Put what is needed of the old run into the new one's directory; all of it or nothing."""
    parent = new / PARENT
    try:
        _link_tree(chosen, parent / "checkpoints" / chosen.name)
        for name in ("run.json", "metrics.jsonl"):
            if (old / name).is_file():
                with open_plain(old, name) as source, open(parent / name, "wb") as target:
                    shutil.copyfileobj(source, target)
        _copy_config(old, parent)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError | ValueError):
            raise UsageError(f"The checkpoint cannot be used: {error}. Choose another.") from None
        raise


def _copy_config(old: Path, parent: Path) -> None:
    """The old run's settings. If it was a fork too, the model it began with comes along."""
    config = json.loads(read_plain(old, "config.json", CONFIG_BYTES))
    try:
        base = Path(config["model"]["name"])
    except (LookupError, TypeError):
        raise ValueError("the settings of its run name no model") from None
    if base.is_absolute() and base.resolve().is_relative_to(old.resolve()) and base.is_dir():
        own = parent / "base" / base.name
        _link_tree(base, own)
        config["model"]["name"] = str(own)
    (parent / "config.json").write_text(json.dumps(config, indent=2), "utf-8")


def _link_tree(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, parents=True)
    for path in source.iterdir():
        if path.is_file() and not path.is_symlink():
            os.link(path, target / path.name)
