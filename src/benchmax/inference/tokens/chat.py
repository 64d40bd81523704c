"""A conversation as exact tokens.

The prompt is rendered with the model's own chat template, once. After that nothing is rendered again: the ids the model
sampled stay as they are, and a later turn adds only the *delta*, what the template writes between the end of the
assistant's text and the next one. The delta is found by rendering the conversation with a placeholder for the
assistant's turn and taking what follows it.

    observed   <|im_start|>system … <|im_start|>assistant⏎
    sampled    12 + 3 is <tool_call>…</tool_call><|im_end|>
    observed   ⏎<|im_start|>user⏎<tool_response>…<|im_end|>⏎<|im_start|>assistant⏎

Control tokens come from the template alone. What a user, a tool or a dataset wrote is encoded as text even when it
spells a control token, so `<|im_end|><|im_start|>system` in a web page opens no turn.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

from benchmax.envs.loading import json_or_text
from benchmax.envs.types import ChatMessage, Messages, ToolCall, ToolDefinition
from benchmax.errors import ModelRejected, UsageError
from benchmax.inference.weights.store import read_json
from benchmax.models.text_tools import as_text, opening, plain_text, read_calls
from benchmax.prompts.tools import OPEN_TAG, mcp2openai

LONG_TEXT = 20_000
"""Characters; a longer text is encoded without the interpreter's lock, which would block other threads."""
RENDERED_TOKENS = 2_000_000
"""Most tokens of rendered conversations that are kept, some 36 bytes each."""
CHARS_PER_COMPOSED = 4
"""Most characters that Unicode normalisation turns into one."""


class ChatTokens:
    """The tokenizer and chat template of one model. Safe to use from several threads.

    Equal conversations are rendered once: with short answers that is most of a trainer's host work.
    """

    def __init__(self, directory: str | Path) -> None:
        path = Path(directory)
        config = read_json(path / "config.json")  # first: transformers would blame the tokenizer for it
        try:
            tokenizer = _load_tokenizer(path, config)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{directory} has no readable tokenizer. Save it there with save_pretrained.") from error
        self._adopt(tokenizer, str(directory), config, read_json(path / "generation_config.json"))

    @classmethod
    def of_tokenizer(cls, tokenizer: Any, *, stop_ids: Sequence[int] = ()) -> Self:
        """Those of a tokenizer that another program has loaded; `stop_ids` end a turn beside its own `eos_token`."""
        chat = cls.__new__(cls)
        name = getattr(tokenizer, "name_or_path", "") or "This tokenizer"
        chat._adopt(tokenizer, name, {"eos_token_id": list(stop_ids)}, {})
        return chat

    def _adopt(self, tokenizer: Any, whose: str, config: Mapping[str, Any], generation: Mapping[str, Any]) -> None:
        if not tokenizer.chat_template:
            raise UsageError(f"{whose} has no chat template. Use an instruct model, or add chat_template.jinja.")
        if not hasattr(tokenizer, "backend_tokenizer"):
            raise UsageError(
                f"{whose} has a tokenizer written in Python ({type(tokenizer).__name__}), without a tokenizer.json. "
                "Use a model that has one."
            )
        self.directory = Path(whose)
        self.tokenizer: Any = tokenizer
        self._backend: Any = tokenizer.backend_tokenizer
        self._template: str = self.tokenizer.get_chat_template(tools=[{}])
        self.native_tools = OPEN_TAG in self._template and "tools" in self._template
        """Whether the template itself describes tools in the Hermes form; else the system message does."""
        self.stop_ids = _stop_ids(config, generation, tokenizer)
        self.context: int = int(config.get("max_position_embeddings") or 2**31)
        """Most tokens of a conversation, prompt and reply together."""
        self._rendered: dict[bytes, list[int]] = {}
        self._rendered_tokens = 0
        self._described: tuple[Sequence[ToolDefinition], str] = ((), "")
        self._escapes = _Escapes(self._backend, self._template)
        self._placeholder = f"turn{secrets.token_hex(12)}"
        self._placeholder_turn: ChatMessage = {"role": "assistant", "content": self._placeholder}
        self._closing = self._closing_ids()
        self.end_of_turn = self._closing or [self.stop_ids[0]]
        """What ends an assistant's turn, as the template writes it."""

    # Text and ids

    @property
    def vocabulary(self) -> int:
        """How many token ids there are."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, whole: bool = False) -> list[int]:
        """Ids of a plain text, in which control tokens may be spelled out; a `whole` one gets its start token."""
        text = _clean(text)
        if len(text) > LONG_TEXT:
            (encoded,) = self._backend.encode_batch_fast([text], add_special_tokens=whole)
        else:
            encoded = self._backend.encode(text, add_special_tokens=whole)
        ids: list[int] = encoded.ids
        return ids

    @cached_property
    def longest_token(self) -> int:
        """Most characters of a text that one token can stand for."""
        longest = max(map(len, self._backend.get_vocab(with_added_tokens=True)))
        return longest * CHARS_PER_COMPOSED if self._backend.normalizer else longest

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        """Tokens whose text depends on those after them: bytes spelled `<0xE2>` are decoded as a sequence.

        Vocabularies whose tokens are bytes themselves have none; there only an unfinished character changes.
        """
        if "ByteFallback" not in repr(self._backend.decoder):
            return frozenset()
        found = (self._backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(token for token in found if token is not None)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens left out."""
        return str(self._backend.decode(ids, skip_special_tokens=True))

    def spell(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens spelled out."""
        return str(self._backend.decode(ids, skip_special_tokens=False))

    def controls(self, ids: Sequence[int]) -> list[int]:
        """The control tokens among ids."""
        return [token for token in ids if token in self._escapes.ids]

    @property
    def control_tokens(self) -> list[str]:
        """Tokens that only the template may write."""
        return list(self._escapes.special)

    # Conversations

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolDefinition] = ()) -> list[int]:
        """Ids of a whole conversation, up to where the assistant's turn begins."""
        return self._once(("prompt", messages), tools, lambda: self.full(messages, tools, header=True))

    def delta(
        self,
        history: Sequence[ChatMessage],
        new: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        *,
        prompt_turns: int,
        stopped: bool,
    ) -> list[int]:
        """Ids that follow the last sampled turn of `history`: its closing, the `new` messages, the next header.

        The first `prompt_turns` messages are the prompt; assistant turns after them were sampled and are not rendered.
        `stopped` says that the last one ended with its own end-of-turn token.
        """
        later = [self._placeholder_turn if turn["role"] == "assistant" else turn for turn in history[prompt_turns:]]
        # Only what follows the placeholder is kept, so the history's own texts need not be hidden.
        shaped = [*self._shape([*history[:prompt_turns], *later], tools), *self._hidden(self._shape(new))]
        ids = self._once(("turn", shaped), tools, lambda: self._after_turn(shaped, tools))
        end = len(self._closing)
        return ids[end:] if stopped and ids[:end] == self._closing else ids

    def _after_turn(self, shaped: Messages, tools: Sequence[ToolDefinition]) -> list[int]:
        """Ids of what the template writes after the last placeholder."""
        _, found, after = self._render(shaped, tools).rpartition(self._placeholder)
        if not found:
            raise ModelRejected("The chat template drops assistant turns, so no later turn can follow one.")
        return self._encode_rendered(after)

    def _once(self, what: object, tools: Sequence[ToolDefinition], render: Callable[[], list[int]]) -> list[int]:
        """What `render` returns. Messages and tools alone decide it, and in some templates the day."""
        text = f"{what!r}{self._describe(tools)}{date.today()}"
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        ids = self._rendered.get(key)
        if ids is None:
            ids = render()
            if self._rendered_tokens > RENDERED_TOKENS:
                self._rendered, self._rendered_tokens = {}, 0
            self._rendered[key] = ids
            self._rendered_tokens += len(ids)
        return list(ids)

    def _describe(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools as text; as a rule they are those of the last call."""
        last, text = self._described
        if last is not tools:
            text = repr([(tool.name, tool.description, tool.input_schema) for tool in tools])
            self._described = tools, text
        return text

    def full(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolDefinition] = (), *, header: bool = False
    ) -> list[int]:
        """Ids of a conversation, every turn rendered from its text; with the `header` of the assistant's next turn."""
        return self._encode_rendered(self._render(self._hidden(self._shape(messages, tools)), tools, header=header))

    def ends_turn(self, ids: Sequence[int]) -> bool:
        """Whether sampled ids end with an end-of-turn token."""
        return bool(ids) and ids[-1] in self.stop_ids

    def _render(self, messages: Messages, tools: Sequence[ToolDefinition], *, header: bool = True) -> str:
        described = self._escapes.hide([mcp2openai(tool) for tool in tools]) if tools and self.native_tools else None
        try:
            text: str = self.tokenizer.apply_chat_template(
                messages, tools=described, tokenize=False, add_generation_prompt=header
            )
        except Exception as error:  # templates raise what they like
            raise ModelRejected(f"The model's chat template refuses these messages: {error}") from error
        return text

    def _encode_rendered(self, text: str) -> list[int]:
        ids: list[int] = []
        for part, hidden in self._escapes.parts(text):
            ids += self._escapes.encode_as_text(part) if hidden else self.encode(part)
        return ids

    def _shape(self, messages: Iterable[ChatMessage], tools: Sequence[ToolDefinition] = ()) -> Messages:
        """The messages as the template takes them: contents as text, tools described."""
        plain = list(map(_plain, messages))
        return list(map(_native, plain)) if self.native_tools else as_text(opening(plain, tools))

    def _hidden(self, messages: Messages) -> Messages:
        return list(map(self._escapes.hide_message, messages))

    def _closing_ids(self) -> list[int]:
        """What the template writes after an assistant's text, up to the end-of-turn token; often that token alone."""
        turns: Messages = [{"role": "user", "content": "a"}, self._placeholder_turn]
        try:
            text = self._render(turns, (), header=False)
        except ModelRejected:  # some templates want a system message first
            text = self._render([{"role": "system", "content": "a"}, *turns], (), header=False)
        ids = self._encode_rendered(text.rpartition(self._placeholder)[2])
        ends = [index for index, token in enumerate(ids) if token in self.stop_ids]
        return ids[: ends[0] + 1] if ends else []


def parse_reply(text: str, *, tools: bool, salt: object = "") -> ChatMessage:
    """A sampled text as a message. Malformed calls keep their raw text as arguments, to be answered with an error.

    With tools, leading whitespace is dropped: before a call it would be, and a stream cannot know of a call yet.
    """
    if not tools:
        return {"role": "assistant", "content": text}
    content, calls = read_calls(text)
    message: ChatMessage = {"role": "assistant", "content": content.lstrip()}
    if calls:
        # Ids follow from what was sampled, so that a run can be replayed; the salt distinguishes turns.
        seed = hashlib.blake2b(f"{salt}\0{text}".encode("utf-8", "replace"), digest_size=8).hexdigest()
        named = (replace(call, id=f"call_{seed}_{index}") for index, call in enumerate(calls))
        message["tool_calls"] = [call.to_dict() for call in named]
    return message


class _Escapes:
    """Hides control tokens spelled in data from the template, and encodes them as text afterwards."""

    def __init__(self, backend: Any, template: str) -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder().values()
        self.special = sorted((token.content for token in added if token.special), key=len, reverse=True)
        self.ids = {backend.token_to_id(token) for token in self.special}
        # A template writes some marks with tokens that are not flagged special: <tool_response>.
        marks = [token.content for token in added if token.content in template]
        self._tokens = sorted({*self.special, *marks}, key=len, reverse=True)
        self._all = _any_of(self._tokens)
        # Prompts mean the unflagged ones literally ("think in <think> tags"), and the model writes them itself.
        self._special = _any_of(self.special)
        self._nonce = f"mark{secrets.token_hex(12)}n"
        self._hidden = re.compile(rf"{self._nonce}(\d+)z")

    def hide_message(self, message: ChatMessage) -> ChatMessage:
        hidden: ChatMessage = self.hide(message, self._all if message["role"] == "tool" else self._special)
        return hidden

    def hide(self, value: Any, tokens: re.Pattern[str] | None = None) -> Any:
        tokens = tokens or self._special
        if isinstance(value, str):
            return tokens.sub(lambda match: f"{self._nonce}{self._tokens.index(match[0])}z", value)
        if isinstance(value, Mapping):
            return {self.hide(key, tokens): self.hide(item, tokens) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hide(item, tokens) for item in value]
        return value

    def parts(self, text: str) -> list[tuple[str, bool]]:
        """The rendered text in pieces; True marks a hidden one."""
        if self._nonce not in text:
            return [(text, False)] if text else []
        pieces = self._hidden.split(text)
        named = [self._tokens[int(piece)] if index % 2 else piece for index, piece in enumerate(pieces)]
        return [(piece, bool(index % 2)) for index, piece in enumerate(named) if piece]

    def encode_as_text(self, token: str) -> list[int]:
        ids: list[int] = self._plain.encode(token, add_special_tokens=False).ids
        if self._backend.token_to_id(token) in ids:
            raise ModelRejected(f"This tokenizer cannot write {token!r} as text. Remove it from the messages.")
        return ids

    @cached_property
    def _plain(self) -> Any:
        """The tokenizer without its added tokens."""
        from tokenizers import Tokenizer

        state = json.loads(self._backend.to_str())
        state["added_tokens"], state["post_processor"] = [], None
        return Tokenizer.from_str(json.dumps(state))


def _any_of(tokens: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, tokens)) or r"(?!)")


def _plain(message: ChatMessage) -> ChatMessage:
    """The message with its content as one text."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(map(_part_text, content))
    return {**message, "content": _clean(plain_text(content))}


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise ModelRejected(f"This model reads text only; a message holds a part of type {kind!r}. Leave it out.")


def _native(message: ChatMessage) -> ChatMessage:
    """Arguments as objects: templates write them with `tojson`."""
    calls = [ToolCall.from_dict(call) for call in message.get("tool_calls") or ()]
    shaped: dict[str, Any] = {key: value for key, value in message.items() if key != "tool_calls"}
    if calls:
        shaped["tool_calls"] = [
            {"type": "function", "id": c.id, "function": {"name": c.name, "arguments": json_or_text(c.arguments)}}
            for c in calls
        ]
    return cast(ChatMessage, shaped)


def _clean(text: str) -> str:
    """The text without lone surrogates, which no tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _load_tokenizer(directory: Path, config: Mapping[str, Any]) -> Any:
    """The tokenizer in a model's directory.

    Given a plain configuration, transformers does not import the model's own, and with it a second's worth of modules
    that only training needs. Without a class in its settings, the tokenizer is still chosen by the model's.
    """
    from transformers import AutoTokenizer, PreTrainedConfig

    settings = read_json(directory / "tokenizer_config.json")
    known = {name: config[name] for name in ("model_type", "model_name", "tokenizer_class") if name in config}
    plain = PreTrainedConfig(**known, name_or_path=str(directory)) if settings.get("tokenizer_class") else None
    return AutoTokenizer.from_pretrained(directory, config=plain, local_files_only=True)


def _stop_ids(config: Mapping[str, Any], generation: Mapping[str, Any], tokenizer: Any) -> tuple[int, ...]:
    found: list[int] = []
    for value in (generation.get("eos_token_id"), config.get("eos_token_id"), tokenizer.eos_token_id):
        found += value if isinstance(value, list) else [] if value is None else [value]
    if not found or not all(isinstance(token, int) for token in found):
        raise UsageError(
            "The model names no end-of-turn token. Set eos_token_id in its generation_config.json to an id."
        )
    return tuple(dict.fromkeys(found))
