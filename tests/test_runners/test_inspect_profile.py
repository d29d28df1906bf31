"""``calib inspect --profile``: an engine's layers, timed by running it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from layer_answers import answer
from test_runners.fake_tensorrt_runtime import FakeNetwork, FakeTensorRT, Tensor
from typer.testing import CliRunner

from calib.cli.inspect import inspect_command
from calib.errors import EngineError, UsageError

app = typer.Typer()
app.command()(inspect_command)

SHAPES = [(1, 3), (4, 3), (8, 3)]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.fixture
def engines(fake: FakeTensorRT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Two engines, and the device that they run on, as the commands find them."""
    monkeypatch.setattr("calib.engine.api.load_api", lambda flavour: fake.api)
    monkeypatch.setattr("calib.engine.memory.open_device", lambda: fake.device)
    found = {}
    for name, layers in (("int8", {"conv": 0.3, "reformat": 0.1}), ("fp16", {"conv": 0.35})):
        kinds = tuple((layer, "Reformat" if layer == "reformat" else "CaskConvolution") for layer in layers)
        fake.plans[name.encode()] = FakeNetwork(
            [Tensor("x", (-1, 3), bounds=SHAPES)],
            [Tensor("y", (-1, 3))],
            lambda x: (x,),
            layers=layers,
            kinds=kinds,
        )
        path = tmp_path / f"{name}.engine"
        path.write_bytes(name.encode())
        found[name] = str(path)
    return found


def test_layers_are_timed(engines: dict[str, str], fake: FakeTensorRT) -> None:
    text = run(engines["int8"], "--profile")
    assert "slowest: 75.0% unknown conv" in text  # 0.3 of 0.4 ms
    assert "0.3000" in next(line for line in text.splitlines() if line.startswith("conv"))
    # Tuned for batches of 4.
    assert {context.shapes["x"] for context in fake.contexts if context.shapes} == {(4, 3)}
    assert fake.device.entered == 0
    fake.device.check_nothing_left()


def test_two_engines_are_timed_and_compared(engines: dict[str, str]) -> None:
    text = run(engines["int8"], "--profile", "--against", engines["fp16"])
    assert "no faster: 25% of the layers' time (0.1 ms) goes to 1 reformat" in text
    assert "(0 ms in 0 in FP16)" in text


def test_an_engine_that_holds_code(engines: dict[str, str], fake: FakeTensorRT) -> None:
    fake.holds_code = True
    with pytest.raises(EngineError, match="--host-code"):
        run(engines["int8"], "--profile")
    assert "conv" in run(engines["int8"], "--profile", "--host-code")


def test_what_cannot_be_timed(engines: dict[str, str], tmp_path: Path) -> None:
    told = tmp_path / "layers.json"
    told.write_text(answer("conv"), encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"layers\.json is what TensorRT's inspector said .* the engine itself"
    ):
        run(str(told), "--profile")
    with pytest.raises(UsageError, match="--profile measures the times"):
        run(engines["int8"], "--profile", "--times", str(told))
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x08\x08")
    with pytest.raises(EngineError, match="is an ONNX model, not an engine"):
        run(str(model), "--profile")
