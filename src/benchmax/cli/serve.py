"""`benchmax serve`: a local model behind the OpenAI API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def serve(
    model: Annotated[str, typer.Argument(help="MODEL or MODEL:CHECKPOINT; a name, hub id, directory or .gguf file.")],
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
    from benchmax.cli.models import fetching
    from benchmax.inference.local import LocalModel
    from benchmax.inference.serve import Door, check_port, serve_until_stopped
    from benchmax.inference.store import resolve

    Door(host, api_key)  # refuse before minutes of loading
    check_port(host, port)
    name, checkpoint = split_checkpoint(model)
    with fetching(name) as say:
        resolve(name, say=say)
        say("loading")
        local = LocalModel.load(name, checkpoint=checkpoint, device=device, dtype=dtype)

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

    asyncio.run(run())


def split_checkpoint(text: str) -> tuple[str, str | None]:
    """MODEL and CHECKPOINT of `MODEL:CHECKPOINT`; a path that exists as a whole is a model."""
    name, colon, checkpoint = text.rpartition(":")
    if not colon or not name or Path(text).exists():
        return text, None
    return name, checkpoint or None
