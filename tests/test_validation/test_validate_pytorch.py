"""PyTorch beside ONNX Runtime: from the network's code to one report of two results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import calib
from calib.errors import CalibError, ModelError, UsageError
from calib.report.merge import merge
from calib.validation import PyTorchOptions, Results, read_results, validate
from calib.validation.options import Options

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

NETWORK = "calib.demo.train:build_network"
QUICK: dict[str, Any] = {"samples": 48, "batch_size": 16, "latency_count": 3, "latency_seconds": 5.0}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights, model, cache, Q/DQ model, and results of both runners, all made of one network's code."""
    folder = tmp_path_factory.mktemp("chain")
    torch.manual_seed(5)
    from calib.demo.train import build_network

    network = build_network()
    network(torch.rand(32, 1, 32, 32))
    torch.save(network.state_dict(), folder / "net.pt")
    model = folder / "net.onnx"
    calib.export(
        NETWORK,
        inputs="image:1x1x32x32",
        dynamic="batch",
        weights=folder / "net.pt",
        output_names=["logits"],
        out=model,
    )
    calib.calibrate(model, "digits", samples=32, out=folder / "net.cache")
    calib.quantize(model, folder / "net.cache", out=folder / "net.int8.onnx")
    validate(model, "digits", cache=folder / "net.cache", out=folder / "onnxruntime", **QUICK)
    validate(model, "digits", cache=folder / "net.cache", out=folder / "pytorch", **torch_options(folder))
    return folder


def torch_options(folder: Path) -> dict[str, Any]:
    return {
        "runner": "pytorch",
        "torch": PyTorchOptions(NETWORK, weights=folder / "net.pt", device="cpu"),
        **QUICK,
    }


@pytest.fixture
def results(chain: Path) -> Results:
    return read_results(chain / "pytorch" / "results.json")


def test_pytorch_is_beside_the_reference(results: Results) -> None:
    assert [(run.label, run.runner, run.role) for run in results.runs] == [
        ("FP32", "onnxruntime", "baseline"),
        ("PyTorch FP32", "pytorch", "candidate"),
        ("PyTorch FP16", "pytorch", "candidate"),
    ]
    reference, fp32, fp16 = results.runs
    assert fp32.outputs[0].output == "logits"
    # Float32 rounding, and that of float16 with its 11 bits: 6 dB each.
    assert fp32.outputs[0].sqnr_db is not None
    assert fp32.outputs[0].sqnr_db > 100
    assert fp16.outputs[0].sqnr_db is not None
    assert 35 < fp16.outputs[0].sqnr_db < 80
    assert fp16.model_bytes < 0.6 * fp32.model_bytes < 0.6 * reference.model_bytes


def test_its_latency_is_real_and_says_on_what(results: Results) -> None:
    reference, *candidates = (run.latency for run in results.runs)
    assert reference is not None
    assert reference.simulated
    for latency in candidates:
        assert latency is not None
        assert not latency.simulated
        assert (latency.device, latency.on_gpu) == ("CPU", False)
        assert latency.clock == "host clock (perf_counter) around forward, on the CPU"
    told = "Latency of FP32 is of a CPU simulation: it says nothing of TensorRT's speed."
    assert told in results.warnings
    settings = results.environment.session_options
    assert settings["torch.device"] == "cpu (the CPU)"
    assert settings["provider"] == "CPUExecutionProvider"


def test_a_gpu_in_the_machine_does_not_make_it_a_latency_of_one(results: Results) -> None:
    beside = replace(results, environment=replace(results.environment, gpu="NVIDIA H200"))
    report = calib.check(beside, max_latency_ratio=100.0, precisions=["fp32", "fp16"])
    reasons = [one.reason for one in report.outcomes if one.gate == "max_latency_ratio"]
    assert reasons == [
        f"refused: the latency of {label} was not measured on a GPU, but on CPU"
        for label in ("PyTorch FP32", "PyTorch FP16")
    ]


def test_the_command_repeats_the_run(results: Results, chain: Path) -> None:
    assert results.command.startswith(
        f"calib validate {chain}/net.onnx --data digits --precisions fp32,fp16 "
    )
    assert "--runner pytorch" in results.command
    assert results.command.endswith(f"--torch {NETWORK} --torch-weights {chain}/net.pt --torch-device cpu")


def test_the_results_of_both_runners_make_one_table(chain: Path, results: Results) -> None:
    other = read_results(chain / "onnxruntime" / "results.json")
    merged = merge([other, results])
    assert [row.label for row in merged.rows] == [
        "FP32 · A",
        "FP16 · A",
        "INT8 · A",
        "FP32 · B",
        "PyTorch FP32 · B",
        "PyTorch FP16 · B",
    ]
    rows = {row.label: row for row in merged.rows}
    fp16 = rows["PyTorch FP16 · B"]
    peer, baseline = merged.peer(fp16, "fp32"), merged.baseline_of(fp16)
    assert peer is rows["PyTorch FP32 · B"]
    assert baseline is rows["FP32 · B"]
    worst = [merged.row_of(fp16.source, sample) for sample in results.worst]
    assert set(filter(None, (row and row.label for row in worst))) == {"PyTorch FP32 · B", "PyTorch FP16 · B"}
    calib.write_report([other, results], chain / "report")
    text = (chain / "report" / "report.md").read_text()
    assert "PyTorch FP16 · B" in text


def test_without_onnxruntime_pytorch_is_the_baseline(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "onnxruntime" else found(name, *more)
    )
    results = validate(chain / "net.onnx", "digits", **{**torch_options(chain), "latency_count": 0})
    assert [(run.label, run.role) for run in results.runs] == [
        ("PyTorch FP32", "baseline"),
        ("PyTorch FP16", "candidate"),
    ]
    (warning,) = (text for text in results.warnings if "onnxruntime" in text)
    assert "the baseline is PyTorch FP32, so that errors are against it" in warning


def test_a_module_from_python(chain: Path) -> None:
    from calib.demo.train import build_network

    network = build_network()
    network.load_state_dict(torch.load(chain / "net.pt", weights_only=True))
    options = {**QUICK, "latency_count": 0, "precisions": ["fp32"]}
    results = validate(
        chain / "net.onnx", "digits", runner="pytorch", torch=PyTorchOptions(network, device="cpu"), **options
    )
    (output,) = results.runs[1].outputs
    assert output.sqnr_db is not None
    assert output.sqnr_db > 100


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"torch": None}, UsageError, "--runner pytorch needs the network .*--torch net.py:Net"),
        (
            {"runner": "onnxruntime"},
            UsageError,
            "--torch calib.demo.train:build_network is for --runner pytorch",
        ),
        (
            {"precisions": ["int8"]},
            UsageError,
            "--runner pytorch runs fp32 and fp16: INT8 is in the ONNX model",
        ),
        ({"torch": NETWORK}, UsageError, r"torch takes .*PyTorchOptions\('net.py:Net'\); got str"),
        ({"torch": PyTorchOptions("calib.demo.train:build")}, ModelError, "has no 'build'"),
        (
            {"torch": PyTorchOptions(NETWORK, weights="nothing.pt")},
            ModelError,
            "No such weights: nothing.pt",
        ),
        (
            {"torch": PyTorchOptions(NETWORK, arguments={"width": 3})},
            ModelError,
            "cannot be called: got an unexpected keyword argument",
        ),
    ],
)
def test_what_cannot_be_meant(
    chain: Path, options: dict[str, Any], error: type[CalibError], message: str
) -> None:
    with pytest.raises(error, match=message):
        validate(chain / "net.onnx", "digits", **{**torch_options(chain), **options})


def test_what_is_no_network() -> None:
    with pytest.raises(UsageError, match=r"must be a torch module, what makes one, or .*; got int"):
        PyTorchOptions(7)  # type: ignore[arg-type]


def test_the_call_that_repeats_a_run_of_a_dataset_from_python() -> None:
    options = Options(
        precisions=("fp32", "fp16"),
        runner="pytorch",
        torch=PyTorchOptions(torch.nn.Linear, arguments={"in_features": 3}, device="cpu"),
    )
    assert options.call("net.onnx", "mine") == (
        "calib.validate('net.onnx', dataset, precisions=('fp32', 'fp16'), runner='pytorch', "
        "torch=PyTorchOptions('torch.nn.modules.linear.Linear', arguments={'in_features': 3}, device='cpu'))"
        "  # dataset: mine"
    )
