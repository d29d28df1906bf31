"""One TensorRT, whatever its version: which of its parts exist, found by looking for them.

The Python API changed with every major release: 10 took away bindings by index, 11 the calibrators and
the FP16 and INT8 flags, and TensorRT-RTX never had them. Everything else in ``calib.engine`` asks the
table here and never compares versions.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from calib.engine.detect import detect_gpus
from calib.engine.log import make_logger
from calib.errors import EngineError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from calib.graph.targets import Target

__all__ = ["FEATURES", "FLAVOURS", "Api", "capture_log", "find_features", "load_api"]

FLAVOURS = MappingProxyType({"tensorrt": "tensorrt", "tensorrt_rtx": "tensorrt-rtx"})
"""Flavour → extra of calib that brings it."""

# The wheels of the libraries alone bring a module of another name than the package around them.
_MODULES = {
    "tensorrt": ("tensorrt", "tensorrt_bindings"),
    "tensorrt_rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}

FEATURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # field of Api: the attributes that must all be there      | 8.6 | 10.x  | 11.x | RTX
        "calibrators": ("IInt8EntropyCalibrator2", "IBuilderConfig.int8_calibrator"),  # yes yes no no
        "calibration_profile": ("IBuilderConfig.set_calibration_profile",),  # yes yes no no
        "precision_flags": ("BuilderFlag.FP16", "BuilderFlag.INT8"),  # yes yes no no
        "bfloat16": ("DataType.BF16",),  # no yes yes yes
        "int64": ("DataType.INT64",),  # no yes yes yes
        "layer_precision": ("ILayer.precision", "BuilderFlag.OBEY_PRECISION_CONSTRAINTS"),  # yes yes no no
        "dynamic_range": ("ITensor.set_dynamic_range",),  # yes yes no no
        "tf32": ("BuilderFlag.TF32",),  # yes, on by default, everywhere
        "explicit_batch": ("NetworkDefinitionCreationFlag.EXPLICIT_BATCH",),  # needed; ignored; no; no
        "strongly_typed_flag": ("NetworkDefinitionCreationFlag.STRONGLY_TYPED",),  # no yes yes yes
        "optimization_level": ("IBuilderConfig.builder_optimization_level",),  # yes yes yes yes
        "memory_pools": ("IBuilderConfig.set_memory_pool_limit", "MemoryPoolType.WORKSPACE"),
        "detailed_profiling": ("ProfilingVerbosity.DETAILED", "IBuilderConfig.profiling_verbosity"),
        "timing_cache_calls": ("IBuilderConfig.create_timing_cache", "IBuilderConfig.set_timing_cache"),
        "version_compatible": ("BuilderFlag.VERSION_COMPATIBLE",),  # 8.6 and later
        "hardware_compatible": (
            "IBuilderConfig.hardware_compatibility_level",
            "HardwareCompatibilityLevel.AMPERE_PLUS",
        ),
        "compute_capabilities": ("IBuilderConfig.set_compute_capability", "ComputeCapability"),  # RTX alone
        "named_tensors": ("ICudaEngine.num_io_tensors", "ICudaEngine.get_tensor_name"),  # 8.5 and later
        "execute_async_v3": ("IExecutionContext.execute_async_v3",),  # 8.5 and later
        "output_allocator": ("IOutputAllocator",),
        "inspector": ("ICudaEngine.create_engine_inspector",),
        "runtime_config": ("ICudaEngine.create_runtime_config",),  # 10.11 and later
        "engine_stat": ("ICudaEngine.get_engine_stat",),  # 10.14 and later
        "supports_model_v2": ("OnnxParser.supports_model_v2",),  # 10.1 and later
        "plugins": ("init_libnvinfer_plugins",),
    }
)
"""Field of ``Api`` → dotted names that must all exist in the module."""


@dataclass(frozen=True)
class Api:
    """A TensorRT module and what it can do.

    Attributes:
        trt: The module.
        flavour: "tensorrt", or "tensorrt_rtx" for TensorRT-RTX.
        version: The library's version, such as "8.6.0" or "10.16.1.11".
        release: Its first three numbers.
        features: Feature → whether it is there; the names are those of ``FEATURES``.
    """

    trt: Any
    flavour: str
    version: str
    release: tuple[int, int, int]
    features: Mapping[str, bool]

    def has(self, feature: str) -> bool:
        """Whether a feature of ``FEATURES`` is there."""
        return self.features[feature]

    @property
    def calibrators(self) -> bool:
        """Whether the builder calibrates, or takes a calibration cache."""
        return self.features["calibrators"]

    @property
    def precision_flags(self) -> bool:
        """Whether the builder has FP16 and INT8 flags; without them types come from the ONNX file."""
        return self.features["precision_flags"]

    @property
    def strong_typing(self) -> Literal["none", "optional", "always"]:
        """Whether a network may, or must, take every type from the ONNX file."""
        if not self.precision_flags:
            return "always"
        return "optional" if self.features["strongly_typed_flag"] else "none"

    @property
    def timing_cache(self) -> bool:
        """Whether timings can be kept in a file; TensorRT-RTX has the calls, which do nothing."""
        return self.features["timing_cache_calls"] and self.flavour == "tensorrt"

    @property
    def target(self) -> Target:
        """The form of Q/DQ model that it reads, and what is to know of this release."""
        # What only asks which features there are has no use for ONNX.
        from calib.graph.targets import target_of_release

        return target_of_release(self.flavour, self.version)

    @property
    def title(self) -> str:
        """Name and version for messages: "TensorRT 8.6.0"."""
        return f"{'TensorRT' if self.flavour == 'tensorrt' else 'TensorRT-RTX'} {self.version}"


def load_api(flavour: str = "tensorrt") -> Api:
    """Imports TensorRT and looks at what it has. Starts no CUDA.

    Args:
        flavour: "tensorrt", or "tensorrt_rtx" for TensorRT-RTX.

    Raises:
        MissingExtraError: It is not installed.
        EngineError: It is installed and cannot be imported.
        UsageError: There is no such flavour.
    """
    module = _import(flavour)
    version = str(getattr(module, "__version__", "") or "")
    return Api(module, flavour, version, _release(version, flavour), find_features(module))


def find_features(module: Any) -> Mapping[str, bool]:
    """Looks for every feature of ``FEATURES`` in a module.

    >>> from types import SimpleNamespace as Module
    >>> find_features(Module(BuilderFlag=Module(TF32=1)))["tf32"]
    True
    """
    return MappingProxyType(
        {name: all(_has(module, path) for path in paths) for name, paths in FEATURES.items()}
    )


def _has(module: Any, path: str) -> bool:
    value = module
    return all((value := getattr(value, part, None)) is not None for part in path.split("."))


def _import(flavour: str) -> ModuleType:
    if flavour not in FLAVOURS:
        raise UsageError(f"flavour must be one of {', '.join(FLAVOURS)}, got {flavour!r}.")
    for name in _MODULES[flavour]:
        if (module := _import_one(name)) is not None:
            return module
    extra = FLAVOURS[flavour]
    raise MissingExtraError(
        f"Building engines needs {_MODULES[flavour][0]}, which is not installed. "
        f"Install it with: pip install 'int8-calib[{extra}]'{_without_gpu(flavour)}",
        name=_MODULES[flavour][0],
    )


def _without_gpu(flavour: str) -> str:
    """Says that installing TensorRT is not all that is missing, where that is so."""
    if flavour != "tensorrt" or detect_gpus():
        return ""
    return (
        ". It needs an NVIDIA GPU too, and nvidia-smi shows none here: run this on the machine that runs the "
        "engine. TensorRT-RTX (calib build --rtx) builds without a GPU, as a check of the model."
    )


def _import_one(name: str) -> ModuleType | None:
    """The module; None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name == name:
            return None
        raise EngineError(_broken(name, error)) from error
    except (OSError, RuntimeError, AttributeError) as error:
        raise EngineError(_broken(name, error)) from error


def _broken(name: str, error: Exception) -> str:
    return (
        f"{name} is installed but fails to import: {error}. Its libraries, their CUDA version and this "
        "Python must fit each other: calib doctor shows which do not."
    )


def _release(version: str, flavour: str) -> tuple[int, int, int]:
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise EngineError(
            f"{flavour} says that its version is {version!r}: expected one like 8.6.0. "
            "It is no working TensorRT; install it again."
        )
    return int(match[1]), int(match[2]), int(match[3] or 0)


# One logger for each TensorRT, never freed.
_LOGGERS: dict[Any, Any] = {}


def capture_log(api: Api) -> Any:
    """The logger to hand to TensorRT, which keeps what TensorRT says from now on.

    It is always the same one. TensorRT goes on using the first logger that it was given, holds it by its
    address, and complains of any other while it holds the lock that freeing a builder takes as well: if
    Python collected one just then, the process would stand still.

    Args:
        api: TensorRT.

    Returns:
        A ``trt.ILogger``; its ``lines`` are (name of the severity, text), the oldest first, from "INFO" up,
        since this function was last called in the same thread.
    """
    kind = api.trt.ILogger
    if kind not in _LOGGERS:
        _LOGGERS[kind] = make_logger(api.trt)
    _LOGGERS[kind].mark()
    return _LOGGERS[kind]
