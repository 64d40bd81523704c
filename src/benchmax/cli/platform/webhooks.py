"""`benchmax webhooks`: addresses that are notified of alerts and ends of runs."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from benchmax.cli.output import Json, new_table, print_json, print_table, safe, stderr, visible
from benchmax.cli.platform.connection import platform
from benchmax.errors import UsageError

app = typer.Typer(help="Notify addresses of alerts and ends of runs.", no_args_is_help=True)

EVENTS = ("run.ended", "run.alert")
WebhookId = Annotated[str, typer.Argument(help="Its id, as `benchmax webhooks list` shows it.")]


@app.command("list")
def list_webhooks(json: Json = False) -> None:
    """Show your webhooks, and how the newest message to each went; never their secrets."""
    with platform() as client:
        found = client.list_webhooks()
    if json:
        print_json(found)
        return
    table = new_table("id", "address", "events", "newest message")
    for each in found:
        last = each["last"]
        table.add_row(*map(safe, (each["id"], each["url"], ", ".join(each["events"]), last["status"] if last else "-")))
    print_table(table)


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="The address, like https://host/path.")],
    event: Annotated[list[str] | None, typer.Option(help="run.ended or run.alert; repeatable (both).")] = None,
    json: Json = False,
) -> None:
    """Notify an address. Prints the secret that its messages are signed with, which is never shown again."""
    if not re.fullmatch(r"https?://[^\s@]+", url):
        raise UsageError(f"{url!r} is not a web address. Write it as https://host/path, without user or password.")
    if unknown := [each for each in event or () if each not in EVENTS]:
        raise UsageError(f"There is no event {unknown[0]!r}. Use {', '.join(EVENTS)}.")
    with platform() as client:
        made = client.create_webhook(url, events=event or EVENTS)
    if json:
        print_json(made)
        return
    stderr.print(f"Added as {safe(made['id'])}. Keep the secret now; it is not shown again.", soft_wrap=True)
    stderr.print(f"Try it with: benchmax webhooks test {safe(made['id'])}", soft_wrap=True)
    typer.echo(visible(made["secret"]))


@app.command("rm")
def remove(webhook_id: WebhookId, json: Json = False) -> None:
    """Forget a webhook; what waits for it is not sent."""
    with platform() as client:
        answer = client.delete_webhook(webhook_id)
    stderr.print(safe(answer["message"]))
    if json:
        print_json(answer)


@app.command("test")
def send_test(webhook_id: WebhookId, json: Json = False) -> None:
    """Send an empty message."""
    with platform() as client:
        made = client.test_webhook(webhook_id)
    stderr.print(f"Queued. See what comes of it with: benchmax webhooks log {safe(webhook_id)}", soft_wrap=True)
    if json:
        print_json(made)


@app.command("log")
def show_log(webhook_id: WebhookId, json: Json = False) -> None:
    """Show what was sent there, newest first."""
    with platform() as client:
        found = client.list_webhook_deliveries(webhook_id)
    if json:
        print_json(found)
        return
    table = new_table("message", "time", "event", "run", "state", "attempts", "answer", "problem")
    for each in found:
        what = (each["id"], each["createdAt"], each["event"], each["runId"] or "-", each["status"], each["attempts"])
        table.add_row(*map(safe, (*what, each["answer"] or "-", each["problem"] or "-")))
    print_table(table)
