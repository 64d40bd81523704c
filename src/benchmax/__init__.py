"""benchmax: RL environments as plain Python, from the first row to a trained model.

The names for daily use are here. A name is imported when it is first used, so `import benchmax` stays light; the
modules behind the names (`benchmax.envs.types`, `benchmax.rewards` …) may be imported directly as well.

envs          what an environment is, datasets, built-in environments; bundle: an environment packed into a file
models        what answers a prompt; inference: models on this machine; prompts: tools as text
rollouts      playing and recording; rewards, rubrics: scoring
doctor        examining an environment; evaluation: measuring a model; trainer: training one
adapters      our environments in other trainers, and theirs as ours
sandbox       untrusted code, confined; search: texts found by their words; net: addresses, ports, events over HTTP
platform      the self-hosted server, its runner and its Python client; cli: the command line
files         safe files; and single modules: errors, limits, metrics, plugins, config, profiles, extras, retries,
              deadlines, cross_loop, concurrency, memory, package_folders, testing, published
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmax import published

if TYPE_CHECKING:
    from benchmax.envs.base_env import BaseEnv as BaseEnv
    from benchmax.envs.datasets.load import check_dataset as check_dataset
    from benchmax.envs.datasets.load import load_examples as load_examples
    from benchmax.envs.datasets.split import split_rows as split_rows
    from benchmax.envs.example_id import canonical_example_id as canonical_example_id
    from benchmax.envs.example_id import make_example as make_example
    from benchmax.envs.reward_helpers import extract_completion_text as extract_completion_text
    from benchmax.envs.types import ChatMessage as ChatMessage
    from benchmax.envs.types import Example as Example
    from benchmax.envs.types import ToolCall as ToolCall
    from benchmax.envs.types import ToolDefinition as ToolDefinition
    from benchmax.envs.types import ToolResult as ToolResult
    from benchmax.envs.types import Transcript as Transcript
    from benchmax.envs.types import Unscored as Unscored
    from benchmax.errors import BenchmaxError as BenchmaxError
    from benchmax.errors import RolloutError as RolloutError
    from benchmax.errors import UsageError as UsageError
    from benchmax.evaluation.compare import compare as compare
    from benchmax.evaluation.evaluate import evaluate as evaluate
    from benchmax.models.base import ModelClient as ModelClient
    from benchmax.models.base import Sampling as Sampling
    from benchmax.models.http import HttpModel as HttpModel
    from benchmax.models.scripted import ScriptedModel as ScriptedModel
    from benchmax.platform.validation import validate_env as validate_env
    from benchmax.rewards.functions import Rewards as Rewards
    from benchmax.rewards.judge import Judge as Judge
    from benchmax.rewards.ranking import rank_group_rubrics as rank_group_rubrics
    from benchmax.rewards.rubric import Rubric as Rubric
    from benchmax.rewards.rubric import score_rubrics as score_rubrics
    from benchmax.rewards.tournament import tournament as tournament
    from benchmax.rollouts.groups import run_batch as run_batch
    from benchmax.rollouts.groups import run_group as run_group
    from benchmax.rollouts.host import EnvHost as EnvHost
    from benchmax.rollouts.play import run_rollout as run_rollout
    from benchmax.rollouts.record import Rollout as Rollout
    from benchmax.rollouts.record import Termination as Termination
    from benchmax.rollouts.record_files import read_rollouts as read_rollouts
    from benchmax.rollouts.replay import replay as replay
    from benchmax.rollouts.settings import RolloutSettings as RolloutSettings

    __version__: str

_HOMES = {
    "benchmax.envs.base_env": "BaseEnv",
    "benchmax.envs.datasets.load": "check_dataset load_examples",
    "benchmax.envs.datasets.split": "split_rows",
    "benchmax.envs.example_id": "canonical_example_id make_example",
    "benchmax.envs.reward_helpers": "extract_completion_text",
    "benchmax.envs.types": "ChatMessage Example ToolCall ToolDefinition ToolResult Transcript Unscored",
    "benchmax.errors": "BenchmaxError RolloutError UsageError",
    "benchmax.evaluation.compare": "compare",
    "benchmax.evaluation.evaluate": "evaluate",
    "benchmax.models.base": "ModelClient Sampling",
    "benchmax.models.http": "HttpModel",
    "benchmax.models.scripted": "ScriptedModel",
    "benchmax.platform.validation": "validate_env",
    "benchmax.rewards.functions": "Rewards",
    "benchmax.rewards.judge": "Judge",
    "benchmax.rewards.ranking": "rank_group_rubrics",
    "benchmax.rewards.rubric": "Rubric score_rubrics",
    "benchmax.rewards.tournament": "tournament",
    "benchmax.rollouts.groups": "run_batch run_group",
    "benchmax.rollouts.host": "EnvHost",
    "benchmax.rollouts.record_files": "read_rollouts",
    "benchmax.rollouts.play": "run_rollout",
    "benchmax.rollouts.record": "Rollout Termination",
    "benchmax.rollouts.replay": "replay",
    "benchmax.rollouts.settings": "RolloutSettings",
}
"""The names for daily use, by the modules that define them."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [*_HOME_OF, "__version__"]

published.install()


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value = version("benchmax")
        except PackageNotFoundError:  # run from a source tree that is not installed
            value = "0+source"
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
