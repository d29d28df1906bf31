"""The names of TensorRT's calibration algorithms, as headers of caches hold them."""

from __future__ import annotations

import difflib
from types import MappingProxyType

from calib.calibrators.registry import CALIBRATORS
from calib.errors import UsageError

__all__ = ["ALGORITHMS", "algorithm_named"]

ALGORITHMS = MappingProxyType(
    {
        "EntropyCalibration2": "IInt8EntropyCalibrator2",
        "MinMaxCalibration": "IInt8MinMaxCalibrator",
        "EntropyCalibration": "IInt8EntropyCalibrator",
        "LegacyCalibration": "IInt8LegacyCalibrator",
    }
)
"""Name in the header → the class of TensorRT that reads such a cache."""


def algorithm_named(word: str) -> str:
    """The algorithm that a header names, from that name itself or from a method of calib.

    Raises:
        UsageError: There is no such algorithm.

    >>> algorithm_named("minmax"), algorithm_named("EntropyCalibration2")
    ('MinMaxCalibration', 'EntropyCalibration2')
    """
    if word in CALIBRATORS:
        return CALIBRATORS[word].algorithm
    known = {name.lower(): name for name in ALGORITHMS}
    if word.lower() not in known:
        near = difflib.get_close_matches(word.lower(), [*known, *CALIBRATORS], n=1)
        hint = f" Did you mean {known.get(near[0], near[0])!r}?" if near else ""
        choices = ", ".join([*ALGORITHMS, *CALIBRATORS])
        raise UsageError(f"Algorithm must be one of {choices}, got {word!r}.{hint}")
    return known[word.lower()]
