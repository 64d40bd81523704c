"""Diversity within a group: answers that say the same share one reward.

Without it a group that found one good answer repeats it; dividing each score by the size of its cluster rewards
every distinct answer once. Scores must not be negative: a shared penalty would be a gain.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmax.envs.types import EarlierState, RewardValue, Unscored
from benchmax.errors import ConfigError, JudgeError
from benchmax.rewards.judge import Judge
from benchmax.rewards.verdict import read_partition

logger = logging.getLogger(__name__)

_INSTRUCTIONS = """\
Group texts that say the same by the same means; wording alone makes no difference. A text like no other is a group
of its own. The texts {labels} follow as data. Reply with JSON, every name exactly once:
{{"clusters": [["<name>", ...], ...]}}"""


@dataclass(frozen=True)
class DiversityConfig(EarlierState):
    """How texts are compared. No slots, as in `ToolDefinition`."""

    method: Literal["llm", "ngram"] = "ngram"
    """Ask a judge, or compare runs of words (no model needed)."""
    ngram_n: int = 3
    """Words in a run."""
    similarity_threshold: float = 0.5
    """Share of runs (Jaccard) from which two texts count as the same."""
    fallback_on_error: bool = True
    """Compare runs of words when the judge fails; else the JudgeError is raised."""

    def __post_init__(self) -> None:
        if self.method not in ("llm", "ngram"):
            raise ConfigError(f"Diversity method {self.method!r} is not known; use 'llm' or 'ngram'.")
        if self.ngram_n < 1 or not 0 < self.similarity_threshold <= 1:
            raise ConfigError("Diversity needs ngram_n of at least 1 and a similarity_threshold in (0, 1].")


class ClusterResult(list[int]):
    """The cluster of each text, numbered from 0 in order of appearance."""

    @property
    def sizes(self) -> dict[int, int]:
        """How many texts each cluster has."""
        return dict(Counter(self))


async def cluster_texts(
    texts: Sequence[str], config: DiversityConfig = DiversityConfig(), *, judge: Judge | None = None
) -> ClusterResult:
    """Which texts say the same."""
    if config.method == "llm" and len(texts) > 1:
        if judge is None:
            raise ConfigError("Diversity by 'llm' needs a judge; pass judge=Judge(...) or use method='ngram'.")
        try:
            return await _cluster_by_judge(judge, texts)
        except JudgeError as error:
            if not config.fallback_on_error:
                raise
            logger.warning("Comparing runs of words because the judge failed: %s", error)
    return cluster_by_ngrams(texts, config.ngram_n, config.similarity_threshold)


def cluster_by_ngrams(texts: Sequence[str], n: int = 3, threshold: float = 0.5) -> ClusterResult:
    """Clusters of texts linked by similar runs of words."""
    runs = [_runs(text, n) for text in texts]
    cluster = list(range(len(texts)))
    for later in range(len(texts)):
        for earlier in range(later):
            if cluster[later] != cluster[earlier] and _similarity(runs[later], runs[earlier]) >= threshold:
                joined, gone = cluster[earlier], cluster[later]
                cluster = [joined if label == gone else label for label in cluster]
    return _renumbered(cluster)


def scale_by_diversity(scores: Sequence[RewardValue], clusters: Sequence[int]) -> list[RewardValue]:
    """Each score divided by the size of its cluster; what is unscored stays so."""
    if len(scores) != len(clusters):
        raise ConfigError(
            f"There are {len(scores)} scores and {len(clusters)} clusters; give one cluster for each score."
        )
    sizes = ClusterResult(clusters).sizes
    return [
        score if isinstance(score, Unscored) else score / sizes[cluster]
        for score, cluster in zip(scores, clusters, strict=True)
    ]


async def _cluster_by_judge(judge: Judge, texts: Sequence[str]) -> ClusterResult:
    shown = {f"T{index + 1}": text for index, text in enumerate(dict.fromkeys(texts))}
    groups = await judge.ask(
        _INSTRUCTIONS.format(labels=", ".join(shown)),
        list(shown.items()),
        lambda raw: read_partition(raw, "clusters", list(shown)),
    )
    cluster_of = {shown[label]: number for number, group in enumerate(groups) for label in group}
    return _renumbered([cluster_of[text] for text in texts])


def _runs(text: str, n: int) -> frozenset[tuple[str, ...]]:
    words = text.casefold().split()
    n = max(1, min(n, len(words)))
    return frozenset(zip(*(words[start:] for start in range(n)), strict=False))


def _similarity(a: frozenset[Hashable], b: frozenset[Hashable]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0


def _renumbered(clusters: Sequence[int]) -> ClusterResult:
    numbers: dict[int, int] = {}
    return ClusterResult(numbers.setdefault(cluster, len(numbers)) for cluster in clusters)
