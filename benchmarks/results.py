"""What the stored runs under docs/results came to, printed from their metrics; draws their curves anew.

python benchmarks/results.py
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmax.trainer.display.plot import plot_metrics

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TITLES = {
    "quickstart": "One-digit sums, SmolLM2-135M, two CPU cores",
    "first-script": "The script of the documents, SmolLM2-135M, two CPU cores",
    "calculator": "Learning to call a calculator, SmolLM2-135M, one H200",
}


def main() -> None:
    for name, title in TITLES.items():
        lines = [json.loads(line) for line in (RESULTS / name / "metrics.jsonl").read_text().splitlines()]
        steps = [line["values"] for line in lines if line["split"] == "train"]
        evals = {line["step"]: line["values"] for line in lines if line["split"] == "eval"}
        seconds = sum(values["seconds/sample"] + values["seconds/update"] for values in steps)
        rows = int(next(iter(evals.values()))["rollouts"])
        solved = ", ".join(f"{values['solve_rate']:.2f} after {step}" for step, values in evals.items())
        print(f"{title}: {len(steps)} updates, {seconds:.0f} s in steps")
        print(f"  reward   {steps[0]['reward/mean']:.2f} in the first step, {steps[-1]['reward/mean']:.2f} in the last")
        print(f"  held-out solved, {rows} rows: {solved} updates")
        plot_metrics(lines, RESULTS / name / "reward.png", title=title)


if __name__ == "__main__":
    main()
