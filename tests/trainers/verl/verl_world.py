"""verl's own agent loop worker on a CPU, with a scripted server for verl's engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from transformers import Qwen3Config
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.workers.rollout.replica import TokenOutput

from benchmax.adapters.example_rows import carry
from trainer_world import Case, Template, tokenizer

CONFIGS = Path(verl.__file__).parent / "trainer" / "config"


class ScriptedServer:
    """What verl's agent loops ask for tokens."""

    def __init__(self, next_turn: Any) -> None:
        self.next_turn = next_turn
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **more):
        self.asked.append((request_id, sampling_params))
        ids, logprobs = self.next_turn(prompt_ids)
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed")


def model_folder(template: Template, folder: Path) -> Path:
    """A tokenizer and a configuration, as much of a model as the worker loads."""
    encode = tokenizer(template)
    encode.save_pretrained(folder)
    config = Qwen3Config(vocab_size=len(encode), hidden_size=32, num_hidden_layers=1)
    config.architectures = ["Qwen3ForCausalLM"]
    config.save_pretrained(folder)
    return folder


def worker(template: Template, folder: Path, loop: str, server: Any, *, length: int = 1500) -> AgentLoopWorker:
    """verl's worker, configured as a run is; `loop` is the YAML file's text."""
    (folder / "loop.yaml").write_text(loop)
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = compose("ppo_trainer", [
            f"actor_rollout_ref.model.path={model_folder(template, folder / 'model')}",
            "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.calculate_log_probs=True",
            f"actor_rollout_ref.rollout.prompt_length={length}", f"actor_rollout_ref.rollout.response_length={length}",
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loop.yaml'}",
            "actor_rollout_ref.rollout.agent.default_agent_loop=benchmax",
        ])  # fmt: skip
    return AgentLoopWorker(config, server)


def batch_of(case: Case, count: int) -> DataProto:
    """The rows that verl's trainer hands a worker: one prompt, repeated."""
    prompt = [{"role": "system", "content": case.env.system_prompt}, *case.example["prompt_messages"]]
    columns = {
        "raw_prompt": prompt, "uid": "u1", "agent_name": "benchmax", "index": 0, "data_source": "x",
        "reward_model": {"style": "rule", "ground_truth": ""}, "extra_info": {"index": 0}, **carry(case.example),
    }  # fmt: skip
    rows = {name: np.empty(count, dtype=object) for name in columns}
    for name, value in columns.items():
        for place in range(count):
            rows[name][place] = value
    return DataProto.from_dict(tensors={"dummy": torch.zeros(count, 1)}, non_tensors=rows)
