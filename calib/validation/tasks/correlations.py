"""Correlations of weighted pairs of numbers: what resampled pairs would have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calib.validation.intervals import Floats

__all__ = ["Correlation", "weighted_pearson", "weighted_ranks"]


def weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """The rank of each number where number i occurs wᵢ times; equal numbers share their mean rank.

    Args:
        values: Shape [n].
        weights: Shape [draws, n].

    Returns:
        Shape [draws, n].

    >>> weighted_ranks(np.array([5.0, 7.0, 7.0]), np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 1.0]])).tolist()
    [[1.0, 2.5, 2.5], [1.5, 3.0, 3.0]]
    """
    _, starts, group = np.unique(np.sort(values), return_index=True, return_inverse=True)
    order = np.argsort(values, kind="stable")
    sums = np.add.reduceat(weights[:, order], starts, axis=1)
    below = np.cumsum(sums, axis=1) - sums
    ranks = np.empty_like(weights)
    ranks[:, order] = (below + (sums + 1) / 2)[:, group]
    return ranks


def weighted_pearson(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Σw(x − x̄)(y − ȳ) / √(Σw(x − x̄)² · Σw(y − ȳ)²) of each draw; NaN where either does not vary.

    Args:
        first: Shape [n] or [draws, n].
        second: Likewise.
        weights: Shape [draws, n].
    """
    total = weights.sum(axis=1, keepdims=True)
    first, second = (_from_a_drawn_one(values, weights) for values in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        x = first - (weights * first).sum(axis=1, keepdims=True) / total
        y = second - (weights * second).sum(axis=1, keepdims=True) / total
        spread = (weights * x**2).sum(axis=1) * (weights * y**2).sum(axis=1)
        found: Floats = (weights * x * y).sum(axis=1) / np.sqrt(spread)
    return np.where(spread > 0, np.clip(found, -1.0, 1.0), np.nan)


def _from_a_drawn_one(values: Floats, weights: Floats) -> Floats:
    """Values less one that was drawn: equal ones are exactly 0 then, and so is their spread.

    The mean of equal numbers may be off by a rounding, and they would seem to vary.
    """
    drawn = weights.argmax(axis=1, keepdims=True)
    moved: Floats = values - np.take_along_axis(np.broadcast_to(values, weights.shape), drawn, axis=1)
    return moved


@dataclass(frozen=True, eq=False)
class Correlation:
    """Spearman's and Pearson's correlation of pairs, averaged over columns.

    Attributes:
        first: Shape [units, columns].
        second: Of the same shape.
        names: "spearman", and "pearson" where that is wanted too.
    """

    first: Floats
    second: Floats
    names: tuple[str, ...] = ("spearman", "pearson")

    @property
    def classes(self) -> tuple[int, ...]:
        """None."""
        return ()

    @property
    def units(self) -> int:
        """Number of pairs."""
        return len(self.first)

    @property
    def work(self) -> int:
        """Numbers that one evaluation touches."""
        return 12 * self.first.size

    def __call__(self, weights: Floats) -> Floats:
        """The figures of each draw."""
        return np.stack([self._mean(name, weights) for name in self.names], axis=1)

    def _mean(self, name: str, weights: Floats) -> Floats:
        pairs = [(self.first[:, column], self.second[:, column]) for column in range(self.first.shape[1])]
        if name == "spearman":
            found = [
                weighted_pearson(weighted_ranks(x, weights), weighted_ranks(y, weights), weights)
                for x, y in pairs
            ]
        else:
            found = [weighted_pearson(x, y, weights) for x, y in pairs]
        mean: Floats = np.mean(found, axis=0)
        return mean
