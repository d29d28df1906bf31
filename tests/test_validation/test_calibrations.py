"""Several calibration caches in one run: entropy against min-max."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import model, node, samples, save, weight

from calib.calibrators import CalibrationCache, sidecar_path
from calib.data import Dataset, from_arrays
from calib.errors import CacheError, UsageError
from calib.graph import calibrate
from calib.report.merge import merge
from calib.report.methods import calibration_findings
from calib.validation import Results, read_results, validate
from calib.validation.naming import RunName, method_of, unique_names

COUNT = 200


def detector() -> onnx.ModelProto:
    """x [N,16] → scores [N,5], and → (x·w)⁴ → boxes [N,4] in 0…640: few activations are large."""
    return model(
        [
            node("Gemm", ["x", "w1"], ["sizes"], name="neck"),
            node("Mul", ["sizes", "sizes"], ["areas"], name="square"),
            node("Mul", ["areas", "areas"], ["tails"], name="fourth"),
            node("Gemm", ["tails", "w2"], ["raw"], name="boxes"),
            node("Clip", ["raw", "low", "high"], ["boxes"], name="clip"),
            node("Gemm", ["x", "w3"], ["scores"], name="scores"),
        ],
        {"x": ["N", 16]},
        {"boxes": ["N", 4], "scores": ["N", 5]},
        {
            "w1": weight(16, 32),
            "w2": np.abs(weight(32, 4, seed=1)) * 88,
            "w3": weight(16, 5, seed=2),
            "low": 0.0,
            "high": 640.0,
        },
    )


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    values = np.random.default_rng(0).uniform(size=(COUNT, 16)).astype(np.float32)
    return from_arrays("cells", {"x": values})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Path:
    """The detector with a cache of each method; calibrated on 100 and on 80 samples, 40 of them shared."""
    folder = tmp_path_factory.mktemp("made")
    save(detector(), folder / "net.onnx")
    for method, used in (("entropy", range(100)), ("minmax", range(60, 140))):
        cache = folder / f"{method}.cache"
        calibrate(folder / "net.onnx", dataset.subset(used), method=method, batch_size=10, out=cache)
    return folder


@pytest.fixture
def work(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "work", ignore=shutil.ignore_patterns("out")))


@pytest.fixture(scope="module")
def results(made: Path, dataset: Dataset) -> Results:
    return validate(
        made / "net.onnx",
        dataset,
        cache=[made / "entropy.cache", made / "minmax.cache"],
        out=made / "out",
        scores="scores",
        latency_count=3,
    )


def sample_ids(cache: Path) -> set[str]:
    return set(json.loads(sidecar_path(cache).read_text())["sample_ids"])


def test_int8_is_run_once_for_each_cache(results: Results) -> None:
    assert [(run.label, run.precision, run.calibration) for run in results.runs] == [
        ("FP32", "fp32", ""),
        ("FP16", "fp16", ""),
        ("INT8 entropy", "int8", "entropy"),
        ("INT8 minmax", "int8", "minmax"),
    ]
    assert [(record.name, record.algorithm, record.samples) for record in results.calibrations] == [
        ("entropy", "EntropyCalibration2", 100),
        ("minmax", "MinMaxCalibration", 80),
    ]
    entropy, minmax = results.runs[2:]
    assert "entropy.cache (TRT-8600-EntropyCalibration2)" in entropy.description
    assert "minmax.cache (TRT-8600-MinMaxCalibration)" in minmax.description
    assert {(sample.precision, sample.calibration) for sample in results.worst} == {
        ("fp16", ""),
        ("int8", "entropy"),
        ("int8", "minmax"),
    }


def test_minmax_wins_on_boxes_and_the_summary_says_so(results: Results) -> None:
    entropy, minmax = ({errors.output: errors for errors in run.outputs} for run in results.runs[2:])
    lost, kept = entropy["boxes"].sqnr_db, minmax["boxes"].sqnr_db
    assert lost is not None
    assert kept is not None
    assert kept > lost + 10
    assert 500 < (minmax["boxes"].reference_amax or 0) <= 640
    ((lead, text),) = calibration_findings(merge([results]))
    assert lead == "entropy or min-max"
    assert text.startswith(f"min-max keeps output 'boxes' better: {kept:.1f} dB against {lost:.1f} dB.")
    assert "'scores'" not in text


def test_each_runs_as_it_does_alone(made: Path, dataset: Dataset, results: Results) -> None:
    for run in results.runs[2:]:
        alone = validate(
            made / "net.onnx",
            dataset.subset([dataset.ids.index(name) for name in results.sample_ids]),
            precisions=["int8"],
            cache=made / f"{run.calibration}.cache",
            latency_count=0,
        )
        assert [one.label for one in alone.runs] == ["FP32", "INT8"]
        assert alone.runs[1].outputs == run.outputs


def test_the_samples_of_all_caches_are_left_out(made: Path, dataset: Dataset, results: Results) -> None:
    assert sample_ids(made / "minmax.cache") == set(dataset.ids[60:140])
    assert results.sample_ids == dataset.ids[140:]
    assert results.dataset.overlap_with_calibration == 0
    assert [record.overlap for record in results.calibrations] == [0, 0]


def test_overlap_is_counted_and_warned_of_for_each_cache(made: Path, dataset: Dataset) -> None:
    caches = [made / "entropy.cache", made / "minmax.cache"]
    found = validate(
        made / "net.onnx", dataset, precisions=["int8"], cache=caches, allow_overlap=True, latency_count=0
    )
    assert found.dataset.overlap_with_calibration == 140
    assert [record.overlap for record in found.calibrations] == [100, 80]
    for count, name in ((100, "entropy"), (80, "minmax")):
        wanted = f"{count} of 200 validation samples were calibrated on for {made}/{name}.cache: the accuracy"
        (warning,) = [text for text in found.warnings if text.startswith(wanted)]
        assert f"of INT8 {name} may be flattered" in warning


def test_warnings_name_the_cache_they_are_about(work: Path, dataset: Dataset) -> None:
    sidecar_path(work / "minmax.cache").unlink()
    found = validate(
        work / "net.onnx",
        dataset,
        precisions=["int8"],
        cache=[work / "entropy.cache", work / "minmax.cache"],
        keep_float=["neck"],
        latency_count=0,
    )
    (unknown,) = [text for text in found.warnings if "no sidecar" in text]
    assert unknown.startswith(f"{work}/minmax.cache has no sidecar")
    assert [record.overlap for record in found.calibrations] == [0, None]
    leaves = [text.split(" leaves ")[0] for text in found.warnings if " leaves " in text]
    assert leaves == ["INT8 entropy", "INT8 minmax"]


def test_the_same_cache_twice_is_refused(work: Path, dataset: Dataset) -> None:
    copy = shutil.copy(work / "entropy.cache", work / "copy.cache")
    with pytest.raises(UsageError, match=r"copy\.cache is the same as .*entropy\.cache, byte for byte"):
        validate(work / "net.onnx", dataset, cache=[work / "entropy.cache", copy], out=work / "out")
    assert not (work / "out").exists()


def test_a_missing_one_of_several(work: Path, dataset: Dataset) -> None:
    with pytest.raises(CacheError, match=r"gone\.cache: no such file"):
        validate(work / "net.onnx", dataset, cache=[work / "entropy.cache", work / "gone.cache"])


def test_results_come_back_from_json(made: Path, results: Results) -> None:
    assert read_results(made / "out" / "results.json") == results
    assert [record["name"] for record in json.loads(results.to_json())["calibrations"]] == [
        "entropy",
        "minmax",
    ]


def test_the_call_repeats_all_caches(made: Path, results: Results) -> None:
    assert f"cache=('{made}/entropy.cache', '{made}/minmax.cache')" in results.command


class TestNames:
    @pytest.mark.parametrize(
        ("methods", "stems", "names"),
        [
            (["entropy", "minmax"], ["a", "b"], ("entropy", "minmax")),
            (["entropy", "entropy"], ["run1", "run2"], ("run1", "run2")),
            (["entropy", "entropy"], ["net", "net"], ("net", "net-2")),
            (["minmax", "entropy", "entropy"], ["x", "minmax", "b"], ("minmax", "minmax-2", "b")),
            (["e", "e", "e", "e"], ["n", "n", "n-2", "n"], ("n", "n-3", "n-2", "n-4")),
        ],
    )
    def test_they_are_unique(self, methods: list[str], stems: list[str], names: tuple[str, ...]) -> None:
        assert unique_names(methods, stems) == names

    @pytest.mark.parametrize(
        ("algorithm", "name"),
        [
            ("EntropyCalibration2", "entropy"),
            ("MinMaxCalibration", "minmax"),
            ("EntropyCalibration", "entropy1"),
            ("LegacyCalibration", "legacy"),
            ("OtherCalibration", "OtherCalibration"),
        ],
    )
    def test_the_algorithm_of_the_header(self, algorithm: str, name: str) -> None:
        assert method_of(algorithm) == name

    def test_the_label_has_a_calibration_only_where_there_are_several(self) -> None:
        assert RunName("int8", "minmax").label == "INT8"
        assert RunName("int8", "minmax", several=True).label == "INT8 minmax"
        assert RunName("fp16", several=True).label == "FP16"

    def test_two_caches_of_one_method_have_the_names_of_their_files(
        self, work: Path, dataset: Dataset
    ) -> None:
        scales = CalibrationCache.read(work / "entropy.cache")
        wide = CalibrationCache({name: 2 * scale for name, scale in scales.items()})
        wide.write(work / "wide.cache")
        found = validate(
            work / "net.onnx",
            dataset,
            precisions=["int8"],
            cache=[work / "entropy.cache", work / "wide.cache", work / "minmax.cache"],
            latency_count=0,
        )
        assert [run.label for run in found.runs] == ["FP32", "INT8 entropy", "INT8 wide", "INT8 minmax"]


def test_an_empty_sequence_of_caches_is_none(made: Path) -> None:
    dataset = from_arrays("few", {"x": samples(3, 16)})
    found = validate(made / "net.onnx", dataset, precisions=["fp16"], cache=[], latency_count=0)
    assert found.calibrations == ()
