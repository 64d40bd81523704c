"""The process that scores a run's latest evaluation again, with an environment's present reward code; no model plays.

The new rollouts have ids of their own and belong to the evaluation, so both can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.envs.base_env import primary_key
from benchmax.errors import UsageError
from benchmax.platform.runner.children.child_files import EVALUATING, PLAN_FILE, REPORT_FILE, write_child_file
from benchmax.platform.runner.children.child_process import ChildProcess, main
from benchmax.platform.runner.children.eval_child import refuse_unscored
from benchmax.platform.runner.children.run_environment import opened_env
from benchmax.platform.runner.children.train_child import train_config

if TYPE_CHECKING:
    from benchmax.envs.remote import RemoteEnv
    from benchmax.rollouts.record import Rollout

ID_CHARS = 80


async def rescore(child: ChildProcess) -> str:
    """Score what is stored and write the report."""
    folder, run_dir = child.folder, Path(child.launch["run_dir"])
    saved = _stored(run_dir, child.launch["step"])
    write_child_file(folder / PLAN_FILE, {"total": len(saved)})
    async with opened_env(child) as env:
        child.say(EVALUATING)
        await _score(env, saved, folder, run_dir, child.launch["args"])
    return "All rollouts were scored again."


def _stored(run_dir: Path, step: int) -> list[Rollout]:
    from benchmax.rollouts.record_files import read_rollouts

    path = run_dir / "rollouts" / f"eval-{step}.jsonl"
    if not path.is_file():
        raise UsageError("The rollouts of that evaluation are no longer stored. Re-score a later one.")
    return list(read_rollouts(path))


async def _score(env: RemoteEnv, saved: list[Rollout], folder: Path, run_dir: Path, args: Mapping[str, Any]) -> None:
    from benchmax.evaluation.report import summarise
    from benchmax.evaluation.resume import ROLLOUTS
    from benchmax.files.atomic import write_json
    from benchmax.rollouts.host import EnvHost
    from benchmax.rollouts.record_files import RolloutLog
    from benchmax.rollouts.replay import replay
    from benchmax.trainer.sampling.rollout_settings import Draw, rollout_settings

    settings = rollout_settings(train_config(run_dir, args, len(saved)), Draw("external-eval", 0, 1, 0.0))
    (folder / ROLLOUTS).unlink(missing_ok=True)
    done = []
    with RolloutLog(folder / ROLLOUTS) as log:
        async with EnvHost(env) as host:
            async for _, fresh in replay(host, saved, settings):
                fresh.id = f"{fresh.id[: ID_CHARS - 13]}-{folder.name[-12:]}"
                log.append(fresh)
                done.append(fresh)
            write_json(folder / REPORT_FILE, summarise(done, primary=primary_key(host.env)).to_dict())
    refuse_unscored(done)


if __name__ == "__main__":
    main(rescore)
