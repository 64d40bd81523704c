"""`benchmax webhooks`: addresses that are notified of alerts and ends of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from benchmax.cli.output import Json, print_answer, print_json, print_result, print_rows, safe, stderr
from benchmax.cli.platform.connection import check_web_address, platform
from benchmax.errors import UsageError
from benchmax.platform.wire.values import WEBHOOK_EVENTS

app = typer.Typer(help="Notify addresses of alerts and ends of runs.", no_args_is_help=True)

WebhookId = Annotated[str, typer.Argument(help="Its id, as `benchmax webhooks list` shows it.")]


@app.command("list")
def list_webhooks(json: Json = False) -> None:
    """Show your webhooks, and how the newest message to each went; never their secrets."""
    with platform() as client:
        found = client.list_webhooks()

    def cells(each: Mapping[str, Any]) -> tuple[str, ...]:
        newest = each["last"]["status"] if each["last"] else "-"
        return each["id"], each["url"], ", ".join(each["events"]), newest

    print_rows(found, json, ("id", "address", "events", "newest message"), cells)


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="The address, like https://host/path.")],
    event: Annotated[list[str] | None, typer.Option(help="run.ended or run.alert; repeatable (both).")] = None,
    json: Json = False,
) -> None:
    """Notify an address. Prints the secret that its messages are signed with, which is never shown again."""
    check_web_address(url, "https://host/path")
    if unknown := [each for each in event or () if each not in WEBHOOK_EVENTS]:
        raise UsageError(f"There is no event {unknown[0]!r}. Use {', '.join(WEBHOOK_EVENTS)}.")
    with platform() as client:
        made = client.create_webhook(url, events=event or WEBHOOK_EVENTS)
    name = safe(made["id"])
    note = f"Added as {name}. Keep the secret now; it is not shown again.\nTry it with: benchmax webhooks test {name}"
    print_result(made, json, made["secret"], note)


@app.command("rm")
def remove(webhook_id: WebhookId, json: Json = False) -> None:
    """Forget a webhook; what waits for it is not sent."""
    with platform() as client:
        print_answer(client.delete_webhook(webhook_id), json)


@app.command("test")
def send_test(webhook_id: WebhookId, json: Json = False) -> None:
    """Send an empty message."""
    with platform() as client:
        made = client.test_webhook(webhook_id)
    stderr.print(f"Queued. See what comes of it with: benchmax webhooks log {safe(webhook_id)}")
    if json:
        print_json(made)


@app.command("log")
def show_log(webhook_id: WebhookId, json: Json = False) -> None:
    """Show what was sent there, newest first."""
    with platform() as client:
        found = client.list_webhook_deliveries(webhook_id)
    fields = ("id", "createdAt", "event", "runId", "status", "attempts", "answer", "problem")
    columns = ("message", "time", "event", "run", "state", "attempts", "answer", "problem")
    print_rows(found, json, columns, lambda each: ("-" if each[name] in (None, "") else each[name] for name in fields))
