"""Statistics that several tasks are made of: ratios of sums, and several statistics as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.validation.intervals import Floats
from calib.validation.resampling import Statistic

__all__ = ["Joined", "Ratios", "joined", "ratio"]


@dataclass(frozen=True)
class Ratios:
    """Σ wᵢ·aᵢ / Σ wᵢ·bᵢ over units i, one figure for each column; NaN where the divisor is 0.

    Attributes:
        names: Name of each figure.
        over: aᵢ, shape [units, figures].
        under: bᵢ, of the same shape.
        then: What becomes of the ratios, such as the square root.

    >>> ratio("mean", [1.0, 3.0], [1.0, 1.0])(np.array([[1.0, 1.0], [2.0, 0.0]])).ravel().tolist()
    [2.0, 1.0]
    """

    names: tuple[str, ...]
    over: Floats
    under: Floats
    then: Callable[[Floats], Floats] | None = None

    @property
    def classes(self) -> tuple[int, ...]:
        """None has a figure of its own."""
        return ()

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.over)

    @property
    def work(self) -> int:
        """Numbers that one evaluation touches."""
        return 2 * self.over.size

    def __call__(self, weights: Floats) -> Floats:
        """The figures of each draw."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Floats = (weights @ self.over) / (weights @ self.under)
        return found if self.then is None else self.then(found)


def ratio(
    name: str,
    over: npt.ArrayLike,
    under: npt.ArrayLike | None = None,
    then: Callable[[Floats], Floats] | None = None,
) -> Ratios:
    """One ratio of sums; without divisors a mean.

    Args:
        name: Name of the figure.
        over: Shape [units].
        under: Shape [units].
        then: What becomes of the ratio.
    """
    first = np.asarray(over, np.float64).reshape(-1, 1)
    second = np.ones_like(first) if under is None else np.asarray(under, np.float64).reshape(-1, 1)
    return Ratios((name,), first, second, then)


@dataclass(frozen=True)
class Joined:
    """Several statistics of the same units, evaluated on the same draws."""

    parts: tuple[Statistic, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all figures."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def classes(self) -> tuple[int, ...]:
        """Classes of all parts."""
        return tuple(label for part in self.parts for label in part.classes)

    @property
    def biased(self) -> tuple[str, ...]:
        """Figures whose value depends on how many units there are."""
        return tuple(name for part in self.parts for name in getattr(part, "biased", ()))

    @property
    def units(self) -> int:
        """Number of units."""
        return self.parts[0].units

    @property
    def work(self) -> int:
        """Numbers that one evaluation touches."""
        return sum(part.work for part in self.parts)

    def __call__(self, weights: Floats) -> Floats:
        """The figures of each draw, then those of classes."""
        found = [(part(weights), len(part.names)) for part in self.parts]
        figures = [values[:, :count] for values, count in found]
        return np.concatenate([*figures, *(values[:, count:] for values, count in found)], axis=1)


def joined(parts: Sequence[Statistic]) -> Statistic | None:
    """Several statistics as one; None of none."""
    return None if not parts else parts[0] if len(parts) == 1 else Joined(tuple(parts))
