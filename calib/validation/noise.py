"""How far figures of one model differ when its engine is built again: what a smaller change cannot tell."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from calib.errors import ValidationError
from calib.validation.baseline import measured_latency, timed_device
from calib.validation.changes import figures_of
from calib.validation.results import PrecisionRun, RebuildRecord, Results

__all__ = ["Noise", "as_builds", "known_noise", "rebuild_noise"]

Spreads = Mapping[tuple[str, str], float]

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Noise:
    """Differences between builds of one model.

    Attributes:
        builds: Number of builds; 0 where nothing is known.
        spreads: (label of the run, figure) → largest minus smallest value; figures are names of metrics, or
            "SQNR of OUTPUT" in dB.
        latency: Label of the run → largest p50 divided by smallest.
    """

    builds: int = 0
    spreads: Spreads = field(default_factory=dict)
    latency: Mapping[str, float] = field(default_factory=dict)

    def __or__(self, other: Noise) -> Noise:
        """The larger of two, figure by figure."""
        return Noise(
            max(self.builds, other.builds),
            _larger(self.spreads, other.spreads),
            _larger(self.latency, other.latency),
        )


def _larger(first: Mapping[_Key, float], second: Mapping[_Key, float]) -> dict[_Key, float]:
    return {key: max(one[key] for one in (first, second) if key in one) for key in (*first, *second)}


def as_builds(
    noise: Results | str | os.PathLike[str] | Iterable[Results | str | os.PathLike[str]],
) -> tuple[Results | str | os.PathLike[str], ...]:
    """Results of builds or their paths, where a single one may have been given as it is."""
    return (noise,) if isinstance(noise, (str, os.PathLike, Results)) else tuple(noise)


def known_noise(noise: Sequence[Results], *judged: Results) -> Noise:
    """The noise that was asked for, and that which the judged results themselves hold.

    Args:
        noise: Results of builds of the model; may be empty.
        judged: The results that are judged or compared, with ``calib validate --rebuilds`` or without.

    Raises:
        ValidationError: ``noise`` holds no two builds of one model.
    """
    found = rebuild_noise(noise) if noise else Noise()
    for results in judged:
        found = found | _recorded(results)
    return found


def rebuild_noise(rebuilds: Sequence[Results]) -> Noise:
    """How far the figures of one model differ when it is built and validated again.

    Args:
        rebuilds: Results of at least two builds, of the same model, samples and calibration; or at least one
            that was made with several builds (``calib validate --rebuilds``).

    Raises:
        ValidationError: There are fewer than two builds, or they are of different models, data or caches.
    """
    recorded = Noise()
    for results in rebuilds:
        recorded = recorded | _recorded(results)
    if len(rebuilds) < 2 and not recorded.builds:
        raise ValidationError(
            f"Rebuild noise shows in two or more results of one model; got {len(rebuilds)}. Build and "
            "validate it again, and give each results.json with --noise; or validate it with --rebuilds 3 on "
            "TensorRT."
        )
    _check_same(rebuilds)
    return recorded | _across(rebuilds) if len(rebuilds) > 1 else recorded


def _check_same(rebuilds: Sequence[Results]) -> None:
    first = rebuilds[0]
    for other in rebuilds[1:]:
        for what, mine, theirs in (
            ("models", first.model.sha256, other.model.sha256),
            ("data", first.dataset.fingerprint, other.dataset.fingerprint),
            ("calibrations", *({one.name: one.sha256 for one in r.calibrations} for r in (first, other))),
        ):
            if mine != theirs:
                raise ValidationError(f"Rebuild noise is of one model; these results are of other {what}.")


def _across(rebuilds: Sequence[Results]) -> Noise:
    """The spread over several results files."""
    values: dict[tuple[str, str], list[float]] = {}
    times: dict[tuple[str, str], list[float]] = {}
    for results in rebuilds:
        for run in results.runs:
            for name, value in figures_of(run).items():
                if value is not None and math.isfinite(value):
                    values.setdefault((run.label, name), []).append(value)
            _note_latency(times, results, run)
    count = len(rebuilds)
    return Noise(
        count,
        {key: max(found) - min(found) for key, found in values.items() if len(found) == count},
        {label: max(found) / min(found) for (label, _), found in times.items() if len(found) == count},
    )


def _note_latency(times: dict[tuple[str, str], list[float]], results: Results, run: PrecisionRun) -> None:
    latency = measured_latency(run)
    if latency is not None:
        times.setdefault((run.label, timed_device(results, run)), []).append(latency.median_ms)


def _recorded(results: Results) -> Noise:
    """The spread that results hold of builds made in their own run."""
    found = Noise()
    for record in results.rebuilds:
        found = found | Noise(record.builds, _spreads(record), _latency(record))
    return found


def _spreads(record: RebuildRecord) -> dict[tuple[str, str], float]:
    known = {
        name: [value for value in values if value is not None and math.isfinite(value)]
        for name, values in record.figures.items()
    }
    return {
        (record.run, name): max(found) - min(found)
        for name, found in known.items()
        if len(found) == record.builds
    }


def _latency(record: RebuildRecord) -> dict[str, float]:
    return {record.run: max(record.median_ms) / min(record.median_ms)} if record.median_ms else {}
