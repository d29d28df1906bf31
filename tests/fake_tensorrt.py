"""A stand-in for the ``tensorrt`` module, for what needs a GPU with the real one.

It has the names that 8.6, 10 and 11 have (from the real modules' ``dir``), reads models with onnx, and
refuses what TensorRT refuses: parsing without the explicit-batch bit in 8, dynamic shapes without a profile,
Q/DQ nodes without the INT8 flag, a cache of another version. What it "builds" is a text of what it was told.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import onnx

FAKE_MAGIC = b"fake plan:"


@dataclass
class Behaviour:
    """What a test can see and choose.

    Attributes:
        cuda_error: Number of the error with which CUDA does not start; None where it does.
        parse_errors: (code, description, node index) of each error that the parser finds.
        unknown: Operators that the parser has no importer for.
        fails_with: Lines that the builder says before it returns None.
        says: Lines that it says in a build that succeeds.
        raises: What building raises.
        refuse_timing: Whether timing caches are refused.
        refuse_cache: Whether calibration caches are refused.
        builds: What each build was told.
        layers: What the inspector says of the engine of each build; of further ones what it says of the last.
        loads: Whether engines can be loaded.
    """

    cuda_error: int | None = None
    parse_errors: list[tuple[str, str, int]] = field(default_factory=list)
    unknown: tuple[str, ...] = ()
    fails_with: list[tuple[str, str]] | None = None
    says: list[tuple[str, str]] = field(default_factory=list)
    raises: Exception | None = None
    refuse_timing: bool = False
    refuse_cache: bool = False
    builds: list[dict[str, Any]] = field(default_factory=list)
    layers: list[str] = field(default_factory=lambda: [json.dumps({"Layers": ["a layer"]})])
    loads: bool = True


def make_tensorrt(version: str) -> ModuleType:
    """A module like ``tensorrt`` of that version; ``module.behaviour`` is its ``Behaviour``."""
    module = ModuleType("tensorrt")
    major = int(version.split(".")[0])
    trt: Any = module
    trt.__version__ = version
    trt.behaviour = Behaviour()
    trt.ILogger = _ILogger
    trt.BuilderFlag = enum.Enum("BuilderFlag", _builder_flags(major))
    creation = {8: ["EXPLICIT_BATCH", "EXPLICIT_PRECISION"], 10: ["EXPLICIT_BATCH", "STRONGLY_TYPED"]}
    trt.NetworkDefinitionCreationFlag = enum.IntEnum(
        "NetworkDefinitionCreationFlag", creation.get(major, ["STRONGLY_TYPED"]), start=0
    )
    types = [
        "FLOAT",
        "HALF",
        "INT8",
        "INT32",
        "BOOL",
        "UINT8",
        "FP8",
        *(["BF16", "INT64"] if major > 8 else []),
    ]
    trt.DataType = enum.Enum("DataType", types)
    trt.ProfilingVerbosity = enum.Enum("ProfilingVerbosity", ["LAYER_NAMES_ONLY", "NONE", "DETAILED"])
    trt.MemoryPoolType = enum.Enum("MemoryPoolType", ["WORKSPACE", "TACTIC_DRAM"])
    trt.HardwareCompatibilityLevel = enum.Enum("HardwareCompatibilityLevel", ["NONE", "AMPERE_PLUS"])
    trt.LayerType = enum.Enum("LayerType", ["CONSTANT", "CONVOLUTION", "DECONVOLUTION", "SHUFFLE"])
    trt.ILayer = type("ILayer", (), {"precision": property(id)} if major < 11 else {})
    trt.ITensor = type("ITensor", (), {"set_dynamic_range": id} if major < 11 else {})
    trt.IOutputAllocator = type("IOutputAllocator", (), {})
    trt.ICudaEngine = type("ICudaEngine", (), {n: id for n in ("num_io_tensors", "get_tensor_name")})
    trt.IExecutionContext = type("IExecutionContext", (), {"execute_async_v3": id})
    trt.init_libnvinfer_plugins = lambda logger, namespace: True
    if major < 11:
        for name in ("", "Entropy", "Entropy2", "MinMax", "Legacy"):
            kind = {"Entropy2": "IInt8EntropyCalibrator2"}.get(name, f"IInt8{name}Calibrator")
            setattr(trt, kind, type(kind, (), {"__init__": lambda self: None}))
    trt.IBuilderConfig = _config_class(major)
    trt.OnnxParser = type("OnnxParser", (_Parser,), {"trt": trt})
    trt.Builder = type("Builder", (_Builder,), {"trt": trt})
    trt.Runtime = type("Runtime", (_Runtime,), {"trt": trt})
    trt.TensorIOMode = enum.Enum("TensorIOMode", ["INPUT", "OUTPUT"])
    trt.LayerInformationFormat = enum.Enum("LayerInformationFormat", ["ONELINE", "JSON"])
    return module


def _builder_flags(major: int) -> list[str]:
    kept = ["TF32", "REFIT", "SPARSE_WEIGHTS", "VERSION_COMPATIBLE"]
    weak = ["FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"]
    return kept + (weak if major < 11 else [])


class _ILogger:
    class Severity(enum.Enum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3
        VERBOSE = 4

    def log(self, severity: Any, msg: str) -> None:
        raise NotImplementedError


class _TimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content or b"new timings"

    def serialize(self) -> bytes:
        return self.content


class _Config:
    """A builder config; the calibrator and its profile are added for versions that have them."""

    def __init__(self, trt: Any, logger: Any) -> None:
        self.trt, self.logger = trt, logger
        self.flags = {trt.BuilderFlag.TF32}
        self.profiles: list[_Profile] = []
        self.pools: dict[str, int] = {}
        self.timing: _TimingCache | None = None
        self.builder_optimization_level = 3
        self.hardware_compatibility_level = trt.HardwareCompatibilityLevel.NONE
        self.profiling_verbosity = trt.ProfilingVerbosity.LAYER_NAMES_ONLY
        self.calibration_profile: _Profile | None = None

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag)

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        self.pools[pool.name] = size

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> _TimingCache:
        return _TimingCache(content)

    def set_timing_cache(self, cache: _TimingCache, ignore_mismatch: bool) -> bool:
        assert ignore_mismatch is False
        if self.trt.behaviour.refuse_timing and cache.content != b"new timings":
            self.logger.log(_ILogger.Severity.WARNING, "The timing cache will not be used!")
            return False
        self.timing = cache
        return True

    def get_timing_cache(self) -> _TimingCache | None:
        return self.timing


def _config_class(major: int) -> type:
    """What ``dir`` of the class shows; objects get the values."""
    shown: dict[str, Any] = {
        "builder_optimization_level": 3,
        "hardware_compatibility_level": 0,
        "profiling_verbosity": 0,
    }
    if major < 11:
        shown |= {"int8_calibrator": _Calibrator(), "set_calibration_profile": _set_calibration_profile}
    return type("IBuilderConfig", (_Config,), shown)


class _Calibrator:
    """``config.int8_calibrator``: a property, so that it is there on the class."""

    def __get__(self, config: Any, owner: Any) -> Any:
        return self if config is None else config.__dict__.get("calibrator")

    def __set__(self, config: Any, value: Any) -> None:
        config.__dict__["calibrator"] = value


def _set_calibration_profile(config: Any, profile: Any) -> bool:
    config.calibration_profile = profile
    return True


class _Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[tuple[int, ...], ...]] = {}
        self.values: dict[str, tuple[tuple[int, ...], ...]] = {}

    def set_shape_input(self, name: str, smallest: Any, usual: Any, largest: Any) -> None:
        self.values[name] = (tuple(smallest), tuple(usual), tuple(largest))

    def set_shape(self, name: str, smallest: Any, usual: Any, largest: Any) -> None:
        self.shapes[name] = (tuple(smallest), tuple(usual), tuple(largest))


class _Tensor:
    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        self.name, self.shape, self.dtype, self.is_shape_tensor = name, shape, dtype, False


class _Layer:
    def __init__(self, name: str, kind: Any, inputs: Sequence[str], outputs: Sequence[str], trt: Any) -> None:
        self.name, self.type, self.metadata = name, kind, ""
        self.inputs = [_Tensor(name, (), trt.DataType.FLOAT) for name in inputs]
        self.outputs = [_Tensor(name, (), trt.DataType.FLOAT) for name in outputs]
        self.num_inputs, self.num_outputs = len(self.inputs), len(self.outputs)
        self.precision: Any = None
        self.output_types: dict[int, Any] = {}

    def get_input(self, index: int) -> _Tensor:
        return self.inputs[index]

    def get_output(self, index: int) -> _Tensor:
        return self.outputs[index]

    def set_output_type(self, index: int, kind: Any) -> None:
        self.output_types[index] = kind


def _layers(graph: onnx.GraphProto, trt: Any) -> Iterator[_Layer]:
    """A layer for each node, and the shuffle that 8.6's parser puts before a Gemm."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for index, node in enumerate(graph.node):
        if node.op_type == "Gemm":
            helper = f"(Unnamed Layer* {index}) [Shuffle]"
            yield _Layer(helper, trt.LayerType.SHUFFLE, node.input[:1], [f"{helper}_output"], trt)
        name = node.name or f"node_of_{node.output[0]}"
        flat = node.op_type == "Conv" and ranks.get(node.input[1]) == 3
        for layer in _flat_convolution(name, node, trt) if flat else [_layer(name, node, trt)]:
            layer.metadata = f"[ONNX Layer: {name}]"
            yield layer


def _layer(name: str, node: onnx.NodeProto, trt: Any) -> _Layer:
    kinds = trt.LayerType
    kind = kinds.DECONVOLUTION if node.op_type == "ConvTranspose" else kinds.CONVOLUTION
    return _Layer(name, kind, node.input[:1], node.output, trt)


def _flat_convolution(name: str, node: onnx.NodeProto, trt: Any) -> list[_Layer]:
    """A convolution of one dimension is one of two between shuffles; 8.6 gives the first the node's name."""
    kinds = trt.LayerType
    return [
        _Layer(name, kinds.SHUFFLE, node.input[:1], [f"{name}_wide"], trt),
        _Layer(f"{name}_0", kinds.CONVOLUTION, [f"{name}_wide"], [f"{name}_made"], trt),
        _Layer(f"{name}_1", kinds.SHUFFLE, [f"{name}_made"], node.output, trt),
    ]


class _Network:
    def __init__(self, flags: int) -> None:
        self.flags, self.inputs, self.layers, self.quantized = flags, [], [], False  # type: ignore[var-annotated]

    num_inputs = property(lambda self: len(self.inputs))
    num_layers = property(lambda self: len(self.layers))

    def get_input(self, index: int) -> _Tensor:
        return self.inputs[index]

    def get_layer(self, index: int) -> _Layer:
        return self.layers[index]


class _Error:
    """A ``trt.ParserError``; only from 10 on does it know names."""

    def __init__(self, code: str, text: str, index: int) -> None:
        self._facts = code, text, index

    def code(self) -> str:
        return f"ErrorCode.{self._facts[0]}"

    def desc(self) -> str:
        return self._facts[1]

    def node(self) -> int:
        return self._facts[2]


class _Parser:
    trt: Any

    def __init__(self, network: _Network, logger: Any) -> None:
        self.network, self.logger = network, logger
        self.errors: list[_Error] = []

    num_errors = property(lambda self: len(self.errors))

    def get_error(self, index: int) -> _Error:
        return self.errors[index]

    def supports_operator(self, name: str) -> bool:
        return name not in self.trt.behaviour.unknown

    def parse_from_file(self, path: str) -> bool:
        self.network.source = "file"
        return self._read(onnx.load(path))

    def parse(self, content: bytes) -> bool:
        self.network.source = "bytes"
        return self._read(onnx.load_from_string(content))

    def _read(self, model: onnx.ModelProto) -> bool:
        trt = self.trt
        if trt.__version__.startswith("8.") and not self.network.flags & 1:
            self.errors = [_Error("INVALID_GRAPH", "explicit batch is needed to parse ONNX", -1)]
            return False
        if trt.behaviour.parse_errors:
            self.errors = [_Error(*error) for error in trt.behaviour.parse_errors]
            return False
        weights = {tensor.name for tensor in model.graph.initializer}
        for info in model.graph.input:
            if info.name not in weights:
                shape = tuple(dim.dim_value or -1 for dim in info.type.tensor_type.shape.dim)
                self.network.inputs.append(_Tensor(info.name, shape, trt.DataType.FLOAT))
        self.network.layers = list(_layers(model.graph, trt))
        self.network.pairs = sum(node.op_type == "QuantizeLinear" for node in model.graph.node)
        self.network.quantized = self.network.pairs > 0
        self.network.opset = model.opset_import[0].version
        return True


class _Runtime:
    """Loads what the builder made last, and knows its layers."""

    trt: Any

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> _Engine | None:
        assert plan.startswith(FAKE_MAGIC)
        behaviour = self.trt.behaviour
        if not behaviour.loads:
            self.logger.log(_ILogger.Severity.ERROR, "out of memory")
            return None
        return _Engine(behaviour.layers[min(len(behaviour.builds), len(behaviour.layers)) - 1])


@dataclass
class _Engine:
    layers: str
    num_io_tensors: int = 0

    def create_execution_context(self) -> object:
        return object()

    def create_engine_inspector(self) -> _Inspector:
        return _Inspector(self.layers)


@dataclass
class _Inspector:
    layers: str
    execution_context: Any = None

    def get_engine_information(self, form: Any) -> str:
        assert form.name == "JSON"
        return self.layers


class _Plan(bytes):
    nbytes = property(len)


class _Builder:
    trt: Any

    def __init__(self, logger: Any) -> None:
        self.logger, self.rows = logger, []  # type: ignore[var-annotated]
        error = self.trt.behaviour.cuda_error
        if error is not None:
            text = f"CUDA initialization failure with error: {error}. Please check your CUDA installation:"
            logger.log(_ILogger.Severity.WARNING, text)
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def create_network(self, flags: int = 0) -> _Network:
        return _Network(flags)

    def create_builder_config(self) -> Any:
        return self.trt.IBuilderConfig(self.trt, self.logger)

    def create_optimization_profile(self) -> _Profile:
        return _Profile()

    def build_serialized_network(self, network: _Network, config: Any) -> _Plan | None:
        behaviour = self.trt.behaviour
        self._say(behaviour.says)
        if behaviour.raises is not None:
            raise behaviour.raises
        if behaviour.fails_with is not None:
            return self._fail(behaviour.fails_with)
        if (refusal := self._refusal(network, config)) is not None:
            return self._fail([("ERROR", refusal)])
        told = self._told(network, config)
        behaviour.builds.append(told)
        return _Plan(FAKE_MAGIC + json.dumps(told, sort_keys=True).encode())

    def _say(self, lines: Sequence[tuple[str, str]]) -> None:
        for severity, text in lines:
            self.logger.log(_ILogger.Severity[severity], text)

    def _fail(self, lines: Sequence[tuple[str, str]]) -> None:
        self._say(lines)

    def _refusal(self, network: _Network, config: Any) -> str | None:
        profiles = config.profiles[0].shapes if config.profiles else {}
        if any(-1 in tensor.shape and tensor.name not in profiles for tensor in network.inputs):
            return "Network has dynamic or shape inputs, but no optimization profile has been defined."
        flags = {flag.name for flag in config.flags}
        weak = hasattr(self.trt.BuilderFlag, "INT8")
        if weak and network.quantized and "INT8" not in flags:
            return (
                "INT8 mode needs to be enabled for networks with INT8 QuantizeLayer/DequantizeLayer layers."
            )
        if weak and "INT8" in flags and not network.quantized:
            return self._calibrate(config.int8_calibrator)
        return None

    def _calibrate(self, calibrator: Any) -> str | None:
        if calibrator is None:
            return "Calibration failure occurred with no scaling factors detected."
        content = calibrator.read_calibration_cache()
        if content is not None and not self.trt.behaviour.refuse_cache:
            self.rows = [line.rpartition(": ")[0] for line in bytes(content).decode().splitlines()[1:]]
            return None
        while calibrator.get_batch(["x"]):
            pass
        return None

    def _told(self, network: _Network, config: Any) -> dict[str, Any]:
        return {
            "version": self.trt.__version__,
            "network_flags": network.flags,
            "flags": sorted(flag.name for flag in config.flags),
            "shapes": config.profiles[0].shapes,
            "calibrated": getattr(config, "int8_calibrator", None) is not None,
            "calibration_shapes": getattr(config.calibration_profile, "shapes", None),
            "rows": self.rows,
            "level": config.builder_optimization_level,
            "pools": config.pools,
            "verbosity": config.profiling_verbosity.name,
            "hardware": config.hardware_compatibility_level.name,
            "timing": None if config.timing is None else config.timing.content.decode(),
            "qdq": network.quantized,
            "pairs": network.pairs,
            "opset": network.opset,
            "source": network.source,
            "bound": {layer.name: layer.precision.name for layer in network.layers if layer.precision},
        }
