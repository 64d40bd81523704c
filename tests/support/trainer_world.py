"""The same scripted tokens for every trainer: environments, chat templates, an engine that plays scripts, the truth.

`CASES` pairs three chat templates with conversations of one and several turns, with tools, with group rewards, with a
sample that cannot be scored. `expected(case)` says for each sample what a trainer has to receive, from first
principles: the template rendered by transformers over the whole conversation, not by the code under test.

An engine is asked for what follows some ids. `Script.next_turn` knows which conversation that is by its prefix, and
deals the samples of one prompt out in the order in which they are asked for. Rewards depend on texts alone, so results
are compared sorted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any, NamedTuple

from benchmax import BaseEnv, Unscored
from benchmax.envs.types import Example, ToolDefinition
from benchmax.prompts.tools import mcp2openai, render_tool_call, render_tool_response, render_tools_prompt

SPECIAL = ("<|im_end|>", "<|im_start|>", "<|pad|>", "<|eot_id|>", "<|header|>")
CHATML = (  # tools by the template itself
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "Tools:{% for t in tools %}\n{{ t | tojson }}{% endfor %}\nCall one with <tool_call><|im_end|>\n"
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}{% else %}{% set rest = messages %}"
    "{% endif %}{% for m in rest %}<|im_start|>{% if m.role == 'tool' %}user\n<tool_response>\n{{ m.content }}\n"
    "</tool_response>{% else %}{{ m.role }}\n{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADERS = (  # no tools, nothing between a turn's end and the next header
    "{% for m in messages %}<|header|>{{ m.role }}<|header|>\n\n{{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|header|>assistant<|header|>\n\n{% endif %}"
)
BRACKETS = (  # no tools, and marks that are ordinary text
    "{% for m in messages %}[{{ m.role | upper }}]\n{{ m.content }}<|im_end|>\n\n{% endfor %}"
    "{% if add_generation_prompt %}[ASSISTANT]\n{% endif %}"
)


class Template(NamedTuple):
    name: str
    text: str
    end: str
    native: bool
    """Whether it describes tools itself; else they are in the system message."""


TEMPLATES = (
    Template("chatml", CHATML, "<|im_end|>", True),
    Template("headers", HEADERS, "<|eot_id|>", False),
    Template("brackets", BRACKETS, "<|im_end|>", False),
)


def tokenizer(template: Template) -> Any:
    """One token per byte, and the control tokens: no merges, so a text has one way to be tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: index for index, token in enumerate([*SPECIAL, *letters])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=template.end, pad_token="<|pad|>", clean_up_tokenization_spaces=False
    )
    made.chat_template = template.text
    return made


ADD = ToolDefinition(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def last_answer(messages: Any) -> str:
    """The text of the model's last turn."""
    return next(str(each["content"]) for each in reversed(messages) if each["role"] == "assistant").strip()


class SumEnv(BaseEnv):
    """Sums, with a tool that adds. An answer of "?" cannot be scored."""

    system_prompt = "Answer with the number alone."

    async def list_tools(self) -> list[ToolDefinition]:
        return [ADD]

    async def run_tool(self, rollout_id: str, tool_name: str, **arguments: Any) -> str:
        return str(arguments["a"] + arguments["b"])

    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, Any]:
        answer = last_answer(messages)
        if answer == "?":
            return {"correct": Unscored("the judge was out")}
        return {"correct": float(answer == task["ground_truth"]), "brief": 0.25 * (len(answer) < 3)}


class PlainSumEnv(SumEnv):
    """Without the tool."""

    async def list_tools(self) -> list[ToolDefinition]:
        return []


class RankedSumEnv(SumEnv):
    """The longest answer of a group earns half a point more."""

    async def compute_group_reward(self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any) -> list[Any]:
        lengths = [len(last_answer(each)) for each in messages_list]
        return [{"longest": 0.5 * (length == max(lengths))} for length in lengths]


class Turn(NamedTuple):
    """What the model says, and what its tools answer."""

    says: str
    tools: tuple[str, ...] = ()


class Sample(NamedTuple):
    turns: tuple[Turn, ...]
    reward: float | None
    ends: str = "finished"


def _call(a: int, b: int) -> str:
    return render_tool_call("add", f'{{"a": {a}, "b": {b}}}')


_LONG = "It is four, all told."
BY_HAND = Sample((Turn("4"),), 1.25)
WRONG = Sample((Turn("twenty"),), 0.0)
WITH_TOOL = Sample((Turn(_call(2, 2), ("4",)), Turn("4")), 1.25)
TWO_CALLS = Sample((Turn(f"Both.\n{_call(1, 2)}\n{_call(1, 3)}", ("3", "4")), Turn("4")), 1.25)
TWO_STEPS = Sample((Turn(_call(1, 1), ("2",)), Turn(f"so {_call(2, 2)}", ("4",)), Turn("5")), 0.25)
ENDLESS = Sample((Turn(_call(1, 1), ("2",)),) * 3, 0.25, "max_turns_exceeded")
UNJUDGED = Sample((Turn("?"),), None)


@dataclass(frozen=True)
class Case:
    """Conversations under one template: the samples of one prompt."""

    name: str
    template: Template
    env: type[BaseEnv]
    samples: tuple[Sample, ...]
    max_turns: int = 3

    @property
    def row(self) -> dict[str, Any]:
        return {"prompt": f"What is 2 + 2? ({self.name})", "ground_truth": "4"}

    @property
    def example(self) -> Example:
        return self.env.dataset_preprocess(self.row)

    def __str__(self) -> str:
        return f"{self.template.name}-{self.name}"


_SCENES: tuple[tuple[str, type[SumEnv], tuple[Sample, ...]], ...] = (
    ("single turn", PlainSumEnv, (BY_HAND, WRONG, BY_HAND, Sample((Turn("5"),), 0.25))),
    ("tools", SumEnv, (WITH_TOOL, TWO_CALLS, WRONG, TWO_STEPS)),
    ("budget", SumEnv, (WITH_TOOL, ENDLESS, WRONG, WRONG)),
    ("group reward", RankedSumEnv, (BY_HAND, Sample((Turn(_LONG),), 0.5), WRONG, WITH_TOOL)),
    ("unscored", SumEnv, (WITH_TOOL, UNJUDGED, WRONG, BY_HAND)),
)
CASES = tuple(Case(name, template, env, samples) for template in TEMPLATES for name, env, samples in _SCENES)


def logprob(ids: Sequence[int], position: int) -> float:
    """The log-probability that the scripted engine reports for a token; it tells positions apart."""
    return -((ids[position] % 13) + 1) / 16 - (position % 7) / 128


@dataclass(frozen=True)
class Truth:
    """What a trainer has to receive for one sample."""

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    token_rewards: list[float]
    reward: float | None
    advantage: float
    ends: str
    steps: list[tuple[int, int]]
    """The span of each turn in the response."""


def expected(case: Case) -> list[Truth]:
    """The truth of each sample, sorted by its tokens."""
    worth = _advantages([sample.reward for sample in case.samples])
    found = [_truth(case, sample, value) for sample, value in zip(case.samples, worth, strict=True)]
    return sorted(found, key=lambda truth: truth.response_ids)


def _truth(case: Case, sample: Sample, advantage: float) -> Truth:
    encode = tokenizer(case.template)
    ids: list[int] = []
    sampled: list[tuple[int, int]] = []
    messages = [{"role": "system", "content": case.env.system_prompt}, *case.example["prompt_messages"]]
    if case.env is not PlainSumEnv and not case.template.native:
        messages[0] = {"role": "system", "content": render_tools_prompt([ADD], case.env.system_prompt)}
    tools = [mcp2openai(ADD)] if case.env is not PlainSumEnv and case.template.native else None
    for turn in sample.turns:
        text = encode.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
        before = encode(text, add_special_tokens=False)["input_ids"]
        assert before[: len(ids)] == ids, "the template rewrites history"
        ids = before + encode(turn.says + case.template.end, add_special_tokens=False)["input_ids"]
        sampled.append((len(before), len(ids)))
        messages = [*messages, {"role": "assistant", "content": turn.says}, *_answers(case, turn)]
    first = sampled[0][0]
    chosen = {position for start, end in sampled for position in range(start, end)}
    scored = sample.reward is not None
    size = len(ids) - first
    return Truth(
        prompt_ids=ids[:first],
        response_ids=ids[first:],
        mask=[int(scored and first + place in chosen) for place in range(size)],
        logprobs=[logprob(ids, first + place) if first + place in chosen else 0.0 for place in range(size)],
        token_rewards=[0.0] * (size - 1) + [sample.reward or 0.0],
        reward=sample.reward,
        advantage=advantage,
        ends=sample.ends,
        steps=[(start - first, end - first) for start, end in sampled],
    )


def _answers(case: Case, turn: Turn) -> list[dict[str, str]]:
    if case.template.native:
        return [{"role": "tool", "content": answer} for answer in turn.tools]
    together = "\n".join(map(render_tool_response, turn.tools))
    return [{"role": "user", "content": together}] if turn.tools else []


def _advantages(rewards: Sequence[float | None]) -> list[float]:
    """Each reward less the mean of the scored siblings, by their standard deviation."""
    scored = [reward for reward in rewards if reward is not None]
    mean, spread = math.fsum(scored) / len(scored), stdev(scored)
    return [0.0 if reward is None else (reward - mean) / (spread + 1e-4) for reward in rewards]


@dataclass
class Script:
    """An engine that plays the samples of some cases. Safe to ask from several threads."""

    cases: Sequence[Case]
    open: list[tuple[list[int], list[list[int]]]] = field(default_factory=list)
    """Conversations: their ids so far, and the turns to come."""
    fresh: dict[tuple[int, ...], list[list[list[int]]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for case in self.cases:
            for truth in (_truth(case, sample, 0.0) for sample in case.samples):
                turns = [truth.response_ids[start:end] for start, end in truth.steps]
                self.fresh.setdefault(tuple(truth.prompt_ids), []).append(turns)

    def next_turn(self, prompt: Sequence[int]) -> tuple[list[int], list[float]]:
        """The ids that follow `prompt`, and their log-probs."""
        with self.lock:
            ids = self._turn(list(prompt))
        whole = [*prompt, *ids]
        return ids, [logprob(whole, position) for position in range(len(prompt), len(whole))]

    def _turn(self, prompt: list[int]) -> list[int]:
        waiting = [each for each in self.open if each[1] and prompt[: len(each[0])] == each[0]]
        if waiting:
            said, turns = max(waiting, key=lambda each: len(each[0]))
        else:
            said, turns = [], self.fresh[tuple(prompt)].pop(0)
            self.open.append((said, turns))
        turn = turns.pop(0)
        said[:] = [*prompt, *turn]
        return turn
