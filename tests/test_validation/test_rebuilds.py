"""Engines built several times: what differs by the build alone, and a smaller change that is called noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import conv_relu_gemm, samples, save
from test_report import report_results as made

from calib.data import from_arrays
from calib.errors import UsageError, ValidationError
from calib.graph import OnnxModel, load_model
from calib.runners import OnnxRuntimeRunner
from calib.validation import (
    EngineOptions,
    RebuildRecord,
    Results,
    check,
    compare,
    make_baseline,
    read_baseline,
    update_baseline,
    validate,
)
from calib.validation import variants as all_variants
from calib.validation import variants_tensorrt as engines
from calib.validation.naming import RunName
from calib.validation.noise import known_noise, rebuild_noise
from calib.validation.peers import Once
from calib.validation.variants import Variant

FACTORS = {1: 1.001, 2: 1.001 * 1.01, 3: 1.001 * 0.98}
"""Build → what its output is multiplied by."""


class BuiltRunner(OnnxRuntimeRunner):
    """An engine whose kernels round otherwise in each build."""

    name = "tensorrt"

    def __init__(self, model: OnnxModel, build: int) -> None:
        super().__init__(model, "fp16", simulated=False)
        self._build = build
        self.calls = 0

    def infer(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.calls += 1
        factor = np.float32(FACTORS[self._build])
        return {name: array * factor for name, array in super().infer(feeds).items()}

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        return 2.0 + 0.5 * self._build


RUNNERS: list[BuiltRunner] = []


def fake_engines(
    model: OnnxModel, options: Any, calibrations: Sequence[Any], feeds: Any
) -> Iterator[Variant]:
    def build(number: int) -> Variant:
        runner = BuiltRunner(load_model(model.path), number)
        RUNNERS.append(runner)
        name = RunName("fp16", runner="tensorrt", form="" if number == 1 else f"build {number}")
        said = ["of all builds", *(["of the third"] if number == 3 else [])]
        warnings = tuple(f"{name.label}: {text}" for text in said)
        return Variant(name, runner, f"build {number}", warnings=warnings, again=build)

    yield build(1)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("built")
    path = save(conv_relu_gemm(), folder / "m.onnx")
    data = from_arrays("noise", {"x": samples(24, 3, 8, 8)})
    RUNNERS.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_variants, "_MAKERS", {**all_variants._MAKERS, "tensorrt": fake_engines})
        return validate(
            path,
            data,
            runner="tensorrt",
            precisions=["fp16"],
            batch_size=8,
            latency_count=6,
            engine=EngineOptions(rebuilds=3),
        )


class TestValidation:
    def test_builds_are_no_runs_of_their_own(self, built: Results) -> None:
        assert [run.label for run in built.runs] == ["FP32", "TensorRT FP16"]
        assert built.command.endswith("engine=EngineOptions(rebuilds=3))  # dataset: noise")

    def test_what_differs_between_the_builds(self, built: Results) -> None:
        (record,) = built.rebuilds
        assert (record.run, record.builds) == ("TensorRT FP16", 3)
        assert record.median_ms == (2.5, 3.0, 3.5)
        output = built.runs[1].outputs[0].output
        # The second build is 1 % off the first, 20·log10(100) dB; the third 2 %, 20·log10(50).
        ((second,), (third,)) = record.between
        assert (second.output, second.verdict) == (output, "differs")
        assert second.sqnr_db == pytest.approx(40.0, abs=1e-3)
        assert third.sqnr_db == pytest.approx(20 * np.log10(50), abs=1e-3)
        # Against FP32 each is off by its factor: 20·log10(1 / 0.001), / 0.01101 and / 0.01902.
        figures = record.figures[f"SQNR of {output}"]
        assert figures == pytest.approx([60.0, 39.164, 34.416], abs=0.01)
        assert figures[0] == built.runs[1].outputs[0].sqnr_db

    def test_nothing_is_run_twice(self, built: Results) -> None:
        # 3 batches each; time_ms of the fake runs nothing.
        assert [runner.calls for runner in RUNNERS] == [3, 3, 3]

    def test_what_one_build_alone_is_warned_of(self, built: Results) -> None:
        """A wrong build makes the builds differ, and is no noise."""
        said = [text for text in built.warnings if "of all builds" in text or "of the third" in text]
        assert said == ["TensorRT FP16: of all builds", "TensorRT FP16 build 3: of the third"]

    def test_the_noise_of_one_run(self, built: Results) -> None:
        (record,) = built.rebuilds
        name = next(iter(record.figures))
        values = [value for value in record.figures[name] if value is not None]
        noise = known_noise([], built)
        assert noise.builds == 3
        assert noise.spreads["TensorRT FP16", name] == pytest.approx(max(values) - min(values))
        assert noise.latency == {"TensorRT FP16": 3.5 / 2.5}
        assert rebuild_noise([built]) == noise

    def test_results_are_read_back(self, built: Results, tmp_path: Path) -> None:
        assert Results.from_json(built.to_json()) == built

    def test_refusals(self) -> None:
        for number in (0, 21):
            with pytest.raises(UsageError, match=f"--rebuilds is the number of builds .* got {number}"):
                EngineOptions(rebuilds=number)
        with pytest.raises(
            UsageError, match="--rebuilds 3 is for --runner tensorrt, got --runner onnxruntime"
        ):
            validate("m.onnx", "digits", precisions=["fp16"], engine=EngineOptions(rebuilds=3))


def test_an_engine_is_built_again_without_kept_timings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []

    class Runner:
        note = "engine"
        name = "tensorrt"

        def __init__(self, engine: Any, precision: str, *, cuda_graph: bool) -> None:
            pass

    def build(model: Any, **options: Any) -> Any:
        asked.append(options)
        fields = {"route": "float", "level": None, "from_cache": False, "build_seconds": 1.0}
        record = type("Record", (), {**fields, "notes": (), "warnings": ()})()
        return type("Engine", (), {"record": record})()

    monkeypatch.setattr("calib.engine.build", build, raising=False)
    monkeypatch.setattr("calib.runners.TensorRTRunner", Runner, raising=False)
    chosen = EngineOptions(timing_cache=tmp_path, engine_cache=tmp_path, level=2)
    first = engines._variant(None, RunName("fp16", runner="tensorrt"), chosen, ("x:1x3",), {})  # type: ignore[arg-type]
    assert first.again is not None
    second = first.again(2)
    assert (first.name.label, second.name.label) == ("TensorRT FP16", "TensorRT FP16 build 2")
    assert [one["timing_cache"] for one in asked] == [tmp_path, None]
    assert [one["engine_cache"] for one in asked] == [tmp_path, None]
    assert [one["level"] for one in asked] == [2, 2]


def noisy(results: Results, spread: float, builds: int = 3) -> Results:
    """Results of INT8 whose builds differ by so much in top-1."""
    int8 = next(run for run in results.runs if run.label == "INT8")
    value = int8.metrics[0].value
    assert value is not None
    figures = {"top1": (value, value - spread, value - spread / 2)}
    return replace(results, rebuilds=(RebuildRecord("INT8", builds, figures, ()),))


class TestGates:
    def test_the_noise_that_results_hold_calms_a_gate(self) -> None:
        old = made.classifier()
        int8 = old.runs[2]
        fewer = tuple((label + 1) % 10 if i < 20 else label for i, label in enumerate(old.labels or ()))
        changed = replace(int8, predictions=fewer, metrics=int8.metrics[:1])
        new = made.restated(replace(old, runs=(*old.runs[:2], changed)))
        # 347 → 340 right: 1.94 points fewer, with 0.1 allowed.
        strict = {"baseline": make_baseline(old), "max_drop": "0.1%", "precisions": ["int8"], "alpha": 0.4}
        assert check(new, **strict).verdict == "fail"
        calm = check(noisy(new, 0.02), **strict)
        assert calm.verdict == "undecided"
        (gate,) = (one for one in calm.outcomes if one.gate == "max_drop")
        assert gate.note.endswith("within the noise of 3 builds, which differ by up to 2 points")
        assert check(noisy(new, 0.01), **strict).verdict == "fail"

    def test_a_baseline_keeps_the_noise(self, tmp_path: Path) -> None:
        update_baseline(noisy(made.classifier(), 0.02), tmp_path / "base.json")
        stored = read_baseline(tmp_path / "base.json")
        run = stored.runs["INT8"]
        assert run.metrics["top1"].noise == pytest.approx(0.02)
        assert (run.builds, stored.runs["FP32"].builds) == (3, 3)
        assert '"builds"' not in make_baseline(made.classifier()).to_json()

    def test_latency_within_the_noise_of_the_builds(self) -> None:
        old = made.gpu()
        record = RebuildRecord("INT8", 3, {}, (), median_ms=(5.0, 5.2, 5.5))
        int8 = old.runs[2]
        assert int8.latency is not None
        slower = replace(int8, latency=replace(int8.latency, median_ms=5.4))
        new = replace(old, runs=(*old.runs[:2], slower))
        gate = {"baseline": old, "against": "baseline", "max_latency_ratio": 1.02, "precisions": ["int8"]}
        assert check(new, **gate).verdict == "fail"  # 5.4 / 5
        report = check(replace(new, rebuilds=(record,)), **gate)
        assert report.verdict == "undecided"
        assert "within the noise of 3 builds, which differ by up to 1.1 times" in report.outcomes[-1].note

    def test_one_file_is_no_noise_unless_it_holds_builds(self) -> None:
        with pytest.raises(ValidationError, match="or validate it with --rebuilds 3"):
            rebuild_noise([made.classifier()])
        assert rebuild_noise([noisy(made.classifier(), 0.02)]).builds == 3

    def test_a_comparison_calls_it_noise(self) -> None:
        old, int8 = made.classifier(), made.classifier().runs[2]
        metric = replace(int8.metrics[0], value=340 / 360, successes=340)
        new = replace(old, runs=(*old.runs[:2], replace(int8, metrics=(metric, *int8.metrics[1:]))))
        status = {
            spread: next(
                one.status
                for one in compare(noisy(old, spread), new).shifts
                if (one.run, one.figure) == ("INT8", "top1")
            )
            for spread in (0.02, 0.01)
        }
        assert status == {0.02: "within noise", 0.01: "not significant"}


def test_a_batch_is_answered_once() -> None:
    class Counting:
        output_names = ("y",)
        calls = 0

        def infer(self, feeds: Any) -> dict[str, np.ndarray]:
            self.calls += 1
            return {"y": np.full(1, self.calls)}

    inner = Counting()
    once, feeds, others = Once(inner), {"x": np.zeros(1)}, {"x": np.zeros(1)}
    assert once.output_names == ("y",)
    answers = [once.infer(feeds), once.infer(feeds), once.infer(others), once.infer(feeds)]
    assert [int(one["y"][0]) for one in answers] == [1, 1, 2, 3]
