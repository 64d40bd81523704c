"""`benchmax playground`: talk with a run's model in the terminal, or through a pipe, one line a turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, print_json_line, safe, stderr, visible
from benchmax.cli.platform.connection import RunId, platform
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.sdk.playground import PlaygroundSession


def playground(
    run_id: RunId,
    checkpoint: Annotated[str, typer.Option(help="best, latest, base or step-N.")] = "best",
    environment: Annotated[
        bool, typer.Option("--env/--no-env", help="With the environment's system prompt and tools.")
    ] = True,
    example: Annotated[
        str | None, typer.Option(help="Id of an example of the run's rows: it is played first, and answers are scored.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0.7 unless set.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of a reply; 512 unless set.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed draws the same replies.")] = None,
    json: Json = False,
) -> None:
    """Chat with a run's model, also while it trains. Each line of stdin is a turn; an empty one or Ctrl-D ends it.

    Replies go to stdout, the rest to stderr. With --json every event is a line of JSON. The exit code is 1 when a turn
    failed.
    """
    with platform() as client:
        options = {"checkpoint": checkpoint, "environment": environment, "example_id": example}
        with client.playground(run_id, **options) as session:
            info = session.wait()
            _greet(info, json)
            drawn = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
            good = [_turn(session, line, drawn, json) for line in _lines(bool(example))]
    if not all(good):
        raise typer.Exit(FAILED)


def _greet(info: Mapping[str, Any], json: bool) -> None:
    if json:
        return
    tools = ", ".join(tool["name"] for tool in info["tools"]) or "none"
    stderr.print(f"{safe(info['checkpoint'])} is ready; tools: {safe(tools)}. An empty line ends the chat.")
    for message in info["promptMessages"]:
        stderr.print(f"{safe(message['role'])}: {safe(message['content'])}")


def _lines(example: bool) -> Iterator[str]:
    """What is said: first nothing, where an example's prompt is to be played, then line by line."""
    if example:
        yield ""
    while True:
        if sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if line.strip():
            yield line.strip()
        elif not line or sys.stdin.isatty():
            return


def _turn(session: PlaygroundSession, text: str, drawn: Mapping[str, Any], json: bool) -> bool:
    """One turn, shown as it comes; False when it failed."""
    show = print_json_line if json else _show
    try:
        for event in session.say(text, **drawn):
            show(event)
    except TrainerError as error:
        show({"event": "error", "message": str(error)})
        return False
    return True


def _show(event: Mapping[str, Any]) -> None:
    """Text as it is drawn; calls, results and rewards on stderr."""
    kind = event["event"]
    if kind == "token":
        sys.stdout.write(visible(event["text"]))
    elif kind == "message":
        _show_message(event["message"])
    elif kind == "reward":
        parts = ", ".join(f"{name} {value:g}" for name, value in event["rewards"].items())
        stderr.print(f"reward: {safe(parts or 'unscored')}")
    elif kind == "error":
        stderr.print(f"[red]error[/] {safe(event['message'])}")
    sys.stdout.flush()


def _show_message(message: Mapping[str, Any]) -> None:
    if message["role"] == "tool":
        stderr.print(f"{safe(message.get('name', 'tool'))} gave: {safe(message['content'])}")
        return
    if message.get("content"):
        sys.stdout.write("\n")
    for call in message.get("tool_calls") or ():
        body = call["function"]
        stderr.print(f"calls {safe(body['name'])} {safe(body['arguments'])}")
