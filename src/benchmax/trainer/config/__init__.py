"""One tree of settings: the TOML file, the dotted flags (`--optim.lr 5e-4`) and the saved run config are one thing.

`sections` is the tree, `text` reads and writes it.
"""

from benchmax.trainer.config.sections import (
    PLAIN,
    WARM_STARTS,
    LoraConfig,
    OptimConfig,
    SftConfig,
    TrainConfig,
    WatchConfig,
    preset_lr,
)
from benchmax.trainer.config.text import build_config, dump_toml, fields, flags_tree, load_config

__all__ = [
    "PLAIN",
    "WARM_STARTS",
    "LoraConfig",
    "OptimConfig",
    "SftConfig",
    "TrainConfig",
    "WatchConfig",
    "build_config",
    "dump_toml",
    "fields",
    "flags_tree",
    "load_config",
    "preset_lr",
]
