"""The networks that people run: export → calibrate → quantize → run → compare with FP32."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np
import onnx
import pytest

pytest.importorskip("torchvision", reason="extra [torch] is not installed")

from torchvision_networks import NETWORKS, feeds

from calib.graph import OnnxModel, QuantizedModel, open_session, session_options

Exported = Callable[[str], OnnxModel]
Quantized = Callable[[str, str, str], QuantizedModel]

METHODS = ("minmax", "entropy")
TARGETS = ("tensorrt-8.6", "tensorrt-10")
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
NEVER_INT8 = (
    *("NonMaxSuppression", "RoiAlign", "TopK", "ScatterND", "ScatterElements", "NonZero", "GatherND"),
    *("Softmax", "LayerNormalization", "Erf", "Resize", "If", "Loop", "Shape", "Where"),
)
SLOW = ("mask_rcnn", "ssd")
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in NETWORKS]
DETECTORS = tuple(name for name, network in NETWORKS.items() if network.detector)


def opened(target: OnnxModel, outputs: tuple[str, ...]) -> Callable[[Mapping[str, np.ndarray]], list]:
    proto = target.edited()
    present = {output.name for output in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name not in present)
    session = open_session(OnnxModel(target.path, proto), session_options(float_qdq=True))
    return lambda batch: session.run(list(outputs), dict(batch))


def compared(name: str, model: OnnxModel) -> tuple[str, ...]:
    pattern = NETWORKS[name].compared
    if not pattern:
        return tuple(spec.name for spec in model.outputs)
    nodes = (node for node in model.proto.graph.node if node.op_type == "Conv")
    return tuple(node.output[0] for node in nodes if re.search(pattern, node.name))


def batches(name: str) -> list[dict[str, np.ndarray]]:
    return feeds(name, 1 if NETWORKS[name].size >= 300 else 4, seed=1)


def sqnr(reference: list[np.ndarray], other: list[np.ndarray]) -> float:
    """Over all outputs, each with the same weight whatever its size: 10·log10(1 / mean of noise / signal)."""
    ratios = [
        float(((a.astype(np.float64) - b) ** 2).sum() / (a.astype(np.float64) ** 2).sum())
        for a, b in zip(reference, other, strict=True)
    ]
    return -10 * float(np.log10(np.mean(ratios)))


@pytest.fixture(scope="session")
def in_float(exported: Exported) -> Callable[[str], list[list[np.ndarray]]]:
    """Name of a network → its compared outputs in FP32, for each of its batches."""

    @cache
    def run(name: str) -> list[list[np.ndarray]]:
        source = exported(name)
        return list(map(opened(source, compared(name, source)), batches(name)))

    return run


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_int8_answers_as_fp32(
    name: str,
    method: str,
    exported: Exported,
    quantized: Quantized,
    in_float: Callable[[str], list[list[np.ndarray]]],
) -> None:
    run = opened(quantized(name, method, "tensorrt-8.6").model, compared(name, exported(name)))
    found = [sqnr(exact, run(batch)) for exact, batch in zip(in_float(name), batches(name), strict=True)]
    assert float(np.mean(found)) > NETWORKS[name].floor, NETWORKS[name].reason


@pytest.mark.parametrize("name", NAMES)
def test_targets_differ_in_form_and_not_in_values(
    name: str, exported: Exported, quantized: Quantized
) -> None:
    outputs, batch = compared(name, exported(name)), batches(name)[0]
    first, second = (opened(quantized(name, "entropy", target).model, outputs)(batch) for target in TARGETS)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_model_is_valid_and_its_interface_as_before(
    name: str, target: str, exported: Exported, quantized: Quantized
) -> None:
    before, after = exported(name).proto, quantized(name, "entropy", target).model.proto
    onnx.checker.check_model(after, full_check=True)
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    assert after.ir_version == before.ir_version
    assert list(after.opset_import) == list(before.opset_import)


@pytest.mark.parametrize("name", NAMES)
def test_every_node_with_a_weight_is_quantized_or_has_a_reason(
    name: str, exported: Exported, quantized: Quantized
) -> None:
    result = quantized(name, "entropy", "tensorrt-8.6")
    with_weights = Counter(node.name for node in exported(name).proto.graph.node if node.op_type in WEIGHTED)
    in_int8 = Counter(reader for pair in result.pairs if pair.weight for reader in pair.readers)
    left = Counter(item.node for item in result.left_float if item.op in WEIGHTED)
    assert in_int8 + left == with_weights
    # The products of queries, keys and values; all other weights are constants with a scale.
    assert {item.reason for item in result.left_float} <= {"it multiplies two activations"}
    assert left.total() == (4 if name == "vit" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_every_node_is_explained_once(name: str, exported: Exported, quantized: Quantized) -> None:
    found = quantized(name, "entropy", "tensorrt-8.6").explanation
    readers = {reader for pair in found.pairs if not pair.weight for reader in pair.readers}
    floats = [node for group in found.float_groups for node in group.nodes]
    left = {item.node for item in found.left_float}
    nodes = [node.name for node in exported(name).proto.graph.node]
    assert sorted([*readers, *floats, *left]) == sorted(nodes)
    assert all(group.reason for group in found.float_groups)


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_int8_is_left_in_float_and_counted(
    name: str, exported: Exported, quantized: Quantized
) -> None:
    graph = exported(name).proto.graph
    result = quantized(name, "entropy", "tensorrt-8.6")
    # A feature pyramid's Resize of nearest values hands on the pair of the map that a convolution reads too.
    moving = {name for pair in result.pairs if "branch through Resize" in pair.rule for name in pair.readers}
    expected = Counter(n.op_type for n in graph.node if n.op_type in NEVER_INT8 and n.name not in moving)
    assert moving or name != "faster_rcnn"
    counted: Counter[str] = Counter()
    for group in result.explanation.float_groups:
        if group.op in NEVER_INT8:
            counted[group.op] += group.count
    assert counted == expected
    inside = {node.name: len(list(inner_nodes(node))) for node in graph.node}
    subgraphs = {found.node: found.count for found in result.explanation.subgraphs}
    assert subgraphs == {node: count for node, count in inside.items() if count}
    noted = [note for note in result.notes if "stay in float" in note]
    assert len(noted) == bool(subgraphs)


def inner_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield inner
                yield from inner_nodes(inner)


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("faster_rcnn", {"RoiAlign", "TopK", "NonZero", "If", "NonMaxSuppression"}),
        ("mask_rcnn", {"RoiAlign", "TopK", "NonZero", "If", "Loop", "ScatterElements", "NonMaxSuppression"}),
        ("ssd", {"TopK", "NonZero", "GatherND", "If", "NonMaxSuppression"}),
        ("ssdlite", {"TopK", "NonZero", "GatherND", "If", "NonMaxSuppression"}),
    ],
)
def test_detectors_hold_the_operators_that_they_are_here_for(
    name: str, operators: set[str], exported: Exported
) -> None:
    nodes = exported(name).proto.graph.node
    found = {node.op_type for node in nodes} | {
        inner.op_type for node in nodes for inner in inner_nodes(node)
    }
    assert operators <= found


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_find_boxes_of_the_same_form(name: str, exported: Exported, quantized: Quantized) -> None:
    source, size = exported(name), NETWORKS[name].size
    outputs = tuple(spec.name for spec in source.outputs)
    (batch,) = feeds(name, 1, seed=3)
    before = opened(source, outputs)(batch)
    after = opened(quantized(name, "minmax", "tensorrt-8.6").model, outputs)(batch)
    assert [array.dtype for array in after] == [array.dtype for array in before]
    assert [array.shape[1:] for array in after] == [array.shape[1:] for array in before]
    boxes = after[0]
    assert len(boxes) > 0
    assert len({len(array) for array in after}) == 1
    assert np.isfinite(boxes).all()
    assert (boxes.min(), boxes.max()) >= (0, 0)
    assert boxes.max() <= size
