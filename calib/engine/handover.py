"""What the builder calibrates with on the implicit route: our cache, or a calibrator with data."""

from __future__ import annotations

from typing import Any

from calib.calibrators import CalibrationCache
from calib.engine.api import Api
from calib.engine.completion import find_helper_scales, read_network
from calib.engine.native import cache_calibrator
from calib.errors import CalibError, CalibrationError, first_names
from calib.graph import OnnxModel
from calib.wording import counted

__all__ = ["calibration_notes", "hand_over", "raise_failure"]


def hand_over(
    api: Api, network: Any, model: OnnxModel, cache: CalibrationCache
) -> tuple[Any, tuple[str, ...]]:
    """A calibrator that hands a cache to the builder, with rows for the network's helper layers.

    A cache from elsewhere than TensorRT has rows for ONNX tensors only. The parser makes layers of its own
    beside them, and a layer without a scale costs its neighbours their INT8. A tensor of the model without
    a row gets none: it may have been left out for a reason.

    Args:
        api: TensorRT.
        network: The parsed network.
        model: What it was parsed from.
        cache: The cache.

    Returns:
        The calibrator, and notes on rows that were added.

    Raises:
        CacheError: TensorRT has no calibrator for the cache.
    """
    names = {name for node in model.proto.graph.node for name in node.output}
    names |= {spec.name for spec in model.inputs}
    found = find_helper_scales(cache, read_network(api, network)).scales
    further = {name: scale for name, scale in found.items() if name not in names}
    if not further:
        return cache_calibrator(api, cache), ()
    completed = cache.replaced({**cache, **further})
    return cache_calibrator(api, completed), (
        f"{counted(len(further), 'row[s]')} for helper layers added: {first_names(list(further), most=3)}",
    )


def raise_failure(calibrator: Any | None) -> None:
    """Raises what a calibrator raised: TensorRT swallows it, and goes on with the batches that it had.

    Args:
        calibrator: A calibrator of ``calib.engine.native``, or another one.

    Raises:
        CalibrationError: It failed with an error that is not one of ours, which is the cause.
        CalibError: It failed with one of ours.
    """
    failure = getattr(calibrator, "failure", None)
    if failure is None:
        return
    if isinstance(failure, CalibError) or not isinstance(failure, Exception):
        raise failure
    raise CalibrationError(f"The calibrator failed during the build: {failure!r}") from failure


def calibration_notes(calibrator: Any | None) -> tuple[str, ...]:
    """How often TensorRT asked a calibrator for data; nothing where a cache took their place.

    Args:
        calibrator: A calibrator, or None.
    """
    asked = getattr(calibrator, "asked", None)
    if not asked:
        return ()
    return (f"TensorRT asked for {counted(asked, 'batch[es]')} and got {getattr(calibrator, 'used', asked)}",)
