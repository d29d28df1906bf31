"""An exported model against the network it came from: the same inputs, output by output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.data import Array
from calib.errors import ModelError, require
from calib.graph.faults import plain_reason
from calib.graph.runtime import open_session, runtime_errors, session_options

if TYPE_CHECKING:
    from calib.graph.intake import OnnxModel

__all__ = ["OutputCheck", "check_outputs", "compare_output"]

# Float32 rounding of the deepest networks stays a hundred times below; another kind of interpolation, or
# tanh for erf in GELU, is above.
_RELATIVE = {"float64": 1e-4, "float32": 1e-4, "float16": 1e-2}
_ABSOLUTE = 1e-6


@dataclass(frozen=True)
class OutputCheck:
    """One output of ONNX Runtime against PyTorch's.

    Attributes:
        output: Its name.
        shape: Its sizes.
        dtype: Its type.
        max_abs: Largest absolute difference.
        reference_amax: Largest absolute value of PyTorch's output.
        limit: What ``max_abs`` must not exceed: 1e-4 · ``reference_amax`` + 1e-6 for float32 and float64,
            1e-2 · ``reference_amax`` + 1e-6 for float16, 0 for integers and truth values.
        fault: Why the outputs cannot be taken for the same; empty where they can.
    """

    output: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    reference_amax: float
    limit: float
    fault: str = ""

    @property
    def says_little(self) -> bool:
        """Whether the output is so small that any error would pass, as with weights that are not trained."""
        return self.dtype.startswith("float") and self.reference_amax <= 10 * _ABSOLUTE


def compare_output(name: str, reference: Array, got: Array) -> OutputCheck:
    """Compares one output.

    Args:
        name: Its name.
        reference: PyTorch's values.
        got: ONNX Runtime's values.

    >>> found = compare_output("y", np.float32([1, -2]), np.float32([1, -2.0001]))
    >>> round(found.max_abs, 6), found.limit, found.fault
    (0.0001, 0.000201, '')
    """
    kind = str(reference.dtype)
    if reference.shape != got.shape:
        fault = f"shape {list(got.shape)}, expected {list(reference.shape)}"
        return OutputCheck(name, reference.shape, kind, np.inf, np.inf, 0.0, fault)
    finite = np.isfinite(reference) if reference.dtype.kind == "f" else np.ones(reference.shape, bool)
    exact = np.asarray(reference, np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(np.asarray(got, np.float64) - exact)[finite]
    amax = float(np.abs(exact[finite]).max(initial=0.0))
    limit = _RELATIVE[kind] * amax + _ABSOLUTE if kind in _RELATIVE else 0.0
    worst = float(error.max(initial=0.0))
    fault = _fault(reference, got, finite, worst, limit)
    return OutputCheck(name, reference.shape, kind, worst, amax, limit, fault)


def _fault(reference: Array, got: Array, finite: Any, worst: float, limit: float) -> str:
    if str(reference.dtype) != str(got.dtype):
        return f"type {got.dtype}, expected {reference.dtype}"
    if not np.array_equal(reference[~finite], got[~finite], equal_nan=True):
        return "NaN or infinities are at other places"
    if not worst <= limit:
        return f"largest difference {worst:.3g}, allowed {limit:.3g}"
    return ""


def check_outputs(
    model: OnnxModel, feeds: Mapping[str, Array], reference: Sequence[Array], sizes: str
) -> tuple[OutputCheck, ...]:
    """Runs a model in ONNX Runtime and compares it with what PyTorch gave.

    Args:
        model: The exported model.
        feeds: The inputs that PyTorch was given.
        reference: PyTorch's outputs, in the model's order.
        sizes: What the feeds are, for messages: "images 1x3x224x224".

    Raises:
        ModelError: It does not run, or an output differs by more than its limit.
        MissingExtraError: onnxruntime is not installed.
    """
    require("onnxruntime", "onnxruntime", "Checking the exported model against PyTorch (see --no-check)")
    session = open_session(model, session_options())
    try:
        outputs = session.run([spec.name for spec in model.outputs], dict(feeds))
    except runtime_errors() as error:
        raise ModelError(
            f"{model.path.name}: the exported model fails in ONNX Runtime on {sizes}: {plain_reason(error)}"
        ) from error
    checks = tuple(
        compare_output(spec.name, expected, got)
        for spec, expected, got in zip(model.outputs, reference, outputs, strict=True)
    )
    wrong = [f"output {check.output!r}: {check.fault}" for check in checks if check.fault]
    if wrong:
        raise ModelError(
            f"The exported model does not compute what PyTorch does on {sizes}: {'; '.join(wrong)}. Nothing "
            "was written. Does forward draw random numbers (F.dropout without training=self.training) or "
            "keep state? Otherwise try another --opset; --no-check writes the model all the same."
        )
    return checks
