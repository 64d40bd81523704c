"""One tree of settings: the TOML file, the dotted flags (`--optim.lr 5e-4`) and the saved run config are one thing.

    sections         the tree; the string under each field is its documentation
    text             reads and writes it: files, flags, the list of all settings
    config_errors    pydantic's errors in plain words
    chosen_settings  what is chosen for a run where nobody gave a setting

Settings hold no behaviour: what they do is in the rooms that read them.
"""

from benchmax.trainer.config.sections import (
    PLAIN,
    WARM_STARTS,
    AlgorithmConfig,
    LoraConfig,
    OptimConfig,
    SftConfig,
    TrainConfig,
    WatchConfig,
)
from benchmax.trainer.config.text import build_config, dump_toml, fields, flags_tree, load_config

__all__ = [
    "PLAIN",
    "WARM_STARTS",
    "AlgorithmConfig",
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
]
