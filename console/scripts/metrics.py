"""What console and documents take from the package: the table of metrics, and the rules for datasets.

`python console/scripts/metrics.py` writes `src/chart/metrics.generated.ts`, `src/api/datasets.generated.ts` and the
table in `docs/training.md`; `--check` only says whether they are up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from benchmax import limits
from benchmax.envs.datasets.readers import FORMATS
from benchmax.metrics import PART_METRICS, TABLE, Metric, of_part

ROOT = Path(__file__).resolve().parent.parent.parent
TYPESCRIPT = ROOT / "console" / "src" / "chart" / "metrics.generated.ts"
DATASETS = ROOT / "console" / "src" / "api" / "datasets.generated.ts"
DOCUMENT = ROOT / "docs" / "training.md"
BEGIN, END = "<!-- metrics: made by console/scripts/metrics.py -->\n", "<!-- end of metrics -->\n"


def typescript() -> str:
    lines = [
        "// Made from benchmax.metrics by console/scripts/metrics.py (`make console-types`): change it there.",
        "",
        "export type KnownMetric = {",
        "  key: string;",
        "  name: string;",
        '  section: "main" | "rewards" | "rollouts" | "updates" | "speed";',
        "  about: string;",
        "  unit: string;",
        '  better: "up" | "down" | "";',
        "  min?: number;",
        "  max?: number;",
        "};",
        "",
        "export const KNOWN_METRICS: KnownMetric[] = [",
        *(f"  {json.dumps(_fields(metric), ensure_ascii=False)}," for metric in TABLE),
        "];",
        "",
        "/** Those that each environment of a composed run has, too: `env/NAME/KEY`. */",
        f"export const PART_METRICS: string[] = {json.dumps(list(PART_METRICS), ensure_ascii=False)};",
        "",
    ]
    return "\n".join(lines)


def dataset_rules() -> str:
    return f"""// Made from benchmax.limits and benchmax.envs.datasets by console/scripts/metrics.py: change it there.

/** Fewest rows a run is trained on. */
export const MIN_ROWS = {limits.MIN_TRAIN_ROWS};
/** From so many rows on a run has enough to learn from. */
export const GOOD_ROWS = {limits.GOOD_TRAIN_ROWS};
/** Dataset files the server takes. */
export const SUFFIXES = {json.dumps(list(FORMATS))};
"""


def _fields(metric: Metric) -> dict[str, object]:
    ends = {"min": metric.lowest, "max": metric.highest}
    return {
        "key": metric.key,
        "name": metric.title,
        "section": metric.section,
        "about": metric.about,
        "unit": metric.unit,
        "better": metric.better,
        **{name: int(value) for name, value in ends.items() if value is not None},
    }


def document(text: str) -> str:
    """The page with the table as it is now."""
    rows = [f"| `{metric.key}` | {metric.title} | {metric.about} |" for metric in TABLE]
    parts = ", ".join(f"`{key}`" for key in PART_METRICS)
    rows.append(f"| `{of_part('NAME', 'KEY')}` | NAME: … | The same of one environment of a composed run: {parts}. |")
    table = "\n".join(["| metric | in the console | what it is |", "| --- | --- | --- |", *rows])
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{table}\n\n{END}", text, flags=re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = {TYPESCRIPT: typescript(), DATASETS: dataset_rules(), DOCUMENT: document(DOCUMENT.read_text("utf-8"))}
    old = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in old:
        if check:
            print(f"{path} is not what the package says. Run `make console-types`.")
        else:
            path.write_text(wanted[path], "utf-8")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
