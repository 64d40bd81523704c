"""`benchmax show`: saved rollouts, to read.

Text of a model, a tool or a dataset stands behind a bar and with its control characters made visible, so that nothing
in it can pass for the frame around it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmax.cli.output import Json, print_json, shorten, visible
from benchmax.envs.types import ChatMessage, ToolCall
from benchmax.errors import NotFoundError
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import find_rollouts

SHOWN = 5


def show(
    run: Annotated[Path, typer.Argument(help="The folder of an evaluation or a training run, or a file of rollouts.")],
    worst: Annotated[
        int | None, typer.Option(min=0, help="How many, lowest reward first; 0 for all. 5 unless others are chosen.")
    ] = None,
    example: Annotated[str | None, typer.Option(help="Only this example: its id, or how it begins.")] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Only those that failed or could not be scored.")] = False,
    step: Annotated[int | None, typer.Option(min=0, help="The step of a training run; its last if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Print the transcripts of saved rollouts, with rewards and errors, the lowest reward first."""
    found = find_rollouts(run, step)
    chosen = _choose(found, example, errors)
    most = worst if worst is not None else (0 if example or errors else SHOWN)
    chosen.sort(key=lambda each: (each.reward is None, each.reward or 0.0, each.example_id, each.sample))
    shown = chosen[: most or None]
    if as_json:
        print_json({"found": len(found), "rollouts": [_record(rollout) for rollout in shown]})
        return
    for rollout in shown:
        sys.stdout.write("\n".join(transcript(rollout)) + "\n\n")
    more = f", {len(chosen) - len(shown)} more; --worst 0 shows all" if len(shown) < len(chosen) else ""
    sys.stdout.write(f"{len(shown)} of {len(found)} rollouts{more}\n")


def _choose(rollouts: Sequence[Rollout], example: str | None, errors: bool) -> list[Rollout]:
    chosen = [rollout for rollout in rollouts if not errors or not rollout.ok]
    if example is None:
        return chosen
    exact = [rollout for rollout in chosen if rollout.example_id == example]
    begins = exact or [rollout for rollout in chosen if rollout.example_id.startswith(example)]
    if not begins:
        raise NotFoundError(f"No rollout here is of the example {example!r}. `benchmax compare` lists the ids.")
    return begins


def _record(rollout: Rollout) -> dict[str, Any]:
    record = rollout.to_dict()
    record.pop("tokens", None)  # for trainers, and by far the largest part
    return record


# One rollout, as text


def transcript(rollout: Rollout) -> Iterator[str]:
    """The lines of one rollout."""
    reward = "unscored" if rollout.reward is None else f"reward {rollout.reward:.3f}"
    place = f" ({rollout.split} step {rollout.step})" if rollout.step is not None else ""
    name = rollout.example_id if len(rollout.example_id) <= 24 else rollout.example_id[:10]
    yield f"━━ example {shorten(name)} sample {rollout.sample}{place}: {reward}, {rollout.termination.value}"
    for message in rollout.messages:
        yield from message_lines(message)
    for key, value in rollout.rewards.items():
        yield f"  reward {shorten(key)} = {value:.3f}"
    for key, why in rollout.unscored.items():
        yield f"  unscored {shorten(key)}: {shorten(why, 300)}"
    if rollout.error:
        yield f"  error {shorten(rollout.error.type)}: {shorten(rollout.error.message, 300)}"
    if rollout.discarded:
        yield f"  left out of training: {shorten(rollout.discarded, 300)}"


def message_lines(message: ChatMessage) -> Iterator[str]:
    """Who said it, and behind a bar what was said and which tools are called."""
    name = f" ({shorten(message['name'])})" if message.get("name") else ""
    yield f"── {shorten(message.get('role', '?'))}{name}"
    content = message.get("content")
    if content:
        yield from _behind_bar(content if isinstance(content, str) else _pretty(content))
    for call in message.get("tool_calls") or ():
        made = ToolCall.from_dict(call)
        yield f"   calls {shorten(made.name)}"
        yield from _behind_bar(_pretty_text(made.arguments))


def _behind_bar(text: str) -> Iterator[str]:
    for line in visible(text).split("\n"):
        yield f"   │ {line}".rstrip()


def _pretty_text(arguments: str) -> str:
    """Arguments a model wrote: indented if they are JSON, as they are if not."""
    try:
        return _pretty(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
