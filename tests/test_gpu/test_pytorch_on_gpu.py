"""The PyTorch runner on a GPU: ``python -m pytest -m gpu tests/test_gpu/test_pytorch_on_gpu.py``.

Run by hand on a machine with an NVIDIA GPU and a torch built for it; nothing else is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calib.runners import PyTorchRunner

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)


def product(size: int) -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(size, size, bias=False)


def open_runner(module: Any, precision: str) -> PyTorchRunner:
    return PyTorchRunner(module, precision, input_names=["x"], output_names=["y"])


@pytest.mark.parametrize(
    ("precision", "worst"),
    # Relative errors: 24 bits of float32, 11 of float16. TF32 has 11 too, and would fail the first.
    [("fp32", 1e-5), ("fp16", 3e-3)],
)
def test_values_are_of_the_precision_even_where_tf32_is_on(precision: str, worst: float) -> None:
    network = product(1024)
    x = np.random.default_rng(1).normal(size=(64, 1024)).astype(np.float32)
    expected = x.astype(np.float64) @ network.weight.detach().numpy().astype(np.float64).T
    torch.set_float32_matmul_precision("high")
    try:
        with open_runner(network, precision) as runner:
            got = runner.infer({"x": x})["y"]
    finally:
        torch.set_float32_matmul_precision("highest")
    assert abs(got - expected).max() / abs(expected).max() < worst


def test_convolutions_are_without_tf32() -> None:
    torch.manual_seed(0)
    network = torch.nn.Conv2d(256, 64, 3, bias=False)
    x = np.random.default_rng(1).normal(size=(4, 256, 32, 32)).astype(np.float32)
    with torch.inference_mode():
        expected = network.double()(torch.from_numpy(x).double()).numpy()
    with open_runner(network.float(), "fp32") as runner:
        got = runner.infer({"x": x})["y"]
    assert abs(got - expected).max() / abs(expected).max() < 1e-5


def test_times_are_of_the_gpu_and_fp16_is_faster() -> None:
    network = torch.nn.Sequential(*(product(8192) for _ in range(4)))
    x = np.ones((2048, 8192), np.float32)
    medians = {}
    for precision in ("fp32", "fp16"):
        with open_runner(network, precision) as runner:
            assert runner.clock.startswith("CUDA events around forward")
            assert torch.cuda.get_device_name() in runner.session_options["torch.device"]
            times = [runner.time_ms({"x": x}) for _ in range(8)]
        medians[precision] = float(np.median(times[3:]))
    # 4 products of 2048 x 8192 x 8192 are 1.1e12 multiplications and additions: on no GPU under 0.1 ms.
    assert 0.1 < medians["fp16"] < medians["fp32"] / 2
