"""SkyRL's generators on a CPU: an inference engine that plays a script, and their configuration."""

from __future__ import annotations

from typing import Any

from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface
from skyrl.train.config import GeneratorConfig
from skyrl.train.generators.base import BatchMetadata, TrajectoryID

from benchmax.adapters.example_rows import carry
from benchmax.prompts.tools import render_tools_prompt
from trainer_world import Case, Script


class ScriptedEngine(InferenceEngineInterface):
    """SkyRL's own port of an engine; the answers are a script's."""

    model_name = "scripted"
    weight_version = 3

    def __init__(self, script: Script, tokenizer: Any, *, fails: Any = None) -> None:
        self.script, self.tokenizer, self.fails = script, tokenizer, fails
        self.requests: list[dict[str, Any]] = []
        self.ended: list[str] = []

    async def generate(self, input_batch, model=None):
        self.requests.append(dict(input_batch))
        prompts = input_batch["prompt_token_ids"]
        if self.fails:
            self.fails(prompts[0])
        drawn = [self.script.next_turn(prompt) for prompt in prompts]
        return {
            "responses": [self.tokenizer.decode(ids, skip_special_tokens=True) for ids, _ in drawn],
            "response_ids": [ids for ids, _ in drawn],
            "stop_reasons": ["stop"] * len(drawn),
            "response_logprobs": [logprobs for _, logprobs in drawn],
        }

    async def finish_session(self, session_id):
        self.ended.append(session_id)

    def get_endpoint_url(self):
        raise NotImplementedError

    async def chat_completion(self, request_payload):
        raise NotImplementedError

    async def render_chat_completion(self, request_payload):
        raise NotImplementedError

    async def completion(self, request_payload):
        raise NotImplementedError

    async def wake_up(self, *args, **kwargs): ...
    async def sleep(self, *args, **kwargs): ...
    async def update_named_weights(self, request): ...
    async def load_lora_adapter(self, lora_name, lora_path): ...
    async def teardown(self): ...
    async def reset_prefix_cache(self, reset_running_requests=False): ...
    async def pause_generation(self): ...
    async def resume_generation(self): ...
    async def get_world_size(self):
        return 1, 1


def generator_config(**changes: Any) -> GeneratorConfig:
    made = GeneratorConfig(max_turns=3, max_input_length=4000, n_samples_per_prompt=4)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def batch_of(case: Case, *, env_class: str = "SumEnv", tools: Any = (), phase: str = "train") -> dict[str, Any]:
    """The case as SkyRL's trainer hands it to a generator."""
    system = render_tools_prompt(tools, case.env.system_prompt)
    prompt = [{"role": "system", "content": system}, *case.example["prompt_messages"]]
    count = len(case.samples)
    return {
        "prompts": [prompt] * count,
        "env_classes": [env_class] * count,
        "env_extras": [dict(carry(case.example)) for _ in range(count)],
        "sampling_params": {"temperature": 1.0, "max_tokens": 1024, "logprobs": 1},
        "trajectory_ids": [TrajectoryID("17", index) for index in range(count)],
        "batch_metadata": BatchMetadata(global_step=5, training_phase=phase),
    }
