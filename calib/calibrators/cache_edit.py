"""New calibration caches from old ones: merged, renamed, under another header, without bad entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from calib.calibrators.algorithms import algorithm_named
from calib.calibrators.cache import CalibrationCache
from calib.calibrators.cache_names import nearest_name
from calib.errors import CacheError, UsageError
from calib.wording import counted

__all__ = [
    "MERGE_POLICIES",
    "MergedCache",
    "RenamedCache",
    "drop_unusable",
    "merge_caches",
    "refuse_non_finite",
    "rename_by_map",
    "rename_by_regex",
    "with_header",
]

MERGE_POLICIES = ("max", "first", "last", "ours", "theirs")
"""What becomes of a tensor that several caches have; "ours" and "theirs" are first and last of two."""

_SHOWN = 5


@dataclass(frozen=True)
class MergedCache:
    """A merged cache.

    Attributes:
        cache: The cache.
        conflicts: Tensors on whose scale the caches did not agree, in the order of the new cache.
    """

    cache: CalibrationCache
    conflicts: tuple[str, ...]


@dataclass(frozen=True)
class RenamedCache:
    """A cache with other names.

    Attributes:
        cache: The cache: same order, same bits.
        renamed: Old name → new name, of every entry that changed.
    """

    cache: CalibrationCache
    renamed: Mapping[str, str]


def refuse_non_finite(cache: CalibrationCache, source: str) -> None:
    """Refuses a cache with entries that must not be written again.

    Args:
        cache: The cache.
        source: Its file, for the message.

    Raises:
        CacheError: Scales are infinite, negative or not a number; they are named.
    """
    bad = [f"{name!r} ({why})" for name, why in cache.unusable.items() if why not in ("zero", "subnormal")]
    if bad:
        more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise CacheError(
            f"{source} has {counted(len(bad), 'scale[s]')} that cannot be written again: "
            f"{', '.join(bad[:_SHOWN])}{more}. "
            "Calibrate again, or leave them out with --drop-unusable."
        )


def drop_unusable(cache: CalibrationCache, source: str) -> tuple[CalibrationCache, tuple[str, ...]]:
    """A cache without the entries that INT8 cannot use, and the names of those.

    Args:
        cache: The cache.
        source: Its file, for the message.

    Raises:
        CacheError: No entry is left.
    """
    dropped = cache.unusable
    kept = {name: scale for name, scale in cache.items() if name not in dropped}
    if not kept:
        raise CacheError(f"No scale in {source} is usable: nothing would be left. Calibrate again.")
    return cache.replaced(kept), tuple(dropped)


def with_header(
    cache: CalibrationCache, version: str | None = None, algorithm: str | None = None
) -> CalibrationCache:
    """A cache under another header, with the same bits.

    Args:
        cache: The cache.
        version: TensorRT's version, such as "10.3.0"; None for the same.
        algorithm: Name in the header, or a method of calib; None for the same.

    Raises:
        CacheError: A scale is not finite.
        UsageError: TensorRT 11 and later read no cache; or version or algorithm do not exist.

    >>> with_header(CalibrationCache({"x": 1 / 127}), version="10.3.0").header
    'TRT-100300-EntropyCalibration2'
    """
    major = "" if version is None else version.strip().partition(".")[0]
    if major.isdecimal() and int(major) >= 11:
        raise UsageError(
            f"TensorRT {version} has no calibrators and reads no calibration cache. "
            "Write the scales into the model instead: calib quantize MODEL.onnx --cache FILE"
        )
    named = None if algorithm is None else algorithm_named(algorithm)
    return cache.replaced(version=version, algorithm=named)


def merge_caches(
    caches: Sequence[tuple[str, CalibrationCache]],
    policy: str = "max",
    *,
    version: str | None = None,
    algorithm: str | None = None,
) -> MergedCache:
    """One cache of all entries of several.

    Args:
        caches: Each cache with its file's name; at least two.
        policy: For a tensor that several have: "max" takes the largest scale, "first" (of two: "ours")
            and "last" ("theirs") that of the first or last cache that has it.
        version: TensorRT's version of the result; None if all agree.
        algorithm: Algorithm of the result; None if all agree.

    Raises:
        UsageError: Fewer than two caches, or an unknown policy.
        CacheError: Headers differ and the result's was not said, or a scale is not finite.
    """
    keep = _policy(policy, len(caches))
    for source, cache in caches:
        refuse_non_finite(cache, source)
    if version is None:
        _agree(caches, "TensorRT version", "--tensorrt", _version_text)
    if algorithm is None:
        _agree(caches, "algorithm", "--algorithm", lambda cache: cache.algorithm)
    merged: dict[str, float] = {}
    conflicts: dict[str, None] = {}
    for _, cache in caches:
        for name, scale in cache.items():
            if name in merged and merged[name] != scale:
                conflicts[name] = None
            merged[name] = keep(merged[name], scale) if name in merged else scale
    result = with_header(caches[0][1].replaced(merged), version, algorithm)
    return MergedCache(result, tuple(name for name in merged if name in conflicts))


def _policy(policy: str, count: int) -> Callable[[float, float], float]:
    if count < 2:
        raise UsageError(f"Merging needs at least two caches, got {count}.")
    if policy not in MERGE_POLICIES:
        raise UsageError(f"--policy must be one of {', '.join(MERGE_POLICIES)}, got {policy!r}.")
    if policy in ("ours", "theirs") and count != 2:
        plain = {"ours": "first", "theirs": "last"}[policy]
        raise UsageError(f"--policy {policy} is for two caches, got {count}. Say --policy {plain}.")
    if policy == "max":
        return max
    return (lambda old, _new: old) if policy in ("first", "ours") else (lambda _old, new: new)


def _version_text(cache: CalibrationCache) -> str:
    return cache.version or f"unknown ({cache.header.rpartition('-')[0] or cache.header})"


def _agree(
    caches: Sequence[tuple[str, CalibrationCache]],
    what: str,
    option: str,
    of: Callable[[CalibrationCache], str],
) -> None:
    first_source, first = caches[0]
    for source, cache in caches[1:]:
        if of(cache) != of(first):
            raise CacheError(
                f"The {what} differs: {of(first)} in {first_source}, {of(cache)} in {source}. "
                f"Say which the merged cache shall have: {option}"
            )


def rename_by_map(
    cache: CalibrationCache, names: Mapping[str, str], source: str, *, every: bool = True
) -> RenamedCache:
    """Renames entries, all at once: a map may swap two names.

    Args:
        cache: The cache.
        names: Old name → new name.
        source: The cache's file, for messages.
        every: Refuse an old name that the cache lacks; otherwise such names are passed over.

    Raises:
        CacheError: An old name is missing, two entries would get one name, a new name is empty, or
            nothing changes.
    """
    for old in names if every else ():
        if old not in cache:
            near = nearest_name(old, cache)
            hint = f" Did you mean {near!r}?" if near else ""
            raise CacheError(f"{source} has no tensor {old!r} to rename.{hint}")
    return _renamed(cache, lambda name: names.get(name, name), source)


def rename_by_regex(cache: CalibrationCache, pattern: str, replacement: str, source: str) -> RenamedCache:
    r"""Renames entries by replacing what a regular expression finds in a name.

    Args:
        cache: The cache.
        pattern: Python's regular expression; every place where it is found counts.
        replacement: What stands there instead; ``\1`` is the first group.
        source: The cache's file, for messages.

    Raises:
        UsageError: Pattern or replacement is not valid.
        CacheError: As ``rename_by_map``.

    >>> cache = CalibrationCache({"model/a:0": 0.5})
    >>> dict(rename_by_regex(cache, r"^model/(.*):0$", r"\1", "m.cache").renamed)
    {'model/a:0': 'a'}
    """
    try:
        expression = re.compile(pattern)
        return _renamed(cache, lambda name: expression.sub(replacement, name), source)
    except (re.error, IndexError) as error:
        raise UsageError(
            f"--regex {pattern!r} {replacement!r} is not a valid regular expression and replacement: {error}."
        ) from error


def _renamed(cache: CalibrationCache, new_name: Callable[[str], str], source: str) -> RenamedCache:
    old_names: dict[str, str] = {}
    for old in cache:
        new = new_name(old)
        if not new:
            raise CacheError(f"{source}: tensor {old!r} would get an empty name.")
        if new in old_names:
            raise CacheError(
                f"{source}: tensors {old_names[new]!r} and {old!r} would both be named {new!r}. "
                "Give them different names."
            )
        old_names[new] = old
    changed = {old: new for new, old in old_names.items() if new != old}
    if not changed:
        raise CacheError(f"Nothing was renamed: no tensor of {source} gets another name that way.")
    refuse_non_finite(cache, source)
    return RenamedCache(cache.replaced({new: cache[old] for new, old in old_names.items()}), changed)
