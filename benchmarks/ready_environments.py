"""Whether the ready environments teach: each trained by its name, with no setting but the seed.

    python benchmarks/ready_environments.py                    all, one after another, on this machine
    … --only math crm --seeds 2 --parallel 4                   some of them, together on a GPU
    … --only math,crm,excel                                    three of them in one run
    … --keep DIR --out docs/results/ready                      with the runs kept and the curves drawn

Printed for each: what the held-out tasks earn before, after the warm start alone and after training.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from learnability import Result, train

from benchmax.metrics import of_part
from benchmax.trainer.rundir import read_metrics

READY = ["math", "excel", "code", "wikipedia", "crm", "search"]


def play(name: str, seed: int, folder: Path, flags: list[str]) -> Result:
    """Train on one environment by its name."""
    result = train(name, seed, folder, [name, *flags], f"{name}-{seed}")
    print(result, flush=True)
    return result


def curves(run: Path, name: str) -> Iterator[tuple[str, list[float], list[float]]]:
    """Minutes since the run began and the held-out reward, at each evaluation; of each part where there are several."""
    lines = read_metrics(run)
    evals = [line for line in lines if line["split"] == "eval"]
    minutes = [(line["time"] - lines[0]["time"]) / 60 for line in evals]
    for part in name.split(","):
        key = of_part(part, "reward/mean") if "," in name else "reward/mean"
        yield part, minutes, [line["values"][key] for line in evals]


def draw(runs: dict[str, list[Path]], out: Path) -> None:
    """One picture with a panel for each environment, one line a seed; for a composed run, one line a part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(runs), figsize=(3.2 * len(runs), 3), squeeze=False)
    for panel, (name, folders) in zip(panels[0], runs.items(), strict=True):
        for run in folders:
            for part, minutes, rewards in curves(run, name):
                panel.plot(minutes, rewards, marker="o", markersize=3, label=part)
        panel.set(title=name if "," not in name else "in one run", xlabel="minutes")
        if "," in name:
            panel.legend(fontsize="small")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("held-out reward")
    figure.tight_layout()
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "held_out.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=READY, help="names; with commas, several in one run")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=1, help="runs at once, which share the device")
    parser.add_argument("--minutes", type=float, default=10, help="what one run may take")
    parser.add_argument("--model", help="another than the default")
    parser.add_argument("--keep", type=Path, help="a folder for the runs")
    parser.add_argument("--out", type=Path, help="a folder for the picture of the curves")
    args = parser.parse_args()
    if args.parallel > 1:
        os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    flags = ["--limits.seconds", str(args.minutes * 60), *(["--model", args.model] if args.model else [])]
    names = args.only
    jobs = [(name, seed) for seed in range(args.seeds) for name in names]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(args.parallel) as pool:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = list(pool.map(lambda job: play(*job, folder, flags), jobs))
        if args.out:
            ended = {name: [result for result in results if result.name == name and not result.error] for name in names}
            draw({name: [folder / f"{name}-{one.seed}" for one in ended[name]] for name in names}, args.out)
    taught = [name for name in names if all(result.taught for result in results if result.name == name)]
    print(f"{len(taught)} of {len(names)} gained 20 points or reached 0.9 with every seed: {', '.join(taught)}")


if __name__ == "__main__":
    main()
