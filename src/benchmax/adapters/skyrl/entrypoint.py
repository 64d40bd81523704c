"""A training run of SkyRL on our environments, from a short script.

    sys.exit(main({"MathEnv": partial(MathEnvLocal, num_local_servers=160)}))

All further words of the command line are SkyRL's own settings (`trainer.epochs=20`); `--smoke` goes through one step on
the CPU instead, with a toy model and small numbers. What is missing on this machine is said in one line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from benchmax.adapters.skyrl import ADAPTER
from benchmax.adapters.skyrl.generator import OpenEnv, make_generator
from benchmax.adapters.trainer_status import trainer_status
from benchmax.errors import BenchmaxError, ConfigError, UsageError, error_message
from benchmax.rollouts.settings import RolloutSettings

SMOKE = "--smoke"


def main(
    envs: Mapping[str, OpenEnv],
    argv: Sequence[str] | None = None,
    *,
    smoke_envs: Mapping[str, OpenEnv] | None = None,
    settings: RolloutSettings = RolloutSettings(),
) -> int:
    """Train, or go through one step with `--smoke`; returns the exit code. `smoke_envs` replace `envs` there."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if (found := trainer_status(ADAPTER)).state != "ok":
            raise UsageError(f"SkyRL: {found.says}.")
        if SMOKE in words:
            from benchmax.adapters.skyrl.smoke import smoke

            words.remove(SMOKE)
            smoke(smoke_envs or envs, words, settings)
        else:
            _check_machine()
            train(envs, words, settings)
    except BenchmaxError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def train(envs: Mapping[str, OpenEnv], words: Sequence[str], settings: RolloutSettings) -> None:
    """Run SkyRL's own trainer, in its Ray task, with our generator."""
    import ray
    from skyrl.train.utils.utils import initialize_ray

    cfg = read_config(words)
    initialize_ray(cfg)
    ray.get(ray.remote(num_cpus=1)(run_experiment).remote(cfg, dict(envs), settings))


def run_experiment(cfg: Any, envs: Mapping[str, OpenEnv], settings: RolloutSettings) -> None:
    """What runs inside Ray."""
    experiment_class(envs, settings)(cfg).run()


def experiment_class(envs: Mapping[str, OpenEnv], settings: RolloutSettings = RolloutSettings()) -> type[Any]:
    """SkyRL's experiment with our generator in the place of its own."""
    from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
    from skyrl.train.entrypoints.main_base import BasePPOExp

    class BenchmaxExp(BasePPOExp):  # type: ignore[misc]
        def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
            name = resolve_policy_model_name(cfg)
            return make_generator(
                envs, cfg.generator, inference_engine_client, tokenizer, policy_model_name=name, settings=settings
            )

    return BenchmaxExp


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


def _check_machine() -> None:
    """Raise for what SkyRL's workers and engines need beyond its generator."""
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"SkyRL trains on NVIDIA GPUs, and this machine has none. Run it on one that has, or try all else here "
            f"with {SMOKE}."
        )
    if missing := [name for name in ("vllm", "flash_attn") if find_spec(name) is None]:
        raise UsageError(f"SkyRL needs {' and '.join(missing)} to train. Run: pip install '{ADAPTER.pin.split()[0]}'.")
