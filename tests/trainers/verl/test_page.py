"""The commands of the page about verl: what it installs, and settings that verl knows."""

from __future__ import annotations

import re
import shlex

from hydra import compose, initialize_config_dir
from verl_world import CONFIGS

from trainer_pages import check_page, page


def test_the_page_installs_what_is_tested_here():
    check_page("verl", "verl")


def test_the_settings_of_the_run_are_verls():
    """The run itself needs GPUs; verl's own configuration takes every setting of it."""
    (command,) = re.findall(r"```text\n(python -m verl.*?)```", page("verl"), re.DOTALL)
    python, module, main, *words = shlex.split(command.replace("\\\n", " "))
    assert (python, module, main) == ("python", "-m", "verl.trainer.main_ppo")
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = compose("ppo_trainer", words)
    assert config.actor_rollout_ref.rollout.agent.agent_loop_config_path == "benchmax.yaml"
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "benchmax"
    assert config.data.train_files == "train.parquet"
