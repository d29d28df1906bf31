from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import model, node

from calib.engine.shapes import DEFAULT_BATCHES, InputRange, resolve_shapes, shapes_of_feeds
from calib.errors import UsageError
from calib.graph import OnnxModel


def adder(**inputs: list[int | str | None]) -> OnnxModel:
    """A model with these inputs, each going its own way."""
    shapes = {name.replace("__", ":"): shape for name, shape in inputs.items()}
    nodes = [node("Relu", [name], [f"{name}_out"]) for name in shapes]
    return OnnxModel(
        Path("net.onnx"), model(nodes, shapes, {f"{name}_out": shape for name, shape in shapes.items()})
    )


IMAGE = adder(image=["batch", 3, 8, 8])
ANY_SIZE = adder(image=["batch", 3, "height", None])


def test_a_fixed_model_needs_nothing() -> None:
    ranges, notes = resolve_shapes(adder(x=[2, 3], scalar=[]))
    assert ranges == (
        InputRange("x", (2, 3), (2, 3), (2, 3)),
        InputRange("scalar", (), (), ()),
    )
    assert all(range_.fixed for range_ in ranges)
    assert notes == []


def test_a_dynamic_batch_has_a_default_that_is_told() -> None:
    assert DEFAULT_BATCHES == (1, 8, 32)
    (range_,), (note,) = resolve_shapes(IMAGE)
    assert str(range_) == "image:1x3x8x8:8x3x8x8:32x3x8x8"
    assert note == "the batch is dynamic: built for batches of 1 to 32, tuned for 8; --shapes chooses others"


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (["image:4x3x8x8"], "image:4x3x8x8"),
        (["image:1x3x8x8:2x3x8x8:4x3x8x8"], "image:1x3x8x8:2x3x8x8:4x3x8x8"),
        (["1x3x8x8:2x3x8x8:4x3x8x8"], "image:1x3x8x8:2x3x8x8:4x3x8x8"),
        ({"image": (4, 3, 8, 8)}, "image:4x3x8x8"),
        ({"image": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}, "image:1x3x8x8:2x3x8x8:4x3x8x8"),
        ({"image": (np.int64(4), 3, 8, 8)}, "image:4x3x8x8"),
        ({"image": np.array([[1, 3, 8, 8], [2, 3, 8, 8], [4, 3, 8, 8]])}, "image:1x3x8x8:2x3x8x8:4x3x8x8"),
    ],
)
def test_shapes_that_are_given(shapes: Any, expected: str) -> None:
    (range_,), notes = resolve_shapes(IMAGE, shapes)
    assert str(range_) == expected
    assert notes == []


def test_other_inputs_take_the_batches_that_one_was_given() -> None:
    two = adder(image=["batch", 3], mask=["batch", 5])
    ranges, notes = resolve_shapes(two, ["image:2x3:4x3:6x3"])
    assert [str(range_) for range_ in ranges] == ["image:2x3:4x3:6x3", "mask:2x5:4x5:6x5"]
    assert notes == []


def test_names_may_hold_colons() -> None:
    named = adder(image__0=["batch", 3], image=["batch", 3])
    ranges, _ = resolve_shapes(named, ["image:0:2x3", "image:4x3"])
    assert [(range_.name, range_.usual) for range_ in ranges] == [("image:0", (2, 3)), ("image", (4, 3))]


@pytest.mark.parametrize(
    ("net", "shapes", "message"),
    [
        (ANY_SIZE, [], r"more than its batch is dynamic.*Pass --shapes image:\?x3x\?x\? with sizes"),
        (IMAGE, ["picture:1x3x8x8"], r"'picture' is no input\. Inputs: image\. Expected NAME:1x3x224x224"),
        (IMAGE, {"picture": (1, 3, 8, 8)}, r"names 'picture', which is no input\. Inputs: image float32"),
        (IMAGE, ["image:1x3x8x8:2x3x8x8"], "is neither one shape nor three"),
        (IMAGE, ["image:1,3,8,8"], "'1,3,8,8' is neither one shape nor three"),
        (IMAGE, ["image:1x3x8"], "has 4 axes .*but 1x3x8 has 3"),
        (IMAGE, ["image:1x1x8x8"], r"axis 1 of 'image' is fixed at 3"),
        (IMAGE, ["image:4x3x8x8:2x3x8x8:8x3x8x8"], "expected 1 ≤ smallest ≤ usual ≤ largest, got 4, 2, 8"),
        (IMAGE, ["image:0x3x8x8"], "expected 1 ≤ smallest ≤ usual ≤ largest, got 0, 0, 0"),
        (IMAGE, ["image:1x3x8x8", "image:2x3x8x8"], "gives input 'image' twice"),
        (IMAGE, {"image": ((1, 3, 8, 8), (2, 3, 8, 8))}, "must be one shape or"),
        (IMAGE, {"image": (4.0, 3, 8, 8)}, "must be one shape or"),
    ],
)
def test_shapes_that_cannot_be_meant(net: OnnxModel, shapes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_shapes(net, shapes)


def test_shapes_of_data() -> None:
    feeds = {"image": np.zeros((7, 3, 8, 8), np.float32)}
    (range_,), _ = resolve_shapes(IMAGE, shapes_of_feeds(feeds))
    assert str(range_) == "image:7x3x8x8"
