"""The precisions of one model in PyTorch, beside ONNX Runtime's FP32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from calib.errors import UsageError
from calib.runners import PyTorchRunner
from calib.validation.naming import RunName
from calib.validation.options import Options
from calib.validation.provenance import Calibration
from calib.validation.variants import Variant

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["make"]


def make(model: OnnxModel, options: Options, calibrations: Sequence[Calibration]) -> Iterator[Variant]:
    """Makes the network's precisions, one after another.

    Args:
        model: The ONNX model that was exported from the network: it gives inputs and outputs their names.
        options: Precisions, and where the network comes from.
        calibrations: Not used: PyTorch runs no INT8 here.

    Raises:
        UsageError: The network takes other inputs.
        ModelError: The network cannot be made.
        MissingExtraError: torch is not installed.
    """
    from calib.graph import load_module

    source = options.torch
    if source is None:
        raise UsageError("The PyTorch runner needs the network, such as --torch net.py:Net.")
    module = load_module(source.module, arguments=source.arguments, weights=source.weights)
    for precision in options.precisions:
        runner = PyTorchRunner(
            module,
            precision,
            input_names=[spec.name for spec in model.inputs],
            output_names=[spec.name for spec in model.outputs],
            device=source.device,
            threads=options.threads,
            compile_module=source.compile,
        )
        compiled = ", torch.compile" if source.compile else ""
        yield Variant(
            RunName(precision, runner="pytorch"), runner, f"{source.name}{compiled}; {runner.note}."
        )
