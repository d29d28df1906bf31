"""The same Q/DQ model in float and by ONNX Runtime's integer kernels: a runtime's difference (A-V8)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from networks import conv_relu_gemm, samples, save

from calib.calibrators import CalibrationCache
from calib.data import from_arrays
from calib.errors import UsageError
from calib.graph import calibrate, quantize
from calib.runners import OnnxRuntimeRunner
from calib.validation import KernelDifference, Results, read_results, validate
from calib.validation.peers import kernel_sentence


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kernels")
    save(conv_relu_gemm(), made / "m.onnx")
    calibrate(made / "m.onnx", data(), out=made / "m.cache", method="minmax")
    return made


def data() -> object:
    return from_arrays("noise", {"x": samples(40, 3, 8, 8)})


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return validate(
        folder / "m.onnx",
        data(),  # type: ignore[arg-type]
        cache=folder / "m.cache",
        precisions=["int8"],
        latency_count=2,
        allow_overlap=True,
        integer_kernels=True,
        out=folder / "run",
    )


def test_both_are_shown(results: Results, folder: Path) -> None:
    assert [run.label for run in results.runs] == ["FP32", "INT8", "INT8 integer kernels"]
    simulated, integer = results.runs[1:]
    assert (simulated.simulated, integer.simulated) == (True, False)
    assert "computed in float32, the value TensorRT computes" in simulated.description
    assert "ONNX Runtime's own integer kernels on the CPU, graph optimizations on" in integer.description
    assert simulated.quantized_tensors == integer.quantized_tensors
    # Whatever arithmetic, a CPU's latency says nothing of TensorRT's.
    assert integer.latency is not None
    assert integer.latency.simulated
    assert "integer_kernels=True" in results.command
    assert read_results(folder / "run" / "results.json") == results


def test_the_difference_is_counted_in_steps_and_said_to_be_the_runtimes(
    results: Results, folder: Path
) -> None:
    """Against two sessions of ONNX Runtime that are opened here."""
    cache = CalibrationCache.read(folder / "m.cache")
    content = quantize(folder / "m.onnx", cache, target="onnxruntime").model.to_bytes()
    float_options, usual = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
    float_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    float_options.add_session_config_entry("session.disable_quant_qdq", "1")
    feeds = {"x": samples(40, 3, 8, 8)}
    first, second = (
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for options in (float_options, usual)
    )
    (found,) = results.kernels
    distance = np.abs(second.astype(np.float64) - first)
    assert (found.run, found.simulation, found.output) == ("INT8 integer kernels", "INT8", "y")
    assert found.scale == cache["y"]
    assert found.max_abs == pytest.approx(distance.max(), rel=1e-6, abs=1e-9)
    assert found.max_steps == pytest.approx(distance.max() / cache["y"], rel=1e-6, abs=1e-9)
    assert found.mean_steps == pytest.approx(distance.mean() / cache["y"], rel=1e-6, abs=1e-9)
    assert kernel_sentence(found) in results.warnings


def test_the_simulation_does_not_depend_on_it(results: Results, folder: Path) -> None:
    alone = validate(
        folder / "m.onnx",
        data(),  # type: ignore[arg-type]
        cache=folder / "m.cache",
        precisions=["int8"],
        latency_count=0,
        allow_overlap=True,
    )
    assert alone.runs[1].outputs == results.runs[1].outputs
    assert alone.kernels == ()


def test_settings_are_fixed_and_told(folder: Path) -> None:
    model = quantize(folder / "m.onnx", CalibrationCache.read(folder / "m.cache"), target="onnxruntime").model
    with (
        OnnxRuntimeRunner(model, "int8") as simulated,
        OnnxRuntimeRunner(model, "int8", integer_kernels=True) as integer,
    ):
        told = [
            (
                one.session_options["graph_optimization_level"],
                one.session_options["session.disable_quant_qdq"],
            )
            for one in (simulated, integer)
        ]
    assert told == [("ORT_DISABLE_ALL", "1"), ("ORT_ENABLE_ALL", "0")]


SENTENCES = {
    "equal": (
        KernelDifference("INT8 integer kernels", "INT8", "y", 0.5, 0.0, 0.0, 0.0, None),
        "INT8 integer kernels output 'y' equals INT8, value by value.",
    ),
    "no scale": (
        KernelDifference("INT8 integer kernels", "INT8", "y", None, 0.25, None, None, 40.0),
        "up to 0.25 from INT8 (it has no scale to count steps by): that is ONNX Runtime's integer arithmetic",
    ),
    "broken": (
        KernelDifference("INT8 integer kernels", "INT8", "y", 0.5, None, None, None, None),
        "cannot be compared with INT8: rows differ, or values are not finite.",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_sentences(case: str) -> None:
    found, said = SENTENCES[case]
    assert said in kernel_sentence(found)


@pytest.mark.parametrize(
    "options",
    [{"precisions": ["fp16"]}, {"precisions": ["fp16"], "runner": "tensorrt"}],
)
def test_it_needs_int8_on_onnx_runtime(options: dict[str, object], folder: Path) -> None:
    with pytest.raises(
        UsageError, match="--integer-kernels shows what ONNX Runtime's own INT8 kernels answer"
    ):
        validate(folder / "m.onnx", data(), integer_kernels=True, **options)  # type: ignore[arg-type]
