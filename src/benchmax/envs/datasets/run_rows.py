"""Which rows a training run takes: all usable, and enough of them to train on.

Whoever uploads or launches asks here first, so that nobody learns it from a run that failed.
"""

from __future__ import annotations

from itertools import islice

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import DatasetReport, stream_examples
from benchmax.envs.datasets.readers import Source, named_rows, read_rows
from benchmax.errors import DatasetError

GOOD_ROWS = 200
"""Fewer train, but not well."""
NOT_UPLOADED = "Nothing was uploaded."
CORRECT = "Correct them, or leave them out: a run takes a dataset as a whole."


def check_run_rows(
    train: Source,
    held_out: Source,
    env_class: type[BaseEnv] | None = None,
    *,
    names: tuple[str, str] = ("train_dataset", "eval_dataset"),
    undone: str = NOT_UPLOADED,
) -> tuple[int, int]:
    """The usable rows of both; DatasetError, with row, column, reason and fix, for rows that a run would refuse.

    Rows are read again, so an iterator cannot be given. `names` is what messages call the two, `undone` their last
    words.
    """
    counts = [usable_rows(*each, env_class, undone=undone) for each in zip((train, held_out), names, strict=True)]
    check_count(counts[0], undone)
    return counts[0], counts[1]


def check_count(rows: int, undone: str = NOT_UPLOADED) -> None:
    """Refuse too few training rows."""
    fewest = limits.MIN_TRAIN_ROWS
    if rows < fewest:
        raise DatasetError(
            f"A training run needs at least {fewest} training rows; there are {rows}. "
            f"Add {fewest - rows} or more; {GOOD_ROWS} and up is better. {undone}"
        )


def usable_rows(
    source: Source,
    name: str,
    env_class: type[BaseEnv] | None = None,
    *,
    undone: str = NOT_UPLOADED,
    most: int | None = None,
) -> int:
    """The rows, all of which a run can use, of the first `most`; DatasetError when it could not use one of them."""
    report = DatasetReport(name, advice=f"{CORRECT} {undone}")
    try:
        for _ in stream_examples(islice(named_rows(source, name), most), env_class, report, elsewhere=True):
            pass
    except ImportError:  # dataset_preprocess needs a package of the platform; the run itself checks the rows there
        return sum(1 for _ in islice(read_rows(source), most))
    if report.errors:
        report.raise_if_bad()
    return report.kept
