"""The whole run: real models, real caches, recipes on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goldens import NETS, digits
from networks import conv_relu_gemm, model, node, samples, save, weight

from calib.calibrators import CalibrationCache, sidecar_path
from calib.data import Dataset, from_arrays, load_recipe
from calib.errors import (
    CacheError,
    DatasetError,
    ModelError,
    OutputError,
    UsageError,
    ValidationError,
)
from calib.graph import calibrate
from calib.validation import (
    EngineOptions,
    PrecisionRun,
    Results,
    check_data,
    decompose,
    read_results,
    validate,
)
from calib.validation.options import ordered_precisions

QUICK: dict[str, Any] = {"latency_count": 3, "latency_seconds": 5.0}
COUNT = 40


def labels_of(images: np.ndarray, path: Path) -> np.ndarray:
    """The model's own answers, so that FP32 is always right."""
    import onnxruntime as ort

    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": images})[0]).argmax(axis=1)


def write_recipe(folder: Path, *, scale: float = 1.0, task: str | None = "classification") -> Path:
    path = folder / "data.yaml"
    lines = [
        "schema: 1",
        "name: noise",
        f"task: {task}" if task else "description: no task",
        "source: {kind: arrays, path: data.npz, inputs: {x: x}, labels: labels}",
        f"preprocess: {{scale: {scale}}}",
        "calibration: {samples: 12, seed: 3}",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its data as a recipe, and a cache made of them."""
    folder = tmp_path_factory.mktemp("made")
    save(conv_relu_gemm(), folder / "net.onnx")
    images = samples(COUNT, 3, 8, 8, seed=9)
    np.savez(folder / "data.npz", x=images, labels=labels_of(images, folder / "net.onnx"))
    calibrate(folder / "net.onnx", write_recipe(folder), batch_size=4, out=folder / "net.cache")
    return folder


@pytest.fixture
def work(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "work"))


def run(work: Path, **options: Any) -> Results:
    settings = {"cache": work / "net.cache", "batch_size": 8, **QUICK, **options}
    return validate(work / "net.onnx", work / "data.yaml", **settings)


def precision(results: Results, name: str) -> PrecisionRun:
    return next(run for run in results.runs if run.precision == name)


class TestAgainstTensorRT:
    @pytest.mark.parametrize(("net", "count"), [("plain", 64), ("unet", 8)])
    def test_the_simulation_is_as_far_from_fp32_as_the_engine(self, net: str, count: int) -> None:
        """SQNR of TensorRT 8.6's INT8 engine against its FP32 engine, same cache, same samples."""
        dataset = from_arrays("digits32", {"x": digits()["xte"][:count]})
        cache = NETS / f"{net}.entropy2.cache"
        results = validate(NETS / f"{net}.onnx", dataset, cache=cache, latency_count=0)
        fp32, int8 = (np.load(NETS / f"{net}.{kind}.npy").astype(np.float64) for kind in ("fp32", "entropy2"))
        engine = 10 * np.log10(np.sum(fp32**2) / np.sum((int8 - fp32) ** 2))
        (errors,) = precision(results, "int8").outputs
        assert errors.sqnr_db == pytest.approx(engine, abs=0.5)
        assert errors.elements == fp32.size

    def test_a_cache_of_tensorrt_has_no_provenance(self) -> None:
        dataset = from_arrays("digits32", {"x": digits()["xte"][:4]})
        results = validate(NETS / "plain.onnx", dataset, cache=NETS / "plain.entropy2.cache", latency_count=0)
        assert "has no sidecar (plain.entropy2.cache.json)" in results.warnings[0]
        (record,) = results.calibrations
        assert (record.name, record.header) == ("entropy", "TRT-8600-EntropyCalibration2")
        assert (record.samples, record.dataset, record.overlap) == (None, None, None)


class TestResults:
    def test_everything_is_recorded(self, work: Path) -> None:
        results = run(work, out=work / "out")
        assert [(r.precision, r.role, r.simulated) for r in results.runs] == [
            ("fp32", "baseline", False),
            ("fp16", "candidate", True),
            ("int8", "candidate", True),
        ]
        assert results.task == "classification"
        assert results.model.name == "net.onnx"
        assert results.model.inputs == {"x": "float32 [batch, 3, 8, 8]"}
        assert results.model.nodes == 8
        # w1 4·3·3·3, b1 4, w2 6·4·3·3, w3 5·6, b3 5
        assert results.model.parameters == 108 + 4 + 216 + 30 + 5
        assert results.dataset.name == "noise"
        assert results.dataset.samples == len(results.sample_ids) == COUNT - 12
        assert results.dataset.preprocess["scale"] == 1.0
        (record,) = results.calibrations
        assert (record.name, record.samples, record.seed, record.overlap) == ("entropy", 12, 3, 0)
        assert [(r.label, r.calibration) for r in results.runs] == [
            ("FP32", ""),
            ("FP16", ""),
            ("INT8", "entropy"),
        ]
        assert results.environment.session_options["session.disable_quant_qdq"] == "1"
        assert read_results(work / "out" / "results.json") == results

    def test_accuracy_agreement_and_errors(self, work: Path) -> None:
        results = run(work)
        fp32, int8 = precision(results, "fp32"), precision(results, "int8")
        top1, macro_f1 = fp32.metrics  # five classes: no top-5
        assert macro_f1.name == "macro_f1"
        assert (top1.name, top1.value, top1.count, top1.drop) == ("top1", 1.0, 28, None)
        assert fp32.predictions == results.labels
        assert int8.predictions is not None
        assert results.labels is not None
        right = sum(a == b for a, b in zip(int8.predictions, results.labels, strict=True))
        metrics = {metric.name: metric for metric in int8.metrics}
        assert metrics["top1"].successes == metrics["top1_agreement"].successes == right
        assert metrics["top1"].drop == pytest.approx(1 - right / 28)
        assert fp32.outputs == ()
        assert [errors.output for errors in int8.outputs] == ["y"]
        fp16_sqnr = precision(results, "fp16").outputs[0].sqnr_db
        int8_sqnr = int8.outputs[0].sqnr_db
        assert fp16_sqnr is not None
        assert int8_sqnr is not None
        assert fp16_sqnr > 50 > int8_sqnr > 15
        # Q/DQ on x, p1 and f; weights w1, w2 and w3.
        assert int8.quantized_tensors == 7
        assert (fp32.quantized_tensors, precision(results, "fp16").quantized_tensors) == (None, None)

    def test_latency_is_a_simulation(self, work: Path) -> None:
        results = run(work, latency_batch=2)
        for found in results.runs:
            assert found.latency is not None
            assert (found.latency.count, found.latency.batch_size) == (3, 2)
            assert found.latency.simulated
            assert found.latency.throughput_per_s == pytest.approx(2000 / found.latency.median_ms)
        assert results.warnings[-1].startswith("Latency is of a CPU simulation")

    def test_the_batch_size_does_not_change_a_figure(self, work: Path) -> None:
        one, many = run(work, batch_size=1), run(work, batch_size=64)
        for left, right in zip(one.runs, many.runs, strict=True):
            assert left.predictions == right.predictions
            assert left.metrics == right.metrics
            for mine, other in zip(left.outputs, right.outputs, strict=True):
                assert mine.sqnr_db == pytest.approx(other.sqnr_db, abs=1e-2)

    def test_fp32_alone_needs_no_cache(self, work: Path) -> None:
        results = run(work, precisions=["fp32"], cache=None, latency_count=0)
        assert [found.precision for found in results.runs] == ["fp32"]
        assert (results.calibrations, results.worst, results.warnings) == ((), (), ())
        assert results.runs[0].latency is None

    def test_fp32_is_run_though_not_asked_for(self, work: Path) -> None:
        results = run(work, precisions=["int8"], latency_count=0)
        assert [found.precision for found in results.runs] == ["fp32", "int8"]

    def test_no_task_no_accuracy(self, work: Path) -> None:
        write_recipe(work, task=None)
        results = run(work, precisions=["fp32", "int8"], latency_count=0)
        assert (results.task, results.labels) == (None, None)
        assert all(found.metrics == () and found.predictions is None for found in results.runs)
        assert results.worst[0].baseline_class is None

    def test_keep_float_leaves_layers_out(self, work: Path) -> None:
        results = run(work, precisions=["int8"], keep_float=["conv1"], latency_count=0)
        assert precision(results, "int8").quantized_tensors == 5
        assert any("INT8 leaves 1 quantizable node in float: conv1" in w for w in results.warnings)

    def test_the_command_repeats_the_run(self, work: Path) -> None:
        results = run(work, precisions=["fp32", "int8"], allow_overlap=True, keep_float=["conv1"])
        assert results.command == (
            f"calib validate {work}/net.onnx --data {work}/data.yaml --precisions fp32,int8 "
            f"--cache {work}/net.cache --batch-size 8 --latency-count 3 --latency-seconds 5.0 "
            "--keep-float conv1 --allow-overlap"
        )

    def test_workers_change_nothing_but_the_command(self, work: Path) -> None:
        plain = run(work, precisions=["fp32"], latency_count=0)
        read = run(work, precisions=["fp32"], latency_count=0, workers=2)
        assert "--workers 2" in read.command
        assert read.runs[0].metrics == plain.runs[0].metrics
        assert read.dataset == plain.dataset

    def test_a_dataset_from_python(self, work: Path) -> None:
        dataset = from_arrays("mine", {"x": samples(9, 3, 8, 8)})
        results = validate(
            work / "net.onnx", dataset, cache=work / "net.cache", samples=5, seed=4, latency_count=0
        )
        assert (results.dataset.recipe, results.dataset.samples) == ("", 5)
        assert results.command.endswith("samples=5, latency_count=0, seed=4)  # dataset: mine")
        again = validate(
            work / "net.onnx", dataset, cache=work / "net.cache", samples=5, seed=4, latency_count=0
        )
        assert again.sample_ids == results.sample_ids

    def test_a_recipe_object_is_as_good_as_its_path(self, work: Path) -> None:
        recipe = load_recipe(work / "data.yaml")
        results = validate(work / "net.onnx", recipe, precisions=["fp32"], latency_count=0)
        assert results.dataset.recipe == str(work / "data.yaml")


class TestOverlap:
    def test_calibration_samples_are_left_out(self, work: Path) -> None:
        results = run(work, latency_count=0)
        assert results.dataset.overlap_with_calibration == 0
        assert results.dataset.samples == 28

    def test_those_of_the_cache_too(self, work: Path) -> None:
        calibrate(work / "net.onnx", work / "data.yaml", samples=30, seed=8, out=work / "net.cache")
        chosen = set(calibrated_ids(work))
        results = run(work, latency_count=0)
        assert len(chosen) == 30
        assert not chosen & set(results.sample_ids)

    def test_allowed_overlap_is_counted_and_warned_of(self, work: Path) -> None:
        results = run(work, allow_overlap=True, latency_count=0)
        assert (results.dataset.samples, results.dataset.overlap_with_calibration) == (40, 12)
        assert any(
            f"12 of 40 validation samples were calibrated on for {work}/net.cache: the accuracy of INT8 " in w
            for w in results.warnings
        )

    def test_a_dataset_that_was_calibrated_on_whole(self, work: Path) -> None:
        dataset = from_arrays("mine", {"x": samples(8, 3, 8, 8)})
        calibrate(work / "net.onnx", dataset, out=work / "net.cache")
        with pytest.raises(DatasetError, match="the calibration names all 8 ids of dataset 'mine'"):
            validate(work / "net.onnx", dataset, cache=work / "net.cache")
        results = validate(
            work / "net.onnx", dataset, cache=work / "net.cache", allow_overlap=True, latency_count=0
        )
        assert results.dataset.overlap_with_calibration == 8


def calibrated_ids(work: Path) -> Sequence[str]:
    from calib.calibrators import read_sidecar

    sidecar = read_sidecar(work / "net.cache")
    assert sidecar is not None
    return sidecar.sample_ids


class TestProvenance:
    def warnings(self, work: Path) -> str:
        return "\n".join(run(work, precisions=["int8"], latency_count=0).warnings)

    def test_nothing_changed(self, work: Path) -> None:
        assert self.warnings(work) == ""

    def test_other_preprocessing(self, work: Path) -> None:
        write_recipe(work, scale=0.00392)
        text = self.warnings(work)
        assert f"Preprocessing differs from that which {work}/net.cache was made with" in text
        assert "scale: 1.0 → 0.00392" in text

    def test_other_data(self, work: Path) -> None:
        with np.load(work / "data.npz") as arrays:
            kept = dict(arrays)
        np.savez(work / "data.npz", x=kept["x"] + np.float32(0.01), labels=kept["labels"])
        assert "The calibration data of" in self.warnings(work)

    def test_another_model(self, work: Path) -> None:
        proto = conv_relu_gemm()
        proto.producer_name = "another exporter"
        save(proto, work / "net.onnx")
        assert "the graph of" in self.warnings(work)

    def test_an_edited_cache(self, work: Path) -> None:
        cache = CalibrationCache.read(work / "net.cache")
        CalibrationCache({name: 2 * scale for name, scale in cache.items()}).write(work / "net.cache")
        assert "was changed after its calibration" in self.warnings(work)


class TestBrokenModels:
    def broken(self, folder: Path) -> Path:
        """y = x / (x - x): NaN or infinite everywhere, beside a healthy output z."""
        nodes = [
            node("Gemm", ["x", "w"], ["z"], name="fc"),
            node("Sub", ["z", "z"], ["zero"], name="sub"),
            node("Div", ["z", "zero"], ["y"], name="div"),
        ]
        proto = model(nodes, {"x": ["N", 4]}, {"y": ["N", 3], "z": ["N", 3]}, {"w": weight(4, 3)})
        return save(proto, folder / "broken.onnx")

    def test_fp32_is_said_to_be_broken_first(self, tmp_path: Path) -> None:
        path = self.broken(tmp_path)
        CalibrationCache({"x": 0.02}).write(tmp_path / "broken.cache")
        dataset = from_arrays("d", {"x": samples(5, 4)})
        results = validate(path, dataset, cache=tmp_path / "broken.cache", out=tmp_path, latency_count=0)
        assert results.warnings[0].startswith(
            "The FP32 model is already broken: 15 values of output 'y' are NaN or infinite, first at "
            "sample d: x[0]"
        )
        errors = {found.output: found for found in precision(results, "int8").outputs}
        assert errors["y"].verdict == "both not finite"
        assert (errors["y"].sqnr_db, errors["y"].reference_non_finite) == (None, 15)
        assert errors["z"].verdict == "differs"
        json.loads((tmp_path / "results.json").read_text(), parse_constant=refuse)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


class TestFixedBatch:
    def fixed(self, folder: Path) -> Path:
        proto = conv_relu_gemm()
        for info in (proto.graph.input[0], proto.graph.output[0]):
            info.type.tensor_type.shape.dim[0].dim_value = 8
        return save(proto, folder / "fixed.onnx")

    def test_its_batch_size_is_used_and_the_last_batch_filled(self, work: Path) -> None:
        free = run(work, precisions=["int8"], latency_count=0)
        fixed = validate(
            self.fixed(work), work / "data.yaml", precisions=["int8"], cache=work / "net.cache", **QUICK
        )
        # 28 samples: three batches of 8, and one of 4 with 4 repeats.
        assert fixed.dataset.samples == 28
        (note,) = [note for note in fixed.dataset.notes if "insists" in note]
        assert note == (
            "The model insists on batches of 8, which was used throughout; "
            "the last batch was filled up with 4 repeats, not counted."
        )
        mine, other = precision(fixed, "int8"), precision(free, "int8")
        assert mine.predictions == other.predictions
        assert mine.outputs[0].elements == other.outputs[0].elements == 28 * 5
        assert mine.latency is not None
        assert mine.latency.batch_size == 8


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "error", "match"),
        [
            ({"precisions": ["fp32", "int4"]}, UsageError, r"Unknown precision 'int4'\. Did you mean 'int8'"),
            ({"precisions": ["FP16"]}, UsageError, r"Unknown precision 'FP16'\. Did you mean 'fp16'"),
            ({"precisions": []}, UsageError, r"No precision given\. Choose from fp32, fp16, int8"),
            (
                {"runner": "onnx-runtime"},
                UsageError,
                r"Unknown runner 'onnx-runtime'\. Did you mean 'onnxruntime'",
            ),
            ({"engine": EngineOptions(level=3)}, UsageError, "--level 3 is for --runner tensorrt, got"),
            ({"runner": "pytorch"}, UsageError, "--runner pytorch needs the network .*--torch net.py:Net"),
            ({"batch_size": 0}, UsageError, "Batch size must be at least 1, got 0"),
            ({"samples": 0}, UsageError, "Samples must be at least 1, got 0"),
            ({"samples": 29}, UsageError, "29 validation samples are wanted, .* has 28"),
            ({"latency_batch": 0}, UsageError, "Latency needs a batch size"),
            ({"threads": 0}, UsageError, "Threads must be at least 1, got 0"),
            ({"seed": 1}, UsageError, "A recipe has its own seed"),
            ({"scores": "logits"}, UsageError, "no output 'logits'"),
            ({"keep_float": ["nothing"]}, UsageError, "nothing"),
            ({"cache": CalibrationCache({"x": 0.5})}, UsageError, "write the cache, and give its path"),
            ({"cache": "missing.cache"}, CacheError, "missing.cache: no such file"),
        ],
    )
    def test_options_that_cannot_be_meant_write_nothing(
        self, work: Path, options: dict[str, Any], error: type[Exception], match: str
    ) -> None:
        with pytest.raises(error, match=match):
            run(work, out=work / "out", **options)
        assert not (work / "out").exists()

    @pytest.mark.parametrize("workers", [-1, 257])
    def test_workers_out_of_range(self, work: Path, workers: int) -> None:
        with pytest.raises(UsageError, match=f"--workers must be from 0 to 256, got {workers}"):
            run(work, precisions=["fp32"], workers=workers)

    def test_int8_without_a_cache_gives_the_commands(self, work: Path) -> None:
        with pytest.raises(UsageError) as caught:
            run(work, cache=None)
        text = str(caught.value)
        net, recipe = work / "net.onnx", work / "data.yaml"
        assert f"calib calibrate {net} --data {recipe} --out {work / 'net.cache'}" in text
        assert f"calib validate {net} --data {recipe} --cache {work / 'net.cache'}" in text
        assert "--precisions fp32,fp16" in text

    @pytest.mark.parametrize("reader", [[{"x": np.zeros((2, 3))}], np.zeros((2, 3)), None])
    def test_what_calibrates_but_is_no_dataset_is_refused(self, work: Path, reader: Any) -> None:
        net, message = work / "net.onnx", r"is neither a recipe nor a dataset.*calib\.data\.from_arrays"
        with pytest.raises(DatasetError, match=message):
            validate(net, reader, precisions=["fp32"])
        with pytest.raises(DatasetError, match=message):
            decompose(net, work / "net.cache", reader)
        with pytest.raises(DatasetError, match=message):
            check_data(reader, net)

    def test_data_is_looked_at_before_the_model(self, work: Path) -> None:
        with pytest.raises(DatasetError, match="No such recipe"):
            validate(work / "missing.onnx", work / "missing.yaml", precisions=["fp32"])
        with pytest.raises(ModelError, match=r"No such model: .*missing\.onnx"):
            validate(work / "missing.onnx", work / "data.yaml", precisions=["fp32"])

    def test_labels_of_another_model(self, work: Path) -> None:
        with np.load(work / "data.npz") as arrays:
            kept = dict(arrays)
        np.savez(work / "data.npz", x=kept["x"], labels=kept["labels"] + 5)
        with pytest.raises(ValidationError, match=r"labels from \d to \d+, but output 'y' has 5 scores"):
            run(work, out=work / "out")
        assert not (work / "out").exists()

    def test_a_results_folder_that_is_a_file(self, work: Path) -> None:
        (work / "out").write_text("in the way")
        with pytest.raises(OutputError, match="is a file, not a folder"):
            run(work, out=work / "out")

    def test_a_sample_with_a_nan_is_named(self, work: Path) -> None:
        images = samples(6, 3, 8, 8)
        images[4, 0, 0, 0] = np.nan
        dataset: Dataset = from_arrays("mine", {"x": images})
        with pytest.raises(DatasetError, match=r"Sample mine: x\[4\] .* 1 NaN"):
            validate(work / "net.onnx", dataset, precisions=["fp32"])

    def test_a_damaged_sidecar(self, work: Path) -> None:
        sidecar_path(work / "net.cache").write_text("{")
        with pytest.raises(CacheError, match="is not the sidecar"):
            run(work)

    @pytest.mark.parametrize("scores", ["", "logits"])
    def test_scores_that_are_no_output_of_a_dataset_from_python(self, work: Path, scores: str) -> None:
        dataset = from_arrays("two", {"x": samples(2, 3, 8, 8)}, [0, 1])
        with pytest.raises(UsageError, match=f"no output '{scores}'"):
            validate(work / "net.onnx", dataset, precisions=["fp32"], scores=scores)

    def test_a_sidecar_of_another_schema(self, work: Path) -> None:
        sidecar = sidecar_path(work / "net.cache")
        sidecar.write_text(sidecar.read_text().replace('"schema": 1', '"schema": 2'))
        with pytest.raises(CacheError, match=r"net\.cache\.json has schema 2, this calib reads 1"):
            run(work)


def test_precisions_keep_their_order_after_fp32() -> None:
    assert ordered_precisions(["int8", "fp16"]) == ("fp32", "int8", "fp16")
    assert ordered_precisions(iter(["int8", "fp16"])) == ("fp32", "int8", "fp16")  # type: ignore[arg-type]


def test_results_differ_only_in_what_was_measured(work: Path) -> None:
    """The same command twice gives the same figures; clocks aside."""

    def still(results: Results) -> Results:
        runs = tuple(replace(found, seconds=0.0) for found in results.runs)
        return replace(results, runs=runs, created="")

    assert still(run(work, latency_count=0)) == still(run(work, latency_count=0))


@pytest.mark.parametrize(("factor", "told"), [(1.0, False), (1e6, True)])
def test_fp16_that_is_fp32_for_the_most_part_is_told(tmp_path: Path, factor: float, told: bool) -> None:
    """Ranges of data that were scaled otherwise put every node beyond 65504: little is left of FP16."""
    path = save(conv_relu_gemm(), tmp_path / "net.onnx")
    x = samples(24, 3, 8, 8)
    calibrate(path, from_arrays("as trained", {"x": x * factor}), method="minmax", out=tmp_path / "net.cache")
    results = validate(
        path,
        from_arrays("noise", {"x": x}),
        cache=tmp_path / "net.cache",
        precisions=["fp16"],
        latency_count=0,
    )
    warnings = [text for text in results.warnings if text.startswith("FP16 by the ranges of net.cache keeps")]
    assert len(warnings) == told
    assert not told or "nodes in float32, for one Conv" in warnings[0]
