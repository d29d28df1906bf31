"""Names in calibration caches: those that TensorRT made up, and the nearest to one that is unknown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

__all__ = ["helper_reason", "nearest_name", "nearest_names"]

_HELPERS = (
    (re.compile(r"\(Unnamed (?:Layer|ITensor)\* \d+\).*"), "layer without a name of its own"),
    (re.compile(r"ONNXTRT_.*"), "layer that TensorRT's ONNX parser added"),
)
_SUFFIX = re.compile(r"(:\d+|_output(_\d+)?)$")
_CUTOFF = 0.75
_MOST_COMPARED = 64


def helper_reason(name: str) -> str:
    """Why a cache's entry names no tensor of any ONNX model; empty where it may.

    >>> helper_reason("(Unnamed Layer* 16) [Matrix Multiply]_output")
    'layer without a name of its own'
    >>> helper_reason("conv1:0")
    ''
    """
    return next((reason for pattern, reason in _HELPERS if pattern.fullmatch(name)), "")


def nearest_name(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that a name most likely stands for; None where none is near.

    >>> nearest_name("input", ["conv1", "input.1:0"])
    'input.1:0'
    """
    return nearest_names([name], list(candidates)).get(name)


def nearest_names(names: Collection[str], candidates: Collection[str]) -> dict[str, str]:
    """Name → nearest candidate, for those names that have one.

    Names that differ in an output suffix only (``:0``, ``_output``, ``_output_0``) come first. Letters
    are compared for the first 64 names at most, since that takes long in large models.
    """
    by_stem: dict[str, str] = {}
    for candidate in candidates:
        by_stem.setdefault(_stem(candidate), candidate)
    found: dict[str, str] = {}
    compared = 0
    for name in names:
        stem = _stem(name)
        if stem in by_stem:
            found[name] = by_stem[stem]
        elif compared < _MOST_COMPARED:
            compared += 1
            near = difflib.get_close_matches(stem, by_stem, n=1, cutoff=_CUTOFF)
            if near:
                found[name] = by_stem[near[0]]
    return found


def _stem(name: str) -> str:
    return _SUFFIX.sub("", name).lower() or name
