"""Whether environments teach by themselves: twelve of them, trained with no setting but the data.

    python benchmarks/learnability.py                                   all twelve, one after another, on this machine
    python benchmarks/learnability.py --only dates,choice --seeds 2     some of them, with two seeds
    python benchmarks/learnability.py --parallel 12 --plain             together on a GPU, and once without any help

Printed for each: what the held-out rows earn before, after the warm start alone and after training; what the report
before training said; with --plain also what GRPO alone comes to, and whether the report foretold it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _twelve_environments import TWELVE, rows

from benchmax.trainer.rundir import read_metrics

GAIN, ENOUGH = 0.2, 0.9
"""An environment teaches when its held-out reward rises by so much, or reaches so much."""


@dataclass
class Result:
    """What one run came to."""

    name: str
    seed: int
    minutes: float
    before: float
    warm: float | None
    best: float
    last: float
    ended: float
    learns: bool
    how: str
    error: str = ""

    @property
    def taught(self) -> bool:
        return not self.error and (self.best - self.before >= GAIN or self.best >= ENOUGH)

    @property
    def warm_alone_is_better(self) -> bool:
        return self.warm is not None and self.warm > self.best

    def __str__(self) -> str:
        if self.error:
            return f"{self.name:10} seed {self.seed}  failed: {self.error}"
        warm = "   -" if self.warm is None else f"{self.warm:.2f}"
        return (
            f"{self.name:10} seed {self.seed}  {self.minutes:4.1f} min  before {self.before:.2f}  warm start {warm}  "
            f"after {self.best:.2f} (last {self.last:.2f})  ended by themselves {self.ended:4.0%}  "
            f"{'learns by itself' if self.learns else 'needs help':16}  help: {self.how}"
        )


def play(name: str, seed: int, folder: Path, flags: list[str], tag: str) -> Result:
    """Train on one of the twelve as a newcomer does."""
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(name)))
    env = f"{Path(__file__).with_name('_twelve_environments.py')}:{TWELVE[name][0].__name__}"
    return train(name, seed, folder, [env, "--data", str(data), *flags], f"{tag}-{name}-{seed}")


def train(name: str, seed: int, folder: Path, arguments: list[str], run: str) -> Result:
    """`benchmax train` with these arguments, in a process of its own, and what it came to."""
    own = ["--seed", str(seed), "--output.dir", str(folder), "--output.name", run]
    command = [sys.executable, "-m", "benchmax", "train", *arguments, *own]
    began = time.monotonic()
    with (folder / f"{run}.log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
    minutes = (time.monotonic() - began) / 60
    if code:
        return Result(name, seed, minutes, 0, None, 0, 0, 0, False, "", (folder / f"{run}.log").read_text()[-300:])
    return _result(name, seed, minutes, folder / run)


def _result(name: str, seed: int, minutes: float, run: Path) -> Result:
    evals = [line["values"] for line in read_metrics(run) if line["split"] == "eval"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    of: dict[str, Any] = {event["kind"]: event for event in events}
    signal, warm = of.get("signal", {}), of.get("warm_start", {})
    taught = sum(event["kind"] == "taught" and event["kept"] for event in events)
    how = warm.get("how", "none") + (f", {taught} lesson{'s' * (taught > 1)} on the way" if taught else "")
    rewards = [values["reward/mean"] for values in evals]
    ended, learns = 1 - evals[-1].get("truncated", 0.0), bool(signal.get("learns"))
    after = {"best": max(rewards), "last": rewards[-1], "ended": ended}
    return Result(name, seed, minutes, rewards[0], warm.get("after"), **after, learns=learns, how=how)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TWELVE), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1, help="runs at once, which share the device")
    parser.add_argument("--plain", action="store_true", help="also GRPO without any help, to judge the forecast")
    parser.add_argument("--model", help="another than the default")
    parser.add_argument("--keep", type=Path, help="a folder for the runs")
    args = parser.parse_args()
    if args.parallel > 1:  # runs that share a GPU need one thread each, and get in each other's way with more
        os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    model = ["--model", args.model] if args.model else []
    jobs = [(name, seed) for seed in range(args.first_seed, args.first_seed + args.seeds) for name in _names(args.only)]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(args.parallel) as pool:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)

        def show(name: str, seed: int, flags: list[str], tag: str) -> Result:
            result = play(name, seed, folder, flags, tag)
            print(result if tag == "auto" else f"{result}  [plain]", flush=True)
            return result

        auto = list(pool.map(lambda job: show(*job, model, "auto"), jobs))
        plain_flags = [*model, "--recipe", "plain"]
        plain = list(pool.map(lambda job: show(*job, plain_flags, "plain"), jobs)) if args.plain else []
    _verdict(auto, plain)


def _names(only: str) -> list[str]:
    names = only.split(",")
    if unknown := [name for name in names if name not in TWELVE]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(TWELVE)}")
    return names


def _verdict(auto: list[Result], plain: list[Result]) -> None:
    names = sorted({result.name for result in auto})
    taught = [name for name in names if all(result.taught for result in auto if result.name == name)]
    copied = [f"{result.name} (seed {result.seed})" for result in auto if result.warm_alone_is_better]
    slowest = max(result.minutes for result in auto)
    print(f"{len(taught)} of {len(names)} gained {GAIN:.0%} or reached {ENOUGH} with every seed")
    print(f"the slowest took {slowest:.1f} min")
    print(f"warm start alone better than with training: {', '.join(copied) or 'never'}")
    if plain:
        right = [one.learns == alone.taught for one, alone in zip(auto, plain, strict=True)]
        print(f"the report before training was right about {sum(right)} of {len(right)} runs without help")


if __name__ == "__main__":
    main()
