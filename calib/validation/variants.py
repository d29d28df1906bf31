"""The runs of a validation: the baseline first, then the precisions on the runner that was chosen.

Each runner has a module ``variants_<runner>`` with one function ``make(model, options, calibrations)``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calib.runners import RecordedRunner
from calib.validation.engine_shapes import Feeds
from calib.validation.naming import RunName
from calib.validation.options import Options
from calib.validation.provenance import Calibration

if TYPE_CHECKING:
    from calib.engine import Engine
    from calib.graph import OnnxModel

__all__ = ["Variant", "make_variants"]

_NO_REFERENCE = (
    "onnxruntime is not installed here: the baseline is {label}, so that errors are against it and not "
    "against ONNX Runtime's FP32. Install it with: pip install 'int8-calib[onnxruntime]'"
)


@dataclass(frozen=True)
class Variant:
    """A model in one precision on one runner.

    Attributes:
        name: What the run is called.
        runner: Runs it.
        description: How the precision was made.
        quantized_tensors: Number of Q/DQ pairs; None for FP32 and FP16.
        simulated_latency: Whether its latency says nothing of the speed on the runner's own hardware.
        warnings: What a reader must know of it.
        engine: The TensorRT engine that runs; None on other runners.
        scales: The calibration that the run has its ranges from; None for FP32 and FP16.
        again: Builds the same engine once more, without kept timings; None on other runners.
        simulation: Label of the run that simulates in float what this one computes in integers.
    """

    name: RunName
    runner: RecordedRunner
    description: str
    quantized_tensors: int | None = None
    simulated_latency: bool = False
    warnings: tuple[str, ...] = ()
    engine: Engine | None = None
    scales: Mapping[str, float] | None = None
    again: Callable[[int], Variant] | None = None
    simulation: str = ""

    def warned_of(self, others: Sequence[Variant]) -> Variant:
        """The run with what further builds of its engine are warned of, and it is not: that one is wrong.

        Args:
            others: The builds.
        """
        known = set(self._without_label())
        more = [
            warning
            for one in others
            for warning, text in zip(one.warnings, one._without_label(), strict=True)
            if text not in known
        ]
        return replace(self, warnings=(*self.warnings, *more))

    def _without_label(self) -> list[str]:
        return [warning.removeprefix(f"{self.name.label}: ") for warning in self.warnings]


def make_variants(
    model: OnnxModel, options: Options, calibrations: Sequence[Calibration], feeds: Feeds | None = None
) -> Iterator[Variant]:
    """Makes the runs of a validation, one after another, and opens their runners.

    The first one is the baseline: the model in FP32 on ONNX Runtime, whatever the runner. Where
    onnxruntime is not installed it is the runner's own FP32, with a warning.

    Args:
        model: The FP32 model.
        options: Precisions, runner and what they need.
        calibrations: The scales for "int8", which is made once with each.
        feeds: Makes every batch; read where engines are built for shapes that only the data tell.

    Raises:
        UsageError: "int8" without scales.
        ModelError: The model cannot be converted or run.
        MissingExtraError: The runner's software is not installed.
    """
    own = _MAKERS[options.runner](model, options, calibrations, feeds)
    if options.runner == "onnxruntime":
        yield from own
        return
    if importlib.util.find_spec("onnxruntime") is not None:
        from calib.validation.variants_onnxruntime import make_reference

        yield make_reference(model, options)
        yield from own
        return
    # Precisions begin with FP32, so that the first of the runner's own can be the baseline.
    baseline = next(own)
    note = _NO_REFERENCE.format(label=baseline.name.label)
    yield replace(baseline, warnings=(note, *baseline.warnings))
    yield from own


def _onnxruntime(
    model: OnnxModel, options: Options, calibrations: Sequence[Calibration], _: Feeds | None
) -> Iterator[Variant]:
    from calib.validation import variants_onnxruntime

    return variants_onnxruntime.make(model, options, calibrations)


def _pytorch(
    model: OnnxModel, options: Options, calibrations: Sequence[Calibration], _: Feeds | None
) -> Iterator[Variant]:
    from calib.validation import variants_pytorch

    return variants_pytorch.make(model, options, calibrations)


def _tensorrt(
    model: OnnxModel, options: Options, calibrations: Sequence[Calibration], feeds: Feeds | None
) -> Iterator[Variant]:
    from calib.validation import variants_tensorrt

    return variants_tensorrt.make(model, options, calibrations, feeds)


_Maker = Callable[["OnnxModel", Options, Sequence[Calibration], "Feeds | None"], Iterator[Variant]]

_MAKERS: Mapping[str, _Maker] = {
    "onnxruntime": _onnxruntime,
    "pytorch": _pytorch,
    "tensorrt": _tensorrt,
}
