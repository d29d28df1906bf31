"""Adapters to TensorRT's own calibrators, and the other way: our caches handed to its builder.

The classes to derive from exist in TensorRT 8 to 10 only, so ours are made when they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from calib.calibrators import CalibrationCache, encode_version
from calib.calibrators.algorithms import ALGORITHMS
from calib.data import Batch, Dataset, Stream
from calib.engine.api import Api
from calib.engine.memory import Device
from calib.engine.native_feed import BatchSource, CacheSource, DataSource, named_batches
from calib.errors import CacheError, EngineError, UsageError
from calib.graph import FeedBuilder

__all__ = ["KINDS", "cache_calibrator", "check_kind", "native_calibrator", "set_calibration_profile"]

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "entropy": "IInt8EntropyCalibrator2",
        "minmax": "IInt8MinMaxCalibrator",
        "entropy1": "IInt8EntropyCalibrator",
        "legacy": "IInt8LegacyCalibrator",
    }
)
"""Method → class of TensorRT. entropy1 is entropy on the network as it is after fusion; legacy is percentile
with a search of TensorRT's own."""

_QUANTILE = 0.9999
_REGRESSION_CUTOFF = 1.0


def native_calibrator(
    api: Api,
    kind: str,
    data: Dataset | Stream | Iterable[Batch],
    feeds: FeedBuilder,
    device: Device,
    *,
    batch_size: int | None = None,
    cache_out: str | os.PathLike[str] | None = None,
    cache_in: str | os.PathLike[str] | CalibrationCache | None = None,
    quantile: float = _QUANTILE,
    regression_cutoff: float = _REGRESSION_CUTOFF,
) -> Any:
    """A calibrator of TensorRT, fed with our data.

    TensorRT wants batches of one shape: samples that do not fill a last one are dropped and counted.

    Args:
        api: TensorRT.
        kind: One of ``KINDS``.
        data: The samples, a reader, or batches.
        feeds: Makes the model's inputs of a batch.
        device: An open device; it must stay open during the build.
        batch_size: Samples a batch; by default 32 of a dataset, or the batches as they come.
        cache_out: Where to write the cache that TensorRT makes.
        cache_in: A cache to use in place of data, should TensorRT take it.
        quantile: For "legacy": the share of values to keep.
        regression_cutoff: For "legacy": where TensorRT's search starts.

    Returns:
        An object derived from the class of TensorRT, with ``asked`` and ``used`` (numbers of batches),
        ``samples``, ``dropped``, ``shapes`` (input → shape of every batch, for the optimization profile),
        ``failure`` (what loading raised, which TensorRT swallows), ``raise_failure()``, ``written`` (the
        cache that TensorRT made) and ``free()``.

    Raises:
        EngineError: This TensorRT has no such calibrator.
        UsageError: There is no such kind.
        CacheError: ``cache_in`` cannot be read.
    """
    check_kind(kind)
    if cache_in is not None and not isinstance(cache_in, CalibrationCache):
        cache_in = CalibrationCache.read(cache_in)
    source = DataSource(
        named_batches(data, batch_size),
        feeds,
        device,
        batch_size=batch_size or (32 if isinstance(data, Dataset) else None),
        int64=hasattr(api.trt.DataType, "INT64"),
        cache_in=cache_in,
    )
    return _derived(api, KINDS[kind], source, cache_out, (quantile, regression_cutoff))


def cache_calibrator(api: Api, cache: CalibrationCache) -> Any:
    """A calibrator without data that hands a cache over.

    Args:
        api: TensorRT.
        cache: The cache; its header decides which class of TensorRT reads it.

    Returns:
        As ``native_calibrator``. ``asked`` stays 0 where TensorRT takes the cache; where it asks for data
        instead, ``failure`` says why that may be.

    Raises:
        CacheError: TensorRT has no calibrator for the header's algorithm.
        EngineError: This TensorRT has no calibrators.
    """
    if cache.algorithm not in ALGORITHMS:
        raise CacheError(
            f"TensorRT has no calibrator that reads {cache.header}: it has {', '.join(ALGORITHMS)}. Write "
            "another header with: calib cache convert IN.cache OUT.cache --algorithm entropy"
        )
    source = CacheSource(cache, f"TensorRT {api.version}", _refused_why(api, cache))
    # The legacy calibrator takes a cache of its own quantile and cutoff alone.
    legacy = cache.legacy_settings or (_QUANTILE, _REGRESSION_CUTOFF)
    return _derived(api, ALGORITHMS[cache.algorithm], source, legacy=legacy)


def _refused_why(api: Api, cache: CalibrationCache) -> str:
    short = ".".join(map(str, api.release))
    if cache.legacy_settings is not None:
        return (
            "Its first line holds the quantile and the cutoff that it was made with, and no version: it is "
            "for the TensorRT that made it. Calibrate again, by another method."
        )
    if cache.version is not None and encode_version(cache.version) == encode_version(api.version):
        return "The header fits, so its log says why; calib cache lint --model MODEL.onnx compares the rows."
    return (
        f"It reads caches of its own version and algorithm alone, headed TRT-{encode_version(api.version)}-"
        f"{cache.algorithm}. The scales hold for the same model in any version; write another header with: "
        f"calib cache convert IN.cache OUT.cache --tensorrt {short}"
    )


def check_kind(kind: str) -> None:
    """Refuses a kind of calibrator that TensorRT does not have.

    Raises:
        UsageError: There is no such kind.
    """
    if kind not in KINDS:
        raise UsageError(f"TensorRT's own calibrators are {', '.join(KINDS)}, got {kind!r}.")


def set_calibration_profile(api: Api, config: Any, profile: Any) -> bool:
    """Says with which shapes TensorRT calibrates a network with dynamic ones.

    Args:
        api: TensorRT.
        config: The builder config.
        profile: The optimization profile; its usual shapes are those of the batches.

    Returns:
        Whether this TensorRT has such a setting.

    Raises:
        EngineError: TensorRT refuses the profile.
    """
    setter = getattr(config, "set_calibration_profile", None)
    if setter is None:
        return False
    if setter(profile) is False:
        raise EngineError(f"TensorRT {api.version} does not take the shapes of the calibration batches.")
    return True


def _derived(
    api: Api,
    name: str,
    source: BatchSource,
    cache_out: str | os.PathLike[str] | None = None,
    legacy: tuple[float, float] = (_QUANTILE, _REGRESSION_CUTOFF),
) -> Any:
    """An object of a class made from one of TensorRT's, which does as the source says."""
    native: Any = getattr(api.trt, name, None)
    if native is None:
        raise EngineError(
            f"TensorRT {api.version} has no {name}: its own calibrators ended with TensorRT 10. Calibrate "
            "with calib calibrate and build with --route explicit, which writes the scales into the model."
        )
    base: Any = _with_legacy(native, *legacy) if name.endswith("LegacyCalibrator") else native

    class Calibrator(base):  # type: ignore[misc]
        def __init__(self) -> None:
            # Needed explicitly, or the process dies when TensorRT calls.
            native.__init__(self)

        def get_batch_size(self) -> int:
            return source.batch_size

        def get_batch(self, names: list[str], *_: Any) -> list[int] | None:
            return source.give(list(names))

        def read_calibration_cache(self) -> bytes | None:
            return source.read_cache()

        def write_calibration_cache(self, cache: Any) -> None:
            source.write_cache(bytes(cache))
            _write(source, cache_out)

        def __getattr__(self, attribute: str) -> Any:
            return getattr(source, attribute)

    return Calibrator()


def _with_legacy(native: Any, quantile: float, cutoff: float) -> Any:
    """What the oldest of the calibrators asks for beside the data."""

    class Legacy(native):  # type: ignore[misc]
        def get_quantile(self) -> float:
            return quantile

        def get_regression_cutoff(self) -> float:
            return cutoff

        def read_histogram_cache(self, length: int) -> None:
            return None

        def write_histogram_cache(self, cache: Any, length: int) -> None:
            return None

    return Legacy


def _write(source: BatchSource, path: str | os.PathLike[str] | None) -> None:
    if path is None or source.written is None:
        return
    try:
        source.written.write(path)
    except Exception as error:
        source.failure = error
