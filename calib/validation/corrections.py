"""p-values of several judgements at once: what is left of them after correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from calib.errors import UsageError

__all__ = ["Correction", "adjust", "bonferroni", "holm"]

Correction = Literal["holm", "bonferroni", "none"]


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjustment, which keeps the chance of any false rejection below α.

    With p₍₁₎ ≤ … ≤ p₍ₖ₎: adjusted p₍ᵢ₎ = max over j ≤ i of min(1, (k − j + 1)·p₍ⱼ₎) (Holm, Scandinavian
    Journal of Statistics 6, 1979). It is never weaker than Bonferroni's.

    Args:
        p_values: One for each judgement, in any order.

    Returns:
        The adjusted values in the same order.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    values = _checked(p_values)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return tuple(adjusted.tolist())


def bonferroni(p_values: Sequence[float]) -> tuple[float, ...]:
    """Bonferroni's adjustment: each of k values times k, at most 1.

    >>> bonferroni([0.01, 0.4, 0.02])
    (0.03, 1.0, 0.06)
    """
    values = _checked(p_values)
    return tuple(np.minimum(1.0, values * len(values)).tolist())


def adjust(p_values: Sequence[float], correction: Correction = "holm") -> tuple[float, ...]:
    """Adjusts p-values of judgements that are made together.

    Args:
        p_values: One for each judgement.
        correction: "holm", "bonferroni" or "none".

    Raises:
        UsageError: The correction is unknown, or a value is no probability.
    """
    if correction not in get_args(Correction):
        known = ", ".join(get_args(Correction))
        raise UsageError(f"Unknown correction {correction!r}. Choose from {known}.")
    if correction == "none":
        return tuple(_checked(p_values).tolist())
    return holm(p_values) if correction == "holm" else bonferroni(p_values)


def _checked(p_values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.array(p_values, np.float64).reshape(-1)
    if not ((values >= 0) & (values <= 1)).all():  # False for NaN too
        raise UsageError(f"p-values lie between 0 and 1; got {list(p_values)}.")
    return values
