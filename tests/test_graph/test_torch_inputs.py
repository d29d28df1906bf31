"""What is said of a network's inputs, without torch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from calib.errors import UsageError
from calib.graph import find_target
from calib.graph.torch_check import compare_output
from calib.graph.torch_export import opset_for
from calib.graph.torch_inputs import NetworkInput, dynamic_inputs, network_inputs
from calib.graph.torch_module import module_name, parse_arguments
from calib.graph.torch_names import output_names


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("1x3x8x8", [("", (1, 3, 8, 8), "float32")]),
        ("images:1x3x8x8", [("images", (1, 3, 8, 8), "float32")]),
        (["ids:2x16:int64", "4:float16"], [("ids", (2, 16), "int64"), ("", (4,), "float16")]),
        ({"a": (2, 3), "b": np.zeros((1, 2), np.int32)}, [("a", (2, 3), "float32"), ("b", (1, 2), "int32")]),
    ],
)
def test_inputs_are_read(spec: Any, expected: list[Any]) -> None:
    assert [(item.name, item.shape, str(item.dtype)) for item in network_inputs(spec)] == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("1,3,8,8", r"--input '1,3,8,8': expected \[name:\]sizes\[:type\], such as 1x3x224x224"),
        ("images:1x3:int64:more", "expected .*sizes"),
        ("1x0x8", r"every size must be at least 1, got \[1, 0, 8\]"),
        ("x:2x2:float", r"type 'float' is unknown. Choose from float32"),
        (["a:2", "a:3"], "Input a is given more than once"),
        ([], "inputs are needed, such as --input 1x3x224x224; none was given"),
        ({"a": "big"}, "Input 'a': expected a shape or an array, got 'big'"),
        ({"a": np.zeros(2, np.complex64)}, "type 'complex64' is unknown"),
    ],
)
def test_inputs_that_cannot_be_meant(spec: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        network_inputs(spec)


INPUTS = (NetworkInput("images", (1, 3, 8, 8)), NetworkInput("ids", (1, 5), np.dtype("int64")))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, [{}, {}]),
        ("batch", [{0: "batch"}, {0: "batch"}]),
        ("images:0=batch,2=height", [{0: "batch", 2: "height"}, {}]),
        (["n", "ids:1=length"], [{0: "n"}, {0: "n", 1: "length"}]),
        ({"ids": {1: "length"}}, [{}, {1: "length"}]),
    ],
)
def test_dynamic_sizes_are_read(spec: Any, expected: list[Any]) -> None:
    assert [item.dynamic for item in dynamic_inputs(INPUTS, spec)] == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("image:0=batch", "--dynamic names input 'image'; the inputs are images, ids"),
        ("ids:2=length", "ids has axes 0 to 1"),
        ("ids:batch", "expected a name for every input's first axis.*or input:axis=name"),
        ("ids:²=batch", "expected a name for every input's first axis.*or input:axis=name"),
        ("0", "'0' cannot be the name of a size"),
    ],
)
def test_dynamic_sizes_that_cannot_be_meant(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dynamic_inputs(INPUTS, spec)


def test_examples_repeat_and_differ_between_inputs() -> None:
    images, ids = dynamic_inputs(INPUTS, "batch")
    np.testing.assert_array_equal(images.example(), images.example())
    assert images.example({"batch": 3}).shape == (3, 3, 8, 8)
    assert set(np.unique(ids.example({"batch": 9}))) == {0, 1}
    twin = NetworkInput("other", (1, 3, 8, 8))
    assert abs(images.example() - twin.example()).min() > 0


def test_given_values_are_repeated_to_a_larger_batch() -> None:
    (item,) = dynamic_inputs(network_inputs({"ids": np.array([[3, 7], [5, 9]])}), "batch")
    np.testing.assert_array_equal(item.example({"batch": 3}), [[3, 7], [5, 9], [3, 7]])
    np.testing.assert_array_equal(item.example({"batch": 1}), [[3, 7]])


@pytest.mark.parametrize(
    ("target", "opset"), [("tensorrt-8.6", 17), ("tensorrt-10", 20), ("tensorrt-11", 20), ("onnxruntime", 20)]
)
def test_each_target_has_its_opset(target: str, opset: int) -> None:
    assert opset_for(find_target(target)) == opset


@pytest.mark.parametrize(
    ("target", "opset", "message"),
    [
        ("tensorrt-8.6", 18, "--opset 18: tensorrt-8.6 reads up to 17"),
        ("tensorrt-10", 16, "--opset must be from 17 to 23, got 16"),
        ("onnxruntime", 24, "--opset must be from 17 to 23, got 24"),
    ],
)
def test_opsets_that_do_not_go(target: str, opset: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opset_for(find_target(target), opset)


def test_arguments_are_python_literals_or_text() -> None:
    given = parse_arguments(["weights=None", "width=0.5", "norm=batch", "size=(1, 2)", "path=a=b"])
    assert given == {"weights": None, "width": 0.5, "norm": "batch", "size": (1, 2), "path": "a=b"}
    with pytest.raises(UsageError, match=r"Expected --arg name=value.* got 'width'"):
        parse_arguments(["width"])
    with pytest.raises(UsageError, match="--arg width is given twice"):
        parse_arguments(["width=1", "width=2"])


@pytest.mark.parametrize(
    ("source", "name"), [("torchvision.models:resnet18", "resnet18"), ("a/net.py:Net.small", "small")]
)
def test_names_of_networks(source: str, name: str) -> None:
    assert module_name(source) == name


def test_names_of_outputs() -> None:
    assert output_names(["out", "x"], None, ["x"]) == ["out", "x_out"]
    assert output_names(["out", "aux"], ["a", "b"], ["x"]) == ["a", "b"]
    with pytest.raises(UsageError, match=r"--output-names gives 1 name \(a\), but .* 2 outputs: out, aux"):
        output_names(["out", "aux"], ["a"], ["x"])
    with pytest.raises(UsageError, match="--output-names: x is taken already"):
        output_names(["out"], ["x"], ["x"])


@pytest.mark.parametrize(
    ("reference", "got", "fault"),
    [
        # 1e-4 of the largest value, 2, and 1e-6: 2.01e-4 is allowed.
        (np.float32([1, -2]), np.float32([1, -2.0002]), ""),
        (np.float32([1, -2]), np.float32([1.0003, -2]), "largest difference 0.0003, allowed 0.000201"),
        (np.float16([1, -2]), np.float16([1.015, -2]), ""),
        (np.float16([1, -2]), np.float16([1.1, -2]), "largest difference 0.0996, allowed 0.02"),
        (np.int64([1, 2]), np.int64([1, 3]), "largest difference 1, allowed 0"),
        (np.float32([1, 2]), np.float32([[1, 2]]), r"shape \[1, 2\], expected \[2\]"),
        (np.float32([1]), np.float64([1]), "type float64, expected float32"),
        (np.float32([np.nan, 1]), np.float32([np.nan, 1]), ""),
        (np.float32([np.nan, 1]), np.float32([0, 1]), "NaN or infinities are at other places"),
        (np.float32([0, 1]), np.float32([np.nan, 1]), "largest difference nan"),
        (np.float32([np.inf, 1]), np.float32([-np.inf, 1]), "NaN or infinities are at other places"),
    ],
)
def test_outputs_are_compared(reference: np.ndarray, got: np.ndarray, fault: str) -> None:
    assert re.fullmatch(f"{fault}.*" if fault else "", compare_output("y", reference, got).fault)


def test_an_output_that_is_all_but_zero_says_little() -> None:
    assert compare_output("y", np.float32([3e-9]), np.float32([2e-9])).says_little
    assert not compare_output("y", np.float32([0.3]), np.float32([0.3])).says_little
    assert not compare_output("y", np.int64([0]), np.int64([0])).says_little
