"""The rows a training run accepts: all of them usable, and at least `limits.MIN_TRAIN_ROWS` to train on.

Uploads and launches check this before a run starts, so that it does not fail for its rows.
"""

from __future__ import annotations

from itertools import islice

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import DatasetReport, stream_examples
from benchmax.envs.datasets.readers import Source, named_rows, read_rows
from benchmax.errors import DatasetError

NOT_UPLOADED = "Nothing was uploaded."
CORRECT = "Correct them, or leave them out: a run uses a dataset as a whole."


def check_run_rows(
    train: Source,
    held_out: Source,
    env_class: type[BaseEnv] | None = None,
    *,
    names: tuple[str, str] = ("train_dataset", "eval_dataset"),
) -> tuple[int, int]:
    """The number of usable rows of both; raises DatasetError, with row, column, reason and fix, for unusable ones.

    Rows are read again later, so an iterator cannot be given. `names` are the names of the two in messages.
    """
    counts = [usable_rows(*each, env_class) for each in zip((train, held_out), names, strict=True)]
    check_count(counts[0])
    return counts[0], counts[1]


def check_count(rows: int, outcome: str = NOT_UPLOADED) -> None:
    """Raise DatasetError for too few training rows."""
    fewest = limits.MIN_TRAIN_ROWS
    if rows < fewest:
        raise DatasetError(
            f"A training run needs at least {fewest} training rows; there are {rows}. "
            f"Add {fewest - rows} or more; {limits.GOOD_TRAIN_ROWS} and up is better. {outcome}"
        )


def usable_rows(
    source: Source,
    name: str,
    env_class: type[BaseEnv] | None = None,
    *,
    outcome: str = NOT_UPLOADED,
    most: int | None = None,
) -> int:
    """The number of rows among the first `most`; raises DatasetError when a run could not use one of them."""
    report = DatasetReport(name, advice=f"{CORRECT} {outcome}")
    try:
        for _ in stream_examples(islice(named_rows(source, name), most), env_class, report, elsewhere=True):
            pass
    except ImportError:  # dataset_preprocess needs a package of the platform, where the run checks the rows
        return sum(1 for _ in islice(read_rows(source), most))
    if report.errors:
        report.raise_if_bad()
    return report.kept
