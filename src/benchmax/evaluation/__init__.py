"""Measuring a model on an environment, and comparing two."""

from benchmax.evaluation.compare import Comparison, compare
from benchmax.evaluation.evaluate import Evaluation, evaluate
from benchmax.evaluation.report import Report, summarise
from benchmax.evaluation.statistics import Estimate

__all__ = ["Comparison", "Estimate", "Evaluation", "Report", "compare", "evaluate", "summarise"]
