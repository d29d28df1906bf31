"""Builds that fail: no GPU, models that cannot be parsed, builders that return None."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_fakes import FakeDevice, InstallTensorRT
from networks import conv_relu_gemm, save

import calib
from calib.engine import target_device
from calib.engine.faults import find_hints, no_gpu_reason, parser_faults
from calib.errors import EngineError, MissingExtraError, UsageError
from calib.graph import load_model


def test_an_input_that_holds_sizes(
    install_tensorrt: InstallTensorRT, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fake_tensorrt

    install_tensorrt("8.6.0")
    monkeypatch.setattr(fake_tensorrt._Tensor, "is_shape_tensor", True, raising=False)
    monkeypatch.setattr(fake_tensorrt._Tensor, "__setattr__", _keep_shape_tensor)
    with pytest.raises(UsageError, match=r"Input 'x' of .* holds sizes of other tensors .*--shapes x:VALUES"):
        calib.build(network)


def _keep_shape_tensor(tensor: object, name: str, value: object) -> None:
    if name != "is_shape_tensor":
        object.__setattr__(tensor, name, value)


def test_no_gpu(install_tensorrt: InstallTensorRT, network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_tensorrt("8.6.0")

    def missing(index: int) -> object:
        raise MissingExtraError("needs pycuda")

    monkeypatch.setattr(target_device, "_open_device", missing)
    monkeypatch.setattr(target_device, "detect_gpus", lambda: ())
    with pytest.raises(EngineError, match="needs an NVIDIA GPU, and nvidia-smi shows none"):
        calib.build(network)
    with pytest.raises(MissingExtraError, match="needs pycuda"):
        calib.build(network, device=1)
    gpu = target_device.TargetDevice("Tesla T4", (7, 5))
    monkeypatch.setattr(target_device, "detect_gpus", lambda: (gpu,))
    assert calib.build(network).record.device == "Tesla T4"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (35, "error 35, the driver is too old for the CUDA that TensorRT was built with"),
        (100, "error 100, no GPU is visible"),
        (2, "error 2, the GPU's memory is full"),
        (3, "error 3, the driver cannot be initialized"),
        (46, "error 46, the GPU is taken"),
        (804, "error 804, the driver is too old for the CUDA compatibility package"),
        (4711, "CUDA initialization failure with error: 4711"),
    ],
)
def test_cuda_that_does_not_start(
    install_tensorrt: InstallTensorRT, network: Path, code: int, reason: str
) -> None:
    install_tensorrt("8.6.0").cuda_error = code
    with pytest.raises(EngineError, match=rf"TensorRT 8\.6\.0 cannot build here: .*{reason}.*--rtx"):
        calib.build(network)


def test_the_device_is_left_when_the_build_fails(install_tensorrt: InstallTensorRT, network: Path) -> None:
    left = []

    class Watched(FakeDevice):
        def __exit__(self, *_: object) -> None:
            left.append(True)

    install_tensorrt("8.6.0", Watched).fails_with = [("ERROR", "no")]
    with pytest.raises(EngineError):
        calib.build(network)
    assert left == [True]


def test_parser_errors_name_the_node(install_tensorrt: InstallTensorRT, network: Path) -> None:
    """TensorRT 8.6 knows nodes by number only, and stops at the first error."""
    trt = install_tensorrt("8.6.0")
    trt.parse_errors = [("UNSUPPORTED_NODE", "Assertion failed: no importer", 4)]
    trt.unknown = ("Relu", "Flatten")
    with pytest.raises(EngineError) as caught:
        calib.build(network)
    first, second, third, *_ = str(caught.value).splitlines()
    assert first == f"TensorRT 8.6.0 cannot parse {network}:"
    assert second == "  Relu 'relu2' (node 4): Assertion failed: no importer [UNSUPPORTED_NODE]"
    assert third == "  operators that its parser has no importer for: Relu (2 nodes), Flatten (1 node)"


def test_a_node_without_a_name_is_named_by_its_output(
    install_tensorrt: InstallTensorRT, tmp_path: Path
) -> None:
    proto = conv_relu_gemm()
    proto.graph.node[1].name = ""
    install_tensorrt("8.6.0").parse_errors = [("INVALID_NODE", "no", 1)]
    with pytest.raises(EngineError, match=r"Relu 'r1' \(node 1\): no \[INVALID_NODE\]"):
        calib.build(save(proto, tmp_path / "net.onnx"))


class NamedError:
    """A ``trt.ParserError`` of TensorRT 10 and later, of a node inside of a subgraph."""

    code = staticmethod(lambda: "ErrorCode.INVALID_NODE")
    desc = staticmethod(lambda: "no")
    node = staticmethod(lambda: 99)
    node_name = staticmethod(lambda: "strange")
    node_operator = staticmethod(lambda: "MyOp")


def test_a_node_of_a_subgraph_has_a_name_though_the_graph_has_no_such_number(network: Path) -> None:
    parser = SimpleNamespace(num_errors=1, get_error=lambda index: NamedError())
    (fault,) = parser_faults(parser, load_model(network))
    assert str(fault) == "MyOp 'strange' (node 99): no [INVALID_NODE]"


def test_an_error_of_no_node(install_tensorrt: InstallTensorRT, network: Path) -> None:
    install_tensorrt("8.6.0").parse_errors = [("MODEL_DESERIALIZE_FAILED", "Failed to parse", -1)]
    with pytest.raises(EngineError, match=r"\n  Failed to parse \[MODEL_DESERIALIZE_FAILED\]$"):
        calib.build(network)


@pytest.mark.parametrize("severity", ["ERROR", "INTERNAL_ERROR", "WARNING"])
def test_the_builders_own_lines_are_told(
    install_tensorrt: InstallTensorRT, network: Path, severity: str
) -> None:
    trt = install_tensorrt("8.6.0")
    trt.says = [("INFO", "hello")]
    trt.fails_with = [(severity, "10: Could not find any implementation for node conv1 + relu1.")] * 2
    with pytest.raises(EngineError) as caught:
        calib.build(network, precision="fp16")
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        f"TensorRT 8.6.0 cannot build {network} (fp16) for NVIDIA H200:",
        "  10: Could not find any implementation for node conv1 + relu1.",
    ]
    assert lines[2].startswith("Try: A layer has no kernel in this precision")
    assert len(lines) == 3


def test_a_builder_that_says_nothing(install_tensorrt: InstallTensorRT, network: Path) -> None:
    install_tensorrt("8.6.0").fails_with = []
    with pytest.raises(EngineError, match="the builder gave no reason"):
        calib.build(network)


def test_a_builder_that_raises(install_tensorrt: InstallTensorRT, network: Path) -> None:
    install_tensorrt("8.6.0").raises = MemoryError("std::bad_alloc: out of memory")
    with pytest.raises(EngineError, match=r"bad_alloc: out of memory\nTry: The GPU's memory is full"):
        calib.build(network)


# Lines of TensorRT 8.6.0, TensorRT-RTX 1.7.1 and their parsers.
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ('creator && "Plugin not found, are the plugin name, version, and namespace correct?"', "plug-in"),
        ("No importer registered for op: Foo", "has no such operator"),
        ("Could not find any implementation for node {ForeignNode[a...b]}.", "--keep-float"),
        (
            "INT8 mode needs to be enabled for networks with INT8 QuantizeLayer/DequantizeLayer layers.",
            "--precision int8 or best",
        ),
        (
            "Calibration failure occurred with no scaling factors detected. This could be due to no int8 "
            "calibrator or insufficient custom scales for network layers.",
            "calib cache lint",
        ),
        ("Calibration table does not match calibrator algorithm type.", "calib cache convert"),
        ("Tensor `images` is bound to nullptr", "calib cache convert"),
        ("Out of memory error while finding fastest tactic for conv1", "memory is full"),
        (
            "The engine plan file is generated on an incompatible device, expecting compute 9.0 got 8.6",
            "another GPU",
        ),
        (
            "The engine plan file is not compatible with this version of TensorRT, expecting library version "
            "8.6.0.12 got 8.5.3.1, please rebuild.",
            "another TensorRT",
        ),
        (
            "Version tag does not match. Note: Current Version: 232, Serialized Engine Version: 213",
            "another TensorRT",
        ),
        ("Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed.", "another TensorRT"),
        ("Network has dynamic or shape inputs, but no optimization profile has been defined.", "--shapes"),
        ("TensorRT only supports symmetric quantization. The zero point for the", "symmetric scales only"),
        ("Invalid Node - model.0.conv.bias_DequantizeLinear", "no quantized bias"),
        ("Scale coefficients must all be positive", "zero or negative"),
        (
            "Assertion failed: creator && getPluginCreatorVersion(creator) == CreatorVersion::kV3ONE: "
            "NonZero plugin creator version 1 was not found in plugin registry.",
            "plug-in",
        ),
        (
            "Tactic Selection: no tactics to implement the operation within workspace limit. Consider "
            "increase the allowed workspace size if applicable.",
            "raise --workspace",
        ),
        (
            "Unable to load library: libnvinfer_lean.so.1: libnvinfer_lean.so.1: cannot open shared object "
            "file: No such file or directory",
            "leave --version-compatible out",
        ),
        (
            "Unable to load library: libnvinfer_builder_resource.so.8.6.0: cannot open shared object file",
            "LD_LIBRARY_PATH",
        ),
        (
            "Cannot compile operation '/fc1/Gemm' for Turing (SM75): FP32 GEMM is not supported.",
            "--precision fp16 or best",
        ),
        ("Target GPU SM 120 is not supported by this TensorRT release.", "no kernels for this GPU"),
        (
            "1: [caskUtils.cpp::trtSmToCask::193] Internal Error (Unsupported SM: 0x601)",
            "no kernels for this GPU",
        ),
        ("cudaError: no kernel image is available for execution on the device", "no kernels for this GPU"),
        ("Tactic Device request: 9472MB Available: 8113MB. Device memory is insufficient", "memory is full"),
        (
            "Requested amount of GPU memory (2147483648 bytes) could not be allocated. There may not be "
            "enough free memory for allocation to succeed.",
            "memory is full",
        ),
        ("input: dynamic input is missing dimensions in profile 0.", "--shapes"),
        (
            "Platform specific tag mismatch detected. TensorRT plan files are only supported on the target "
            "runtime platform they were created on.",
            "another operating system",
        ),
    ],
)
def test_known_errors_have_a_way_out(line: str, hint: str) -> None:
    assert len(find_hints([line])) == 1
    assert hint in find_hints([line])[0]


@pytest.mark.parametrize(
    ("text", "started"),
    [
        ("Cuda Runtime (cudaError 35: CUDA driver version is insufficient for CUDA runtime version)", False),
        ("Cuda Runtime (cudaError 2: out of memory)", True),  # happens to a program that runs, too
        ("CUDA initialization failure with error: 2. Please check your CUDA installation", False),
    ],
)
def test_cuda_that_did_not_start_is_told_from_work_that_failed(text: str, started: bool) -> None:
    api: Any = SimpleNamespace(title="TensorRT 10.3.0")
    assert (no_gpu_reason(api, [("ERROR", text)]) is None) is started


def test_an_error_holds_nothing_of_tensorrt(
    install_tensorrt: InstallTensorRT, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fake_tensorrt

    install_tensorrt("8.6.0").fails_with = [("ERROR", "no")]
    made: list[weakref.ref[object]] = []
    create = fake_tensorrt._Builder.create_network

    def watched(builder: fake_tensorrt._Builder, flags: int = 0) -> object:
        made.append(weakref.ref(found := create(builder, flags)))
        return found

    monkeypatch.setattr(fake_tensorrt._Builder, "create_network", watched)
    with pytest.raises(EngineError, match="no") as caught:
        calib.build(network)
    assert caught.value.__traceback__ is not None
    assert [reference() for reference in made] == [None]
