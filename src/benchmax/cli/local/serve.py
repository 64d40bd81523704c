"""`benchmax serve`: a local model behind the OpenAI API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, cast

import typer

from benchmax.cli.progress import fetching
from benchmax.memory import gc_frozen
from benchmax.models.registry import open_local
from benchmax.trainer.open_checkpoint import split_checkpoint

if TYPE_CHECKING:
    from benchmax.inference.local_model import LocalModel


def serve(
    model: Annotated[
        str,
        typer.Argument(
            help="A name, hub id, directory, .gguf file or run; MODEL:ADAPTER, RUN:best, RUN:latest, RUN:step-N."
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 picks a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Interface to listen on; any but this machine's own needs a key.")] = (
        "127.0.0.1"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 (fp32), bfloat16 (bf16) or float16 (fp16).")] = "auto",
    api_key: Annotated[
        str | None, typer.Option(envvar="BENCHMAX_SERVE_KEY", help="Clients must send it as a Bearer token.")
    ] = None,
) -> None:
    """Serve a model on this machine with the OpenAI API."""
    from benchmax.inference.server.serve import Listener, check_port, serve_until_stopped

    Listener(host, api_key)  # refuse before minutes of loading
    check_port(host, port)
    name, _ = split_checkpoint(model)
    with fetching(name) as say:
        local = cast("LocalModel", open_local(model, say, device=device, dtype=dtype))

    async def run() -> None:
        async with local:
            await serve_until_stopped(
                local,
                host=host,
                port=port,
                api_key=api_key,
                aliases=(model, name),
                on_ready=lambda url: typer.echo(f"Serving {local.name} at {url} (Ctrl-C stops)"),
            )

    with gc_frozen():
        asyncio.run(run())
