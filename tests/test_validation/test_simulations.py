"""INT8 engines beside the simulation of their arithmetic; the engines are stand-ins on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from networks import conv_relu_gemm, model, node, samples, save, weight

import calib
from calib.data import from_arrays
from calib.graph import OnnxModel, load_model, quantize_model
from calib.report import write_report
from calib.runners import OnnxRuntimeRunner
from calib.validation import EngineOptions, Results, engine_inspection, read_results, validate
from calib.validation import variants as all_variants
from calib.validation.naming import RunName
from calib.validation.options import Options
from calib.validation.peer_records import SimulationDifference
from calib.validation.provenance import read_calibrations
from calib.validation.simulations import simulate, simulation_sentence
from calib.validation.tasks.classification import ClassificationTask
from calib.validation.variants import Variant


class WrongRunner(OnnxRuntimeRunner):
    """An engine one of whose kernels computes something else."""

    name = "tensorrt"
    factor = 1.0

    def infer(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array * np.float32(self.factor) for name, array in super().infer(feeds).items()}


ENGINE: Any = SimpleNamespace(record=SimpleNamespace(flavour="tensorrt", tensorrt="8.6.0"))


def engines(factor: float) -> Any:
    def make(model: OnnxModel, options: Any, calibrations: Sequence[Any], feeds: Any) -> Iterator[Variant]:
        plain = WrongRunner(model, "fp32", simulated=False)
        yield Variant(RunName("fp32", runner="tensorrt"), plain, "as it is", engine=ENGINE)
        for calibration in calibrations:
            # The right one computes what the simulation does.
            quantized = quantize_model(model, calibration.cache, target="onnxruntime").model
            runner = WrongRunner(quantized, "int8", simulated=False)
            runner.factor = factor
            name = replace(calibration.run, runner="tensorrt")
            yield Variant(name, runner, "built", engine=ENGINE, scales=calibration.cache)

    return make


@pytest.mark.parametrize(
    ("flavour", "version", "chosen", "transposed"),
    [
        ("tensorrt", "8.6.0", "auto", "float"),
        ("tensorrt", "8.6.0", "int8", "int8"),
        ("tensorrt", "10.3.0", "auto", "int8"),
        ("tensorrt", "10.3.0", "float", "float"),
        ("tensorrt_rtx", "1.7.1", "auto", "int8"),
    ],
)
def test_transposed_convolutions_are_simulated_as_the_engine_has_them(
    tmp_path: Path, flavour: str, version: str, chosen: str, transposed: str
) -> None:
    proto = model(
        [node("ConvTranspose", ["x", "w"], ["u"]), node("Conv", ["u", "w"], ["y"])],
        {"x": ["n", 4, 6, 6]},
        {"y": None},
        {"w": weight(4, 4, 3, 3)},
    )
    source = load_model(save(proto, tmp_path / "net.onnx"))
    cache = tmp_path / "net.cache"
    calib.calibrate(source.path, from_arrays("random", {"x": samples(8, 4, 6, 6)}), out=cache)
    calibrations = read_calibrations([cache])
    engine: Any = SimpleNamespace(record=SimpleNamespace(flavour=flavour, tensorrt=version))
    name = replace(calibrations[0].run, runner="tensorrt")
    built = Variant(
        name, OnnxRuntimeRunner(source, "fp32"), "built", engine=engine, scales=calibrations[0].cache
    )
    options = Options(engine=EngineOptions(conv_transpose=chosen), runner="tensorrt")
    with ExitStack() as stack:
        ((simulated, _),) = simulate([built], source, calibrations, options, stack)
        pairs = simulated.quantized_tensors
    # A pair for each activation and weight.
    assert pairs == (4 if transposed == "int8" else 2)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = save(conv_relu_gemm(), tmp_path / "net.onnx")
    data = from_arrays("random", {"x": samples(48, 3, 8, 8)}, labels=[i % 5 for i in range(48)])
    cache = tmp_path / "net.cache"
    calib.calibrate(path, data, samples=16, out=cache)
    monkeypatch.setattr(
        engine_inspection, "inspect_variants", lambda variants, *rest: (None,) * len(variants)
    )

    def validated(factor: float, **options: Any) -> Results:
        monkeypatch.setattr(all_variants, "_MAKERS", {**all_variants._MAKERS, "tensorrt": engines(factor)})
        return validate(
            path,
            data,
            runner="tensorrt",
            precisions=["fp32", "int8"],
            cache=cache,
            latency_count=0,
            task="classification",
            out=tmp_path / "out",
            engine=EngineOptions(**options),
        )

    return validated


def test_an_engine_that_computes_the_same_is_not_warned_of(run: Any, tmp_path: Path) -> None:
    results = run(1.0)
    (found,) = results.simulations
    assert (found.run, found.simulation, found.output) == ("TensorRT INT8", "INT8 simulation", "y")
    assert found.verdict == "equal"
    assert found.agreement == 1.0
    assert found.engine_db == pytest.approx(found.simulation_db)
    assert not any("computes something else" in warning for warning in results.warnings)
    # The simulation is no run of its own: gates judge the engine alone.
    assert [one.label for one in results.runs] == ["FP32", "TensorRT FP32", "TensorRT INT8"]
    assert read_results(tmp_path / "out" / "results.json").simulations == results.simulations


def test_an_engine_that_computes_something_else_is_named_with_both_figures(run: Any, tmp_path: Path) -> None:
    results = run(-1.0)
    (found,) = results.simulations
    # Of the outputs' negatives the error is twice the signal: -20 log10 2 = -6.0 dB, to the INT8 error.
    assert found.engine_db == pytest.approx(-6.02, abs=0.3)
    assert found.between_db == pytest.approx(-6.02, abs=0.01)
    assert found.simulation_db is not None
    assert found.simulation_db > 20
    assert found.agreement is not None
    assert found.agreement < 0.5
    (warning,) = [text for text in results.warnings if "computes something else" in text]
    assert warning.startswith("TensorRT INT8 output 'y' has an SQNR of -6")
    assert "--keep-float" in warning
    report = write_report([results], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert report
    assert "INT8 engines beside the simulation in float of the same scales" in text


def test_answers_are_read_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    answers = ClassificationTask.answers

    def counted(self: Any, outputs: Any, batch: Any) -> Any:
        read.append(batch.ids)
        return answers(self, outputs, batch)

    monkeypatch.setattr(ClassificationTask, "answers", counted)
    run(1.0)
    # One batch of 32: FP32, two engines, and the simulation, whose answers the engine's are compared with.
    assert len(read) == 4
    run(1.0, simulation=False)
    assert len(read) == 4 + 3


def test_it_can_be_left_out(run: Any) -> None:
    assert run(1.0, simulation=False).simulations == ()


@pytest.mark.parametrize(("engine", "simulated"), [(None, 30.0), (24.1, 30.0), (50.0, 30.0), (20.0, None)])
def test_what_rounding_and_float_layers_explain_is_no_fault(
    engine: float | None, simulated: float | None
) -> None:
    found = SimulationDifference("TensorRT INT8", "INT8 simulation", "y", engine, simulated, 20.0, "differs")
    assert simulation_sentence(found) == ""
