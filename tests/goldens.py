"""What TensorRT 8.6.0 computed, as tests read it."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
from trt_distributions import scenario

DATA = Path(__file__).parent / "data"
TENSORRT = DATA / "tensorrt-8.6.0"
NETS = TENSORRT / "nets"
REAL = DATA / "real"


@lru_cache(maxsize=1)
def probe() -> dict[str, dict[str, str]]:
    """``scenario/algorithm`` → tensor → hexadecimal scale."""
    caches = json.loads((TENSORRT / "probe.json").read_text())
    return {key: dict(row.rsplit(": ", 1) for row in text.splitlines()[1:]) for key, text in caches.items()}


@lru_cache(maxsize=8)
def probe_batches(name: str) -> list[dict[str, np.ndarray]]:
    """The batches of a scenario, with every tensor that the probed network had."""
    return [_with_derived(batch) for batch in scenario(name)]


def _with_derived(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    derived = {"all": np.concatenate(list(batch.values())), "zero_const": np.zeros(1, np.float32)}
    for name, values in batch.items():
        derived[f"{name}_slice"] = values
        derived[f"{name}_relu"] = np.maximum(values, 0)
    return {**batch, **derived}


@lru_cache(maxsize=1)
def digits() -> dict[str, np.ndarray]:
    with np.load(TENSORRT / "digits32.npz") as arrays:
        return dict(arrays)


def hex_of(scale: float) -> str:
    return f"{np.float32(scale).view(np.uint32):x}"
