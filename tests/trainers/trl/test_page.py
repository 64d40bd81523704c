"""The page about TRL runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from trl import GRPOConfig, GRPOTrainer
from trl_world import QWEN3, model

from benchmax.adapters.trl.environments import BenchmaxEnvironments
from forked_commands import ForkedCommands
from trainer_pages import check_page, page
from trainer_world import SumEnv, tokenizer

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "docs"))

from markdown_blocks import Reader  # noqa: E402


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ForkedCommands() as commands:
        Reader(ROOT / "docs" / "trainers" / "trl.md", tmp_path, "", commands).follow()


def test_the_page_installs_what_is_tested_here():
    check_page("trl", "trl")


def test_the_simple_case_of_the_page_trains(tmp_path, monkeypatch):
    """Its code, with a model of random weights and small numbers in the place of Qwen's."""
    monkeypatch.chdir(tmp_path)
    encode = tokenizer(QWEN3)
    model(encode).save_pretrained("qwen")
    encode.save_pretrained("qwen")
    (code,) = re.findall(r"```text\n(simple = .*?)```", page("trl"), re.DOTALL)
    small = "use_cpu=True, bf16=False, report_to=[], max_steps=1, num_generations=2, per_device_train_batch_size=2"
    code = code.replace("Qwen/Qwen3-0.6B", "qwen").replace(
        'output_dir="run"', f'output_dir="run", {small}, max_completion_length=16'
    )
    names = {"BenchmaxEnvironments": BenchmaxEnvironments, "GRPOTrainer": GRPOTrainer, "GRPOConfig": GRPOConfig}
    space = {**names, "Sums": SumEnv, "rows": [{"prompt": "2 + 2?", "ground_truth": "4"}]}
    exec(code, space)
    space["trainer"].train()
    assert space["trainer"].state.global_step == 1
    space["simple"].close()
