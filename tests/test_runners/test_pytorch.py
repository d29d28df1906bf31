"""The PyTorch runner on the CPU: values, precision, names, settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calib.errors import CalibError, EngineError, ModelError, UsageError, ValidationError
from calib.runners import PyTorchRunner

torch = pytest.importorskip("torch")
torch_networks = pytest.importorskip("torch_networks")

X = np.random.default_rng(2).normal(size=(3, 12)).astype(np.float32)


def open_runner(module: Any = None, precision: str = "fp32", **options: Any) -> PyTorchRunner:
    settings = {"input_names": ["x"], "output_names": ["y"], "device": "cpu", **options}
    return PyTorchRunner(module or torch_networks.Perceptron(), precision, **settings)


def by_hand(network: Any, dtype: Any) -> np.ndarray:
    """Two products and a maximum, in numpy; float16 rounds after each layer."""
    hidden, out = network.hidden, network.out
    x = X.astype(dtype).astype(np.float64)
    for layer in (hidden, out):
        weight, bias = (
            part.detach().numpy().astype(dtype).astype(np.float64) for part in (layer.weight, layer.bias)
        )
        x = (x @ weight.T + bias).astype(dtype).astype(np.float64)
        x = np.maximum(x, 0) if layer is hidden else x
    return x


@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"), [("fp32", np.float32, 1e-6), ("fp16", np.float16, 2e-3)]
)
def test_values_are_those_of_the_precision(precision: str, dtype: Any, tolerance: float) -> None:
    network = torch_networks.Perceptron()
    with open_runner(network, precision, output_names=["scores"]) as runner:
        got = runner.infer({"x": X})["scores"]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, by_hand(network, dtype), atol=tolerance)
    assert np.array_equal(got, got.astype(np.float16)) is (precision == "fp16")
    assert next(network.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"pci_domain_id": 0, "pci_bus_id": 0x1B, "pci_device_id": 0}, "00000000:1B:00.0"),
        ({}, 1),  # torch before it told: CUDA's number
    ],
)
def test_nvml_is_told_which_gpu(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, int], expected: object
) -> None:
    with open_runner() as runner:
        assert runner.gpu is None
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**known))
        monkeypatch.setattr(runner, "_device", torch.device("cuda", 1))
        assert runner.gpu == expected
        monkeypatch.setattr(runner, "_device", torch.device("cpu"))


def test_what_results_keep_of_it() -> None:
    with open_runner(precision="fp16", threads=1) as runner:
        # 12·16 + 16 + 16·4 + 4 numbers of two bytes.
        assert runner.model_bytes == 2 * 276
        assert (runner.name, runner.simulated, runner.precision) == ("pytorch", False, "fp16")
        assert "module.half()) on the CPU, where few operators are fast" in runner.note
        assert runner.clock == "host clock (perf_counter) around forward, on the CPU"
        assert runner.session_options == {
            "torch.device": "cpu (the CPU)",
            "torch.compile": "off",
            "torch.threads": "1",
            "torch.cudnn.benchmark": "on",
            "torch.tf32": "off",
        }
        assert runner.time_ms({"x": X}) > 0


def test_settings_hold_while_it_runs_and_are_put_back() -> None:
    seen: list[Any] = []

    class Spy(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            backend = torch.backends.cudnn
            seen.append(
                (torch.get_float32_matmul_precision(), backend.benchmark, backend.allow_tf32, self.training)
            )
            return x

    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.get_num_threads()
    torch.set_float32_matmul_precision("high")
    try:
        with open_runner(Spy(), threads=1) as runner:
            runner.infer({"x": X})
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == [("highest", True, False, False)]
    backend = torch.backends.cudnn
    assert (backend.benchmark, backend.allow_tf32, torch.get_num_threads()) == before


def test_outputs_are_found_by_name_or_by_order() -> None:
    image = {"x": np.zeros((1, 3, 2, 2), np.float32)}
    network = torch_networks.Upsampler()
    with open_runner(network, output_names=["x_out", "aux.0"]) as runner:
        found = runner.infer(image)
    assert {name: array.shape for name, array in found.items()} == {"x_out": (1, 3, 2, 2), "aux.0": (1, 4)}
    assert list(found) == ["x_out", "aux.0"]
    with open_runner(network, output_names=["a", "b", "c", "d"]) as runner:
        assert runner.infer(image)["d"].max() == 1
    with (
        open_runner(network, output_names=["a", "b"]) as runner,
        pytest.raises(
            ValidationError, match=r"returns 4 tensors \(masks, aux.0, aux.1, x_out\), .* outputs a, b"
        ),
    ):
        runner.infer(image)


def test_inputs_go_by_keyword_or_in_order_and_stay_whole() -> None:
    ids, mask = np.array([[1, 2, 3]]), np.array([[1, 0, 0]])
    network = torch_networks.Text()
    with open_runner(network, input_names=["mask", "ids"]) as named:
        by_name = named.infer({"ids": ids, "mask": mask})["y"]
    with open_runner(network, input_names=["tokens", "visible"]) as ordered:
        np.testing.assert_array_equal(ordered.infer({"tokens": ids, "visible": mask})["y"], by_name)

    class Greedy(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.add_(1)

    with open_runner(Greedy()) as runner:
        feeds = {"x": np.zeros(2, np.float32)}
        first = runner.infer(feeds)["y"]
        runner.infer(feeds)
    assert feeds["x"].tolist() == [0, 0]
    assert first.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"precision": "int8"}, UsageError, "runs fp32 and fp16, got 'int8'"),
        ({"threads": 0}, UsageError, "Threads must be at least 1, got 0"),
        ({"device": "tpu"}, UsageError, "Device 'tpu' is unknown"),
        ({"device": "meta"}, UsageError, "Device 'meta' is not supported"),
        ({"device": "cuda:99"}, EngineError, "Device 'cuda:99': torch .* sees .* GPUs here"),
        ({"input_names": ["x", "z"]}, UsageError, r"The inputs x, z do not fit forward\(x"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, Any], error: type[CalibError], message: str) -> None:
    with pytest.raises(error, match=message):
        open_runner(**options)


def test_feeds_that_do_not_go() -> None:
    with open_runner(precision="fp16") as runner:
        with pytest.raises(ValidationError, match=r"has inputs \['x'\], the feeds are \['z'\]"):
            runner.infer({"z": X})
        with pytest.raises(
            ValidationError, match=r"Input 'x' is declared float16, which cannot hold 70000\.0"
        ):
            runner.infer({"x": np.full((1, 12), 7e4, np.float32)})
        with pytest.raises(
            ModelError, match="Running Perceptron in FP16 on PyTorch failed: RuntimeError: mat1 and"
        ):
            runner.infer({"x": np.zeros((1, 5), np.float32)})
    with pytest.raises(UsageError, match="is closed: use it inside its with block"):
        runner.infer({"x": X})
