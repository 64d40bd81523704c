"""`benchmax serve`: a local model behind the OpenAI API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from benchmax.inference.download import Say
    from benchmax.inference.local import LocalModel


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
    from benchmax.cli.models import fetching
    from benchmax.inference.serve import Door, check_port, serve_until_stopped

    Door(host, api_key)  # refuse before minutes of loading
    check_port(host, port)
    name, checkpoint = split_checkpoint(model)
    with fetching(name) as say:
        local = open_served(name, checkpoint, say, device=device, dtype=dtype)

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


def open_served(name: str, checkpoint: str | None, say: Say, **where: Any) -> LocalModel:
    """The model to serve; a training run stands for the model it made, its best checkpoint unless one is named."""
    from benchmax.inference.local import LocalModel
    from benchmax.inference.store import resolve

    run = Path(name)
    if not (run / "metrics.jsonl").is_file():
        resolve(name, say=say)
        say("loading")
        return LocalModel.load(name, checkpoint=checkpoint, **where)
    from benchmax.trainer.export import choose_checkpoint, trained_policy
    from benchmax.trainer.rundir import read_config

    chosen, config = choose_checkpoint(run, checkpoint or "best"), read_config(run)
    resolve(config.model.name, say=say)
    say(f"loading {chosen.path.name}")
    model = LocalModel.load(config.model.name, name=f"{run.resolve().name}:{chosen.path.name}", **where)
    model.engine.update_weights(trained_policy(config, chosen).sampler_weights())
    return model


def split_checkpoint(text: str) -> tuple[str, str | None]:
    """MODEL and CHECKPOINT of `MODEL:CHECKPOINT`; a path that exists as a whole is a model."""
    name, colon, checkpoint = text.rpartition(":")
    if not colon or not name or Path(text).exists():
        return text, None
    return name, checkpoint or None
