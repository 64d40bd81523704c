"""Rollouts packed as prefix trees, so that no token is computed twice.

Siblings share their prompt, all prompts share the system message, and the samples of a trained model often begin
alike. A packed row is a tree of tokens: every distinct prefix is one node.

    system ─ "2 + 3?" ─ <answer> ─ 5 …          position id = depth in the tree
           │                     └ 6 …          a node attends to its ancestors and itself
           └ "4 + 4?" ─ <answer> ─ 8 …          a sampled token is predicted at its parent

Sorting the rollouts puts equal prefixes side by side, so each one shares with the one before it. Log-probs and
gradients are those of the unpacked rollouts: a shared node receives the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmax.models.base import TokenSegment
from benchmax.rollouts.record import Rollout

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class TokenSequence:
    """One rollout as the loss sees it: all tokens up to the last sampled one."""

    ids: Ints
    targets: Ints
    """Indices into `ids` of the sampled tokens."""
    logprobs: npt.NDArray[np.float32]
    """The sampler's, one per target; NaN where it reported none."""
    advantage: float
    group: int = 0
    shown: bool = False
    """Whether it is a demonstration: not sampled by the model."""


def sequence_of(rollout: Rollout, group: int = 0) -> TokenSequence:
    """The exact tokens of a rollout."""
    return sequence_of_segments(rollout.tokens, rollout.advantage or 0.0, group)


def sequence_of_segments(segments: Iterable[TokenSegment], advantage: float, group: int = 0) -> TokenSequence:
    """The tokens of a conversation; what was observed is context, what was sampled is a target."""
    ids: list[int] = []
    targets: list[int] = []
    logprobs: list[float] = []
    for segment in segments:
        if segment.sampled:
            targets += range(len(ids), len(ids) + len(segment.ids))
            logprobs += segment.logprobs or [float("nan")] * len(segment.ids)
        ids += segment.ids
    first = 1 if targets and targets[0] == 0 else 0  # nothing comes before the very first token to predict it
    end = targets[-1] + 1 if targets else 0
    return TokenSequence(
        np.asarray(ids[:end], np.int64),
        np.asarray(targets[first:], np.int64),
        np.asarray(logprobs[first:], np.float32),
        advantage,
        group,
    )


@dataclass(slots=True)
class MicroBatch:
    """Rows that go through the model together."""

    input_ids: Tensor
    position_ids: Tensor
    mask: Tensor
    """[rows, 1, length, length], true where a token may attend."""
    query: Tensor
    """Flat positions whose next-token distribution is needed, each once."""
    slot: Tensor
    """For each loss token its place in `query`."""
    target: Tensor
    """For each loss token its id."""
    token: Tensor
    """For each loss token its number in the batch."""

    def to(self, device: torch.device) -> MicroBatch:
        moved = (getattr(self, name).to(device, non_blocking=True) for name in self.__slots__)
        return MicroBatch(*moved)


@dataclass(slots=True)
class Batch:
    """All loss tokens of one step, numbered consecutively, and what is known about each."""

    sequences: list[TokenSequence]
    advantage: Tensor
    sampler: Tensor
    sequence: Tensor
    """Which sequence a token belongs to."""
    shown: Tensor
    """Whether it belongs to a demonstration."""
    first: list[int]
    """Number of each sequence's first token."""

    @classmethod
    def of_groups(cls, groups: Iterable[Iterable[Rollout]], shown: Iterable[TokenSequence] = ()) -> Batch:
        """The rollouts of a step that were not discarded, and its demonstrations."""
        numbered = ((index, rollout) for index, group in enumerate(groups) for rollout in group)
        sequences = [sequence_of(rollout, index) for index, rollout in numbered if rollout.discarded is None]
        return cls.of([*sequences, *shown])

    @classmethod
    def of(cls, sequences: Iterable[TokenSequence]) -> Batch:
        kept = [sequence for sequence in sequences if len(sequence.targets)]
        counts = np.asarray([len(sequence.targets) for sequence in kept], np.int64)
        values = np.repeat(np.asarray([sequence.advantage for sequence in kept], np.float32), counts)
        sampler = np.concatenate([sequence.logprobs for sequence in kept]) if kept else np.zeros(0, np.float32)
        owner = np.repeat(np.arange(len(kept)), counts)
        first = [0, *np.cumsum(counts)[:-1].tolist()] if kept else []
        shown = np.repeat(np.asarray([sequence.shown for sequence in kept], np.bool_), counts)
        advantage, logprobs, sequence, is_shown = map(torch.from_numpy, (values, sampler, owner, shown))
        return cls(kept, advantage, logprobs, sequence, is_shown, first)

    def __len__(self) -> int:
        return len(self.advantage)

    def weights(self, how: str, length: int) -> Tensor:
        """The weight of each token in the loss; `length` is the constant of that normalisation."""
        if how == "token":
            return torch.full((len(self),), 1.0 / max(1, len(self)))
        if how == "constant":
            return torch.full((len(self),), 1.0 / (max(1, len(self.sequences)) * length))
        counts = torch.tensor([len(sequence.targets) for sequence in self.sequences], dtype=torch.float32)
        return 1.0 / (counts[self.sequence] * len(self.sequences))

    def split(self, parts: int) -> list[Batch]:
        """The groups dealt out to so many batches."""
        groups = sorted({sequence.group for sequence in self.sequences})
        part_of = {group: index % parts for index, group in enumerate(groups)}
        dealt: list[list[TokenSequence]] = [[] for _ in range(min(parts, len(groups)))]
        for sequence in self.sequences:
            dealt[part_of[sequence.group]].append(sequence)
        return [Batch.of(sequences) for sequences in dealt]

    def micro_batches(self, token_budget: int, row_tokens: int, multiple: int = 1) -> list[MicroBatch]:
        """Pack the sequences into trees, and the trees into micro-batches of bounded size.

        Rows are padded to a `multiple`: a GPU is quicker with few different shapes.
        """
        rows = _plant(self.sequences, min(row_tokens, token_budget))
        rows.sort(key=lambda row: row.size)
        bundles: list[list[_Row]] = []
        for row in rows:
            if bundles and (len(bundles[-1]) + 1) * row.size <= token_budget:
                bundles[-1].append(row)
            else:
                bundles.append([row])
        return [self._assemble(bundle, multiple) for bundle in bundles]

    def _assemble(self, rows: Sequence[_Row], multiple: int) -> MicroBatch:
        length = -(-max(row.size for row in rows) // multiple) * multiple
        ids = np.zeros((len(rows), length), np.int64)
        depth = np.zeros((len(rows), length), np.int64)
        mask = np.zeros((len(rows), 1, length, length), np.bool_)
        np.einsum("bhii->bhi", mask)[:] = True  # padding attends to itself: a softmax over nothing is NaN
        places, targets, tokens = [], [], []
        for index, row in enumerate(rows):
            row.draw(ids[index], depth[index], mask[index, 0])
            for path, number in zip(row.paths, row.numbers, strict=True):
                sequence = self.sequences[number]
                places.append(index * length + path[sequence.targets - 1])
                targets.append(sequence.ids[sequence.targets])
                tokens.append(self.first[number] + np.arange(len(sequence.targets)))
        query, slot = np.unique(np.concatenate(places), return_inverse=True)
        arrays = (ids, depth, mask, query, slot, np.concatenate(targets), np.concatenate(tokens))
        return MicroBatch(*(torch.from_numpy(array) for array in arrays))


class _Row:
    """A tree under construction: each sequence is a path from the root, new nodes are numbered as they come."""

    def __init__(self) -> None:
        self.size = 0
        self.numbers: list[int] = []
        self.paths: list[Ints] = []
        self.pieces: list[tuple[Ints, int]] = []
        self.last: Ints = np.zeros(0, np.int64)

    def shared_with(self, ids: Ints) -> int:
        """How many leading tokens `ids` has in common with the last path."""
        size = min(len(ids), len(self.last))
        different = np.flatnonzero(ids[:size] != self.last[:size])
        return int(different[0]) if len(different) else size

    def add(self, number: int, ids: Ints, common: int) -> None:
        """A sequence that has `common` leading tokens in common with the last one."""
        new = np.arange(self.size, self.size + len(ids) - common)
        path = np.concatenate([self.paths[-1][:common], new]) if self.paths else new
        self.numbers.append(number)
        self.paths.append(path)
        self.pieces.append((ids[common:], common))
        self.size += len(new)
        self.last = ids

    def draw(self, ids: Ints, depth: Ints, mask: npt.NDArray[np.bool_]) -> None:
        """Write the tree's tokens, depths and which token may attend to which."""
        start = 0
        for path, (piece, common) in zip(self.paths, self.pieces, strict=True):
            end = start + len(piece)
            ids[start:end] = piece
            depth[start:end] = np.arange(common, common + len(piece))
            mask[start:end, path[:common]] = True
            mask[start:end, start:end] = _triangle(len(piece))
            start = end


def _plant(sequences: Sequence[TokenSequence], row_tokens: int) -> list[_Row]:
    """Trees of at most `row_tokens` nodes (one long sequence may exceed that)."""
    inputs = [sequence.ids[:-1] for sequence in sequences]  # the last token predicts nothing
    rows: list[_Row] = []
    keys = [ids.astype(">i4").tobytes() for ids in inputs]  # their order is that of the tokens
    for number in sorted(range(len(inputs)), key=keys.__getitem__):
        ids = inputs[number]
        common = rows[-1].shared_with(ids) if rows else 0
        if not rows or rows[-1].size + len(ids) - common > row_tokens:
            rows.append(_Row())
            common = 0
        rows[-1].add(number, ids, common)
    return rows


_SHORT = np.tri(256, dtype=np.bool_)


def _triangle(size: int) -> npt.NDArray[np.bool_]:
    return _SHORT[:size, :size] if size <= len(_SHORT) else np.tri(size, dtype=np.bool_)
