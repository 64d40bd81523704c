"""The process that evaluates: a checkpoint, the base model or an endpoint plays the run's eval rows.

Rollouts are kept as they finish, so an evaluation that was cut off goes on with what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.errors import RewardError
from benchmax.platform.runner.children.child_files import EVALUATING, PLAN_FILE, write_child_file
from benchmax.platform.runner.children.child_process import ChildProcess, main
from benchmax.platform.runner.children.run_environment import opened_env
from benchmax.platform.runner.children.train_child import held_out_examples, train_config

if TYPE_CHECKING:
    from benchmax.models.base import ModelClient
    from benchmax.rollouts.record import Rollout
    from benchmax.trainer.config import TrainConfig


async def evaluate_rows(child: ChildProcess) -> str:
    """Play the rows and write the report."""
    from benchmax.evaluation.evaluate import evaluate
    from benchmax.files.redaction import keep_secret
    from benchmax.rollouts.host import EnvHost
    from benchmax.trainer.sampling.rollout_settings import Draw, rollout_settings

    launch = child.launch
    samples = launch.get("samples") or 1
    async with opened_env(child) as env:
        keep_secret(child.secrets)
        child.say("reading the dataset")
        examples = (await held_out_examples(env, child.files))[: launch.get("rows")]
        write_child_file(child.folder / PLAN_FILE, {"total": len(examples) * samples})
        config = train_config(Path(launch["run_dir"]), launch["args"], len(examples))
        child.say("loading the model")
        model = await _open_model(launch, config, child.message.get("endpoint_key", ""))
        draw = Draw("external-eval", 0, samples, config.eval.temperature if samples == 1 else 1.0)
        child.say(EVALUATING)
        async with model, EnvHost(env) as host:
            settings = rollout_settings(config, draw)
            done = await evaluate(host, examples, model, settings, group_size=samples, directory=child.folder)
    refuse_unscored(done.rollouts)
    return "All rows were played."


def refuse_unscored(rollouts: Sequence[Rollout]) -> None:
    """An evaluation without a single score has failed, with the words most of its rollouts have."""
    if not rollouts or any(rollout.reward is not None for rollout in rollouts):
        return
    from benchmax.files.redaction import without_secrets
    from benchmax.trainer.watch.history import most_common_error

    why = without_secrets(most_common_error([rollouts]))
    raise RewardError(f"None of the {len(rollouts)} rollouts got a score. The most common reason: {why}.")


async def _open_model(launch: Mapping[str, Any], config: TrainConfig, key: str) -> ModelClient:
    kind, _, name = str(launch["model"]).partition(":")
    if kind == "endpoint":
        from benchmax.models.endpoints import endpoint_model

        return await endpoint_model({**launch["endpoint"], "api_key": key, "reach": launch.get("reach")})
    from benchmax.trainer.open_checkpoint import BASE, open_run_model

    run_dir, which = Path(launch["run_dir"]), name or BASE
    return await asyncio.to_thread(open_run_model, run_dir, which, config.model.name, name=name or None)


if __name__ == "__main__":
    main(evaluate_rows)
