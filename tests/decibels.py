"""Signal to noise as the tests work it out themselves."""

from __future__ import annotations

import numpy as np

__all__ = ["decibels"]


def decibels(reference: np.ndarray, other: np.ndarray) -> float:
    """10·log10(signal / noise) over all values; infinite where they are equal."""
    exact = reference.astype(np.float64)
    noise = float(((exact - other) ** 2).sum())
    return 10 * float(np.log10((exact**2).sum() / noise)) if noise else float("inf")
