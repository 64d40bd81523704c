"""Measuring a model on an environment, and comparing two measurements. Start reading at `evaluate`.

evaluate      plays a dataset, with or without a directory
resume        the directory of an evaluation, and continuing in it
report        what a set of rollouts says; `statistics` has the means and intervals
compare       two sets of rollouts, paired by example
"""

from benchmax.evaluation.compare import Comparison, compare
from benchmax.evaluation.evaluate import Evaluation, evaluate
from benchmax.evaluation.report import Report, summarise
from benchmax.evaluation.statistics import Estimate

__all__ = ["Comparison", "Estimate", "Evaluation", "Report", "compare", "evaluate", "summarise"]
