"""The rows that we write are rows that verl's dataset reads."""

from __future__ import annotations

import re
from pathlib import Path

from omegaconf import OmegaConf
from verl.utils.dataset.rl_dataset import RLHFDataset

from benchmax.adapters.example_rows import carried
from benchmax.adapters.verl.dataset import main
from trainer_world import TEMPLATES, tokenizer

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "trainers" / "verl.md").read_text("utf-8")


def test_the_command_of_the_page_writes_what_verl_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"^python -m benchmax\.adapters\.verl\.dataset (.*)$", PAGE, re.MULTILINE)
    assert main(command.split()) == 0
    count = int(capsys.readouterr().out.split()[0])
    # Its filter forks, which does not go well beside the threads of other tests.
    config = OmegaConf.create({"cache_dir": str(tmp_path / "cache"), "filter_overlong_prompts": False})
    rows = RLHFDataset("train.parquet", tokenizer(TEMPLATES[0]), config)
    assert len(rows) == count > 10
    row = rows[0]
    assert row["raw_prompt"][0]["role"] == "system"
    example = carried(row, row["raw_prompt"])
    assert example["prompt_messages"][-1]["content"] == row["raw_prompt"][-1]["content"]
    assert row["agent_name"] == "benchmax"


def test_an_environment_that_is_not_there_is_one_line(capsys):
    assert main(["no-such-environment", "--out", "x.parquet"]) == 2
    assert capsys.readouterr().err.startswith("error: There is no environment named")
