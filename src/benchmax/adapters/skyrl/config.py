"""SkyRL's settings from the words of a command line, read and checked by SkyRL itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmax.errors import ConfigError, error_message


def read_config(words: Sequence[str]) -> Any:
    """SkyRL's configuration; raises ConfigError with what SkyRL says against it."""
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils import validate_cfg

    try:
        cfg = SkyRLTrainConfig.from_cli_overrides(list(words))
        validate_cfg(cfg)
    except Exception as error:  # SkyRL asserts, OmegaConf raises errors of its own
        says = " ".join(error_message(error).split()) or type(error).__name__
        raise ConfigError(f"SkyRL refuses these settings: {says}. Correct them on the command line.") from error
    return cfg
