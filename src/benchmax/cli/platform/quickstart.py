"""`benchmax quickstart`: a small model learns to answer sums in tags, through the platform, in minutes on two cores.

Everything here is what a user's own script would do with the SDK: upload, launch, follow, evaluate against the base
model. The recipe is that of `examples/quickstart.toml`; a test holds the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from benchmax import extras, metrics
from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, command, ended_words, print_json, safe, stderr
from benchmax.cli.platform.connection import platform
from benchmax.cli.platform.run_compare import interval_words
from benchmax.cli.platform.up import sign_in_link
from benchmax.cli.platform.watch import watch_to_end
from benchmax.envs.arithmetic.arithmetic_env import ArithmeticEnv
from benchmax.envs.datasets.split import hold_out
from benchmax.platform.sdk.auto_start import local_url
from benchmax.platform.sdk.client import TrainerClient
from benchmax.platform.sdk.credentials import named_url
from benchmax.platform.sdk.upload import upload_training_run
from benchmax.trainer.display.view import sparkline

NAME = "quickstart"
RECIPE: dict[str, Any] = {
    "prompts_per_step": 8,
    "group_size": 8,
    "max_new_tokens": 24,
    "max_turns": 1,
    "max_extra_groups": 0,
    "lora_rank": 16,
    "eval_every": 5,
}


def quickstart(
    model: Annotated[str, typer.Option("--model", "-m", help="The model to train.")] = "smollm2-135m",
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all sampling.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the picture of the curve goes (.png or .svg).")] = Path("reward.png"),
    json: Json = False,
) -> None:
    """Train a small model on one-digit sums through this machine's platform, and measure what it learned."""
    # For the model and the picture at the end; and the platform, unless another machine has it.
    extras.require("The quickstart", "train", *([] if named_url() else ["platform"]))
    with platform() as client:
        run_id = launch(client, model, steps, seed)
        url = client.run(run_id).url
        stderr.print(f"Launched: {safe(url)}")
        _print_link(_link(client, url))
        _follow(client, run_id)
        found = _measure(client, run_id)
        _draw(client, run_id, out)
        link = _link(client, url)
    _print_outcome(found, url, link, out)
    if json:
        print_json({"runId": run_id, "url": url, "picture": str(out), **found})


def launch(client: TrainerClient, model: str, steps: int, seed: int) -> str:
    """Upload the arithmetic environment with its rows and start a run; returns its id."""
    train, held_out = sums()
    uploaded = upload_training_run(
        env_class=ArithmeticEnv, train_dataset=train, eval_dataset=held_out, run_name=NAME, base_url=client.base_url
    )
    arguments = launch_arguments(len(train), model, steps, seed)
    run_id, _ = client.queue_run(**asdict(uploaded), name=NAME, launcher_args=arguments)
    return run_id  # that there are few rows is known: all there are


def sums() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """All one-digit sums, which come shuffled; the last fifth is held out, as in examples/quickstart.toml."""
    rows, _ = ArithmeticEnv.load_dataset()
    return hold_out(rows, order="last")


def launch_arguments(rows: int, model: str, steps: int, seed: int) -> dict[str, Any]:
    """The recipe, with as many passes over the rows as the steps take."""
    epochs = math.ceil(steps * RECIPE["prompts_per_step"] / rows)
    return {**RECIPE, "model": model, "max_steps": steps, "num_epochs": epochs, "seed": seed}


def _follow(client: TrainerClient, run_id: str) -> None:
    """Show the run until it ends; anything but completion ends the command."""
    advice = f"The run continues; watch it with: {safe(command())} runs watch {safe(run_id)}"
    run = watch_to_end(client, run_id, advice)
    if run["status"] != "complete":
        stderr.print(f"The run {ended_words(run['status'])}: {safe(run['statusReason'])}")
        raise typer.Exit(FAILED)


def _measure(client: TrainerClient, run_id: str) -> dict[str, Any]:
    """The trained model beside the base model on the held-out rows, paired, with the curve of both modes."""
    found = client.compare_run(run_id, "base", say=lambda text: stderr.print(safe(text)))
    curve = {mode: client.get_run_scalars(run_id, mode).get(metrics.REWARD, []) for mode in ("train", "eval")}
    outcome = {name: found[name] for name in ("verdict", "examples", "delta", "low", "high")}
    return {"trained": found["run"], "base": found["other"], **outcome, "curve": curve}


def _draw(client: TrainerClient, run_id: str, out: Path) -> None:
    from benchmax.trainer.display.plot import plot_metrics

    lines = [
        {"split": mode, "step": point["step"], "values": {name: point["value"]}}
        for mode in ("train", "eval")
        for name, points in client.get_run_scalars(run_id, mode).items()
        for point in points
    ]
    plot_metrics(lines, out, title="one-digit sums")


def _link(client: TrainerClient, url: str) -> str | None:
    """How to sign in, and to come to that page, where the platform is this machine's own."""
    link = sign_in_link() if client.base_url == local_url() else None
    return link and f"{link}&next={urlsplit(url).path}"


def _print_outcome(found: Mapping[str, Any], url: str, link: str | None, out: Path) -> None:
    rewards = [point["value"] for point in found["curve"]["train"]]
    if rewards:
        stderr.print(f"training reward {rewards[0]:.2f} {sparkline(rewards)} {rewards[-1]:.2f}")
    stderr.print(
        f"held-out reward [bold]{found['trained']:.2f}[/] against {found['base']:.2f} of the base model, "
        f"on {found['examples']} rows it never saw; {interval_words(found)}"
    )
    stderr.print(f"The curve is in {safe(out)}; the run is at {safe(url)}")
    _print_link(link)
    benchmax = safe(command())
    if link:
        stderr.print(f"The platform keeps running in the background. Stop it with: {benchmax} down")
    stderr.print(
        f"Next, an environment of your own: {benchmax} validate main.py --data rows.jsonl, "
        f"then {benchmax} train main.py --data rows.jsonl; more with {benchmax} guide"
    )


def _print_link(link: str | None) -> None:
    """Where the console would ask for a password: the link goes to the run's page."""
    if link:
        stderr.print(f"Sign in to the console, once, with {safe(link)}")
