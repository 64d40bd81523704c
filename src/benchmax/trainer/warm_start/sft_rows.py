"""Good answers from a file, as token sequences.

Rows are chats that end with an assistant turn (`messages`), or training rows with a `completion` (or `ground_truth`).
The latter get the prompt that a rollout gives them: the environment makes it, and its system prompt and tools stand
before it. Chats stay as given, with the tools. Every assistant turn after the last question is learned, tool calls
included; what comes before is context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from benchmax.envs.base_env import BaseEnv, overrides, with_system_prompt
from benchmax.envs.composed.parts import part_of
from benchmax.envs.datasets.load import DatasetReport, load_examples
from benchmax.envs.datasets.readers import Source, read_rows, source_name
from benchmax.envs.datasets.rows import Complaint, Row, RowFault, check_messages, check_shape, json_type
from benchmax.envs.types import Messages, ToolDefinition
from benchmax.errors import DatasetError, ModelRejected
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.tokens.token_model import TokenDialogue
from benchmax.rollouts.host import EnvHost
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.warm_start.forced_model import demonstration_sequence, turn_text

OnNote = Callable[[str], None]
"""Called with what a person should know about the rows."""

CHAT_COLUMNS = ("messages", "prompt_messages")
ANSWER_COLUMNS = ("completion", "ground_truth")


class SftRow(NamedTuple):
    """A chat to learn from."""

    prompt: Messages
    turns: Messages
    """What follows the prompt: assistant turns, which are learned, and tool results between them."""
    is_chat: bool
    """Whether the prompt is as the row gives it."""
    tools: tuple[ToolDefinition, ...] = ()
    """The row's own tools, or those of its part, in place of the environment's."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What rollouts put before the prompt of a row; nothing without an environment."""

    env: BaseEnv | None = None
    tools: Sequence[ToolDefinition] = ()
    part_tools: Mapping[str, Sequence[ToolDefinition]] = field(default_factory=dict)
    """Those of each part of a composed environment."""

    @classmethod
    async def of(cls, host: EnvHost) -> PromptContext:
        by_part = {part: (await host.toolbox(part)).tools for part in host.env.composed_of}
        return cls(host.env, (await host.toolbox()).tools, by_part)

    @property
    def system_prompt(self) -> str:
        return self.env.system_prompt if self.env else ""

    def prompt_of(self, row: Mapping[str, Any]) -> tuple[Messages, Sequence[ToolDefinition]]:
        """The prompt of a rollout of the row, and its tools; RowFault when the environment cannot make one."""
        try:
            (example,) = load_examples([row], type(self.env) if self.env else None, lenient=True)
        except DatasetError as error:
            found = [Complaint(each.column, each.reason, each.fix) for each in error.issues if each.severity == "error"]
            if self.env and overrides(self.env, "dataset_preprocess"):
                advice = "give the columns it reads beside the completion, or the whole chat as `messages`"
                found = [complaint._replace(fix=advice) for complaint in found]
            raise RowFault(*found) from error
        prompt = with_system_prompt(example["prompt_messages"], self.system_prompt)
        return prompt, self.part_tools.get(part_of(example), self.tools)


def sft_sequences(
    source: Source,
    chat: ChatTokens,
    context: PromptContext = PromptContext(),
    *,
    lenient: bool = False,
    on_note: OnNote = lambda note: None,
) -> list[TokenSequence]:
    """The rows as token sequences. Every unusable row is named; `lenient` leaves such rows out."""
    report = DatasetReport(source_name(source), lenient)
    sequences: list[TokenSequence] = []
    chats_without_system = 0
    for row in read_rows(source):
        report.rows += 1
        try:
            given = _read(row, context)
            sequences.append(_sequence(chat, given, given.tools or context.tools))
        except RowFault as fault:
            report.bad_rows += 1
            for complaint in fault.complaints:
                report.add(row.issue(complaint))
            continue
        report.kept += 1
        chats_without_system += given.is_chat and all(turn["role"] != "system" for turn in given.prompt)
    report.raise_if_bad()
    if report.bad_rows:
        on_note(f"{report.bad_rows} of {report.rows} rows of {report.source} cannot be used: left out.")
    if chats_without_system and context.system_prompt:
        on_note(
            f"{chats_without_system} of {report.rows} rows of {report.source} are `messages` without a system message, "
            "and are shown like that; rollouts begin with the environment's system prompt."
        )
    return sequences


def _read(row: Row, context: PromptContext) -> SftRow:
    """A row as a chat to learn from; RowFault when it is none."""
    if fault := row.fault or check_shape(row.data):
        raise RowFault(fault)
    for column in CHAT_COLUMNS:
        if row.data.get(column):
            return _chat(column, row.data[column])._replace(tools=_tools(row.data.get("tools")))
    prompt, tools = context.prompt_of(row.data)
    answer = _answer(row.data)
    return SftRow(prompt, [{"role": "assistant", "content": answer}], is_chat=False, tools=tuple(tools))


def _chat(column: str, messages: Any) -> SftRow:
    errors = [complaint for complaint in check_messages(column, messages) if complaint.severity == "error"]
    if errors:
        raise RowFault(*errors)
    chat = cast(Messages, messages)
    asked = max((at for at, turn in enumerate(chat) if turn["role"] in ("user", "system")), default=-1) + 1
    answers = [turn for turn in chat[asked:] if turn["role"] == "assistant"]
    silent = [turn for turn in answers if turn.get("content") is None and not turn.get("tool_calls")]
    if not asked or chat[-1]["role"] != "assistant" or silent or (asked < len(chat) and chat[asked]["role"] == "tool"):
        shape = 'write [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'
        raise RowFault(Complaint(column, "does not end with an assistant turn that answers", shape))
    return SftRow(chat[:asked], chat[asked:], is_chat=True)


def _tools(given: Any) -> tuple[ToolDefinition, ...]:
    """The tools of a chat, as the OpenAI API writes them."""
    shape = 'write [{"type": "function", "function": {"name": "…", "parameters": {…}}}]'
    if not isinstance(given, Sequence | None):
        raise RowFault(Complaint("tools", f"is {json_type(given)}, not a list", shape))
    found = []
    for each in given or ():
        spec = each.get("function", each) if isinstance(each, Mapping) else {}
        if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
            raise RowFault(Complaint("tools", "has an entry without a function's name", shape))
        schema = spec.get("parameters") or {}
        if not isinstance(schema, Mapping) or not isinstance(schema.get("required") or [], list):
            raise RowFault(Complaint("tools", f"has parameters of {spec['name']} that are no JSON Schema", shape))
        found.append(ToolDefinition(spec["name"], str(spec.get("description") or ""), spec.get("parameters")))
    return tuple(found)


def _answer(row: Mapping[str, Any]) -> str:
    for column in ANSWER_COLUMNS:
        answer = row.get(column)
        if answer is None:
            continue
        if isinstance(answer, bool) or not isinstance(answer, str | int | float):
            raise RowFault(Complaint(column, f"is {json_type(answer)}, not text", "write the answer as text"))
        return str(answer)
    reason = "the row has neither `messages` nor a `completion` to learn"
    raise RowFault(Complaint(None, reason, 'write {"prompt": "…", "completion": "…"}'))


def _sequence(chat: ChatTokens, given: SftRow, tools: Sequence[ToolDefinition]) -> TokenSequence:
    dialogue = TokenDialogue(chat, tuple(tools))
    new: Messages = list(given.prompt)
    try:
        for turn in given.turns:
            if turn["role"] == "assistant":
                dialogue.say(new, turn_text(turn))
                new = []
            else:
                new.append(turn)
    except ModelRejected as error:
        raise RowFault(Complaint(None, str(error), "change its messages")) from error
    if len(dialogue.ids) > chat.context:
        reason = f"has {len(dialogue.ids):,} tokens with its answer; the model takes {chat.context:,}"
        raise RowFault(Complaint(None, reason, "shorten it, or train a model with a longer context"))
    return demonstration_sequence(dialogue.segments)
