"""A training backend: it plays the rows once with the environment's own solutions, and records that as a run.

A real one would learn from the rollouts. What it must do is all here: take the settings, write a run directory, tell
what happens, and say how it ended.
"""

from pathlib import Path

from benchmax import EnvHost, run_batch
from benchmax.models.registry import gold_model
from benchmax.trainer.progress import Outcome
from benchmax.trainer.rundir import RunDir
from benchmax.trainer.sampling.step_metrics import rollout_metrics
from benchmax.trainer.task import load_task


class Imitate:
    async def train(self, config, *, task=None, on_event=lambda kind, data: None, grace=None) -> Outcome:
        task = task or load_task(config)
        path = Path(config.output.dir) / (config.output.name or "imitated")
        run = RunDir.create(path, config)
        try:
            async with EnvHost(task.env) as host:
                played = await run_batch(
                    host, task.train, gold_model(type(host.env), task.train), split="train", step=0
                )
            run.write_rollouts("train", 0, played)
            on_event("metrics", run.log_metrics(0, "train", rollout_metrics([played])))
            run.set_status("complete", 1, reason="steps")
        finally:
            run.close()
        return Outcome(path, "steps", 1)

    async def resume(self, path, **options) -> Outcome:
        return Outcome(path, "steps", 1)


backend = Imitate()
