"""The shapes that a validation's engines are built for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import model, node, save

from calib.data import from_arrays
from calib.errors import EngineError
from calib.graph import OnnxModel, TensorSpec
from calib.validation import EngineOptions, validate
from calib.validation.engine_shapes import engine_shapes
from calib.validation.latency import LatencyPlan
from calib.validation.options import Options

Shape = tuple[int | str | None, ...]
OPTIONS = Options(runner="tensorrt", caches=("c",), batch_size=32, latency=LatencyPlan(16, 10))


def network(**shapes: Shape) -> OnnxModel:
    class Model:
        inputs = tuple(TensorSpec(name, np.dtype(np.float32), shape) for name, shape in shapes.items())

    return Model()  # type: ignore[return-value]


def batch(**shapes: tuple[int, ...]) -> Mapping[str, np.ndarray]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def never() -> Iterator[Mapping[str, np.ndarray]]:
    raise AssertionError("the data were read")


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"x": ("batch", 3, 8, 8)}, ("x:1x3x8x8:16x3x8x8:32x3x8x8",)),
        ({"x": (4, 3, 8, 8)}, ()),
        # An input that has its shape needs no range; the other one is built for the batches all the same.
        ({"x": (None, 3), "anchors": (9, 4)}, ("x:1x3:16x3:32x3",)),
    ],
    ids=["dynamic batch", "fixed batch", "one fixed"],
)
def test_the_batches_that_are_run(shapes: dict[str, Shape], expected: tuple[str, ...]) -> None:
    """The data need not be read for that."""
    assert engine_shapes(network(**shapes), OPTIONS, never) == expected


def test_without_latency_the_usual_batch_is_that_of_the_run() -> None:
    options = Options(runner="tensorrt", caches=("c",), batch_size=8, latency=LatencyPlan(1, 0))
    assert engine_shapes(network(x=("n", 3)), options) == ("x:1x3:8x3:8x3",)


def test_sizes_that_the_model_leaves_open_are_those_of_the_data() -> None:
    feeds = [
        batch(ids=(16, 7), mask=(16, 7), pixels=(1, 3, 20, 30)),
        batch(ids=(32, 12), mask=(32, 12), pixels=(1, 3, 20, 30)),
        batch(ids=(32, 5), mask=(32, 5), pixels=(1, 3, 24, 30)),
    ]
    found = engine_shapes(
        network(ids=("n", "length"), mask=("n", None), pixels=(1, 3, "h", "w")), OPTIONS, lambda: feeds
    )
    # Batches of 1 to 32 tuned for 16; lengths 5 to 12, tuned for the timed batch's 7.
    assert found == ("ids:1x5:16x7:32x12", "mask:1x5:16x7:32x12", "pixels:1x3x20x30:1x3x20x30:1x3x24x30")


@pytest.mark.parametrize("feeds", [None, lambda: [batch(other=(1, 3))]], ids=["no data", "not fed"])
def test_what_the_data_do_not_tell_is_left_to_the_user(feeds: Any) -> None:
    assert engine_shapes(network(x=("n", "length")), OPTIONS, feeds) == ()


class _Stop(EngineError):
    """Ends the run where the engine would be built."""


def asked_shapes(monkeypatch: pytest.MonkeyPatch, path: Path, options: EngineOptions) -> Any:
    asked: list[Any] = []

    def build(model: Any, *, shapes: Any, **_: Any) -> None:
        asked.append(shapes)
        raise _Stop("no engine is needed")

    monkeypatch.setattr("calib.engine.build", build)
    monkeypatch.setattr("calib.engine.api.load_api", lambda: None)
    data = from_arrays("lines", {"x": np.ones((6, 1, 5, 9), np.float32)})
    with pytest.raises(_Stop):
        validate(path, data, runner="tensorrt", precisions=["fp32"], batch_size=4, engine=options)
    return asked


def test_a_validation_builds_for_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text recognizer's input: height and width are open too."""
    proto = model(
        [node("Relu", ["x"], ["y"])],
        {"x": ["n", 1, "h", "w"]},
        {"y": ["n", 1, "h", "w"]},
    )
    path = save(proto, tmp_path / "m.onnx")
    assert asked_shapes(monkeypatch, path, EngineOptions()) == [("x:1x1x5x9:1x1x5x9:4x1x5x9",)]
    given = ("x:1x1x4x8:1x1x5x9:4x1x9x9",)
    assert asked_shapes(monkeypatch, path, EngineOptions(shapes=given)) == [given]
