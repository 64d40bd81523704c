"""The console's and the documents' table of metrics, made from `benchmax.metrics`.

`python console/scripts/metrics.py` writes `src/chart/metrics.generated.ts` and the table in `docs/training.md`;
`--check` only says whether both are up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from benchmax.metrics import TABLE, Metric

ROOT = Path(__file__).resolve().parent.parent.parent
TYPESCRIPT = ROOT / "console" / "src" / "chart" / "metrics.generated.ts"
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
    ]
    return "\n".join(lines)


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
    table = "\n".join(["| metric | in the console | what it is |", "| --- | --- | --- |", *rows])
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{table}\n\n{END}", text, flags=re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = {TYPESCRIPT: typescript(), DOCUMENT: document(DOCUMENT.read_text("utf-8"))}
    old = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in old:
        if check:
            print(f"{path} is not what benchmax.metrics says. Run `make console-types`.")
        else:
            path.write_text(wanted[path], "utf-8")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
