"""How engines and their latency differ between two results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calib.validation.alignment import Pair
from calib.validation.baseline import measured_latency, timed_device
from calib.validation.qualification import EngineShift, LatencyShift
from calib.validation.results import Latency, PrecisionRun, Results

__all__ = ["engine_shifts", "latency_shifts"]

_SEED = 0
_RESAMPLES = 9999
_FEWEST = 6


def engine_shifts(pairs: Sequence[Pair]) -> tuple[EngineShift, ...]:
    """Sizes, layers, INT8 layers and nodes in another precision, of runs whose engines are known."""
    found = []
    for old, new in pairs:
        first, second = old.engine, new.engine
        if first is None or second is None:
            continue
        moved = tuple(
            (node, first.nodes[node], precision)
            for node, precision in second.nodes.items()
            if node in first.nodes and first.nodes[node] != precision
        )
        found.append(
            EngineShift(
                new.label,
                (first.engine_bytes, second.engine_bytes),
                (first.layers, second.layers),
                (first.int8_layers, second.int8_layers),
                moved,
                bool(first.nodes) and bool(second.nodes),
            )
        )
    return tuple(found)


def latency_shifts(
    old: Results, new: Results, pairs: Sequence[Pair], noise: Mapping[str, float]
) -> tuple[LatencyShift, ...]:
    """Ratio of the medians of each run that was timed, where both were timed on the same GPU.

    Args:
        old: The old results.
        new: The new ones.
        pairs: The runs that both have.
        noise: Label → slowest divided by fastest build of one model.
    """
    found = []
    for pair in pairs:
        if pair.old.latency is None or pair.new.latency is None:
            continue
        ends = pair.old.latency.median_ms, pair.new.latency.median_ms
        refusal = _refusal(old, new, pair)
        if refusal:
            found.append(LatencyShift(pair.new.label, *ends, note=refusal))
            continue
        found.append(_ratio(pair, timed_device(new, pair.new), noise.get(pair.new.label)))
    return tuple(found)


def _refusal(old: Results, new: Results, pair: Pair) -> str:
    """Why two latencies are not compared; empty where they are."""
    for when, run in (("old", pair.old), ("new", pair.new)):
        if measured_latency(run) is None:
            return f"the {when} one is not of a GPU and says nothing of TensorRT's speed"
    before, after = timed_device(old, pair.old), timed_device(new, pair.new)
    if not before or before != after:
        return f"another device: {before or 'unknown'} before, {after or 'unknown'} now"
    first, second = _timed(pair.old), _timed(pair.new)
    for what, mine, theirs in (
        ("batches of", first.batch_size, second.batch_size),
        ("CUDA graph", first.cuda_graph, second.cuda_graph),
        ("clock", first.clock, second.clock),
    ):
        if mine != theirs:
            return f"measured otherwise: {what} {mine} before, {theirs} now"
    return ""


def _timed(run: PrecisionRun) -> Latency:
    assert run.latency is not None
    return run.latency


def _ratio(pair: Pair, device: str, noise: float | None) -> LatencyShift:
    before, after = _timed(pair.old), _timed(pair.new)
    ratio = after.median_ms / before.median_ms
    note = "measured in two sessions: clocks and load may differ, which the interval does not cover"
    low, high, method = _interval(before.times_ms, after.times_ms)
    return LatencyShift(
        pair.new.label,
        before.median_ms,
        after.median_ms,
        device,
        ratio,
        low,
        high,
        method,
        noise,
        note,
        host_bound=before.host_bound or after.host_bound,
    )


def _interval(before: Sequence[float], after: Sequence[float]) -> tuple[float | None, float | None, str]:
    """The bootstrap interval of a ratio of medians of two separate measurements."""
    from scipy.stats import bootstrap

    if min(len(before), len(after)) < _FEWEST:
        return None, None, f"no interval: fewer than {_FEWEST} batches are kept"

    def ratio(first: Any, second: Any, axis: int = -1) -> Any:
        return np.median(second, axis=axis) / np.median(first, axis=axis)

    found = bootstrap(
        (np.asarray(before, np.float64), np.asarray(after, np.float64)),
        ratio,
        n_resamples=_RESAMPLES,
        batch=512,
        vectorized=True,
        paired=False,
        confidence_level=0.95,
        method="percentile",
        random_state=np.random.default_rng(_SEED),
    ).confidence_interval
    return (
        float(found.low),
        float(found.high),
        f"percentile bootstrap of both measurements, {_RESAMPLES} resamples, seed {_SEED}",
    )
