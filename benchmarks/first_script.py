"""Whether the script of the documents learns: sums and capitals, through the platform, with nothing set.

    python benchmarks/first_script.py                          200 rows, one set of them
    python benchmarks/first_script.py --rows 50 --sets 3       three sets of 50
    python benchmarks/first_script.py --keep docs/results/first-script

Each set is launched by the script in a process of its own and trained by the platform's runner with the default model.
Printed: what the held-out rows earn before, after the warm start alone and after training, and how many of the last
held-out answers ended by themselves. With --keep the metrics and the curve of the first set are put into a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _documents_script import with_rows

from benchmax.net import ports
from benchmax.platform.client import TrainerClient
from benchmax.platform.daemon import control, liveness
from benchmax.platform.store.datadir import DataDir
from benchmax.trainer.display.plot import plot_metrics
from benchmax.trainer.rundir import read_metrics

CAPITALS = dict(
    pair.split(":")
    for pair in [
        "France:Paris", "Italy:Rome", "Spain:Madrid", "Germany:Berlin", "Portugal:Lisbon", "Austria:Vienna",
        "Poland:Warsaw", "Greece:Athens", "Norway:Oslo", "Sweden:Stockholm", "Finland:Helsinki", "Denmark:Copenhagen",
        "Ireland:Dublin", "Hungary:Budapest", "Romania:Bucharest", "Bulgaria:Sofia", "Croatia:Zagreb",
        "Serbia:Belgrade", "Russia:Moscow", "Egypt:Cairo", "Kenya:Nairobi", "Japan:Tokyo", "China:Beijing",
        "India:New Delhi", "Thailand:Bangkok", "Indonesia:Jakarta", "Philippines:Manila", "Iran:Tehran",
        "Iraq:Baghdad", "Lebanon:Beirut", "Nepal:Kathmandu", "Cuba:Havana", "Canada:Ottawa", "Argentina:Buenos Aires",
        "Chile:Santiago", "Peru:Lima", "Iceland:Reykjavik", "Belgium:Brussels", "Netherlands:Amsterdam",
        "South Korea:Seoul",
    ]
)  # fmt: skip
SHARE = 0.2
"""Of the rows ask for a capital; all are different, so no held-out question was trained on."""


LARGEST = 14
"""Of the numbers that are added."""


def make_rows(count: int, seed: int) -> list[dict[str, str]]:
    draw = random.Random(seed)
    countries = draw.sample(sorted(CAPITALS), round(SHARE * count))
    rows = [{"prompt": f"capital of {country}?", "ground_truth": CAPITALS[country]} for country in countries]
    pairs = draw.sample([(a, b) for a in range(1, LARGEST + 1) for b in range(1, LARGEST + 1)], count - len(rows))
    rows += [{"prompt": f"what is {a}+{b}?", "ground_truth": str(a + b)} for a, b in pairs]
    draw.shuffle(rows)
    return rows


@contextmanager
def platform(folder: Path) -> Iterator[tuple[DataDir, str]]:
    """A platform, as `benchmax up` starts one."""
    data = DataDir(folder / "data")
    command = [sys.executable, "-m", "benchmax", "up", "--port", str(ports.free_port()), "--data-dir", str(data.root)]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    try:
        yield data, str(liveness.server_url(data))
    finally:
        control.stop(data)


def launch(folder: Path, rows: list[dict[str, str]], key: str, url: str) -> str:
    """Run the script with nothing set but the two variables it needs; gives the run's id."""
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "script.py").write_text(with_rows("__import__('json').load(open('rows.json'))"))
    variables = {"CASTFORM_API_KEY": key, "CASTFORM_PLATFORM_URL": url, "HOME": str(folder), "PATH": os.environ["PATH"]}
    command = [sys.executable, "script.py"]
    ran = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=True)
    return re.findall(r"experiments/(\S+)", ran.stdout)[0]


def result(run: Path, seed: int, rows: int) -> dict[str, float]:
    lines = read_metrics(run)
    evals = [line["values"] for line in lines if line["split"] == "eval"]
    warm = [line["values"]["reward/mean"] for line in lines if line["split"] == "warm_start"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return {
        "rows": rows,
        "set": seed,
        "minutes": round((events[-1]["time"] - events[0]["time"]) / 60, 1),
        "before": evals[0]["reward/mean"],
        "warm_start": warm[-1] if warm else evals[0]["reward/mean"],
        "after": max(values["reward/mean"] for values in evals),
        "last": evals[-1]["reward/mean"],
        "ended_by_themselves": 1 - evals[-1].get("truncated", 0.0),
    }


def keep(run: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "metrics.jsonl", folder)
    settings = (run / "config.toml").read_text()
    (folder / "config.toml").write_text(re.sub(r'(?m)^dir = ".*"$', 'dir = "runs"', settings))
    plot_metrics(read_metrics(run), folder / "reward.png", title="The script of the documents, two CPU cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--sets", type=int, default=1, help="sets of rows, each with a run of its own")
    parser.add_argument("--first-set", type=int, default=0, help="the number of the first of them")
    parser.add_argument("--keep", type=Path, help="a folder for the metrics and the curve of the first")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, platform(Path(temporary)) as (data, url):
        key = json.loads(data.credentials.read_text())["api_key"]
        with TrainerClient(api_key=key, base_url=url) as trainer:
            for seed in range(args.first_set, args.first_set + args.sets):
                run_id = launch(Path(temporary) / f"set-{seed}", make_rows(args.rows, seed), key, url)
                status = trainer.run(run_id).wait(3600)
                if status != "complete":
                    raise SystemExit(f"the run ended as {status}: {trainer.get_run(run_id)['statusReason']}")
                print(json.dumps(result(data.runs / run_id, seed, args.rows)), flush=True)
                if args.keep and seed == args.first_set:
                    keep(data.runs / run_id, args.keep)


if __name__ == "__main__":
    main()
