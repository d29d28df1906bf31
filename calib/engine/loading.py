"""A serialized engine made into one that runs, or the reason why it cannot be, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calib.errors import EngineError

if TYPE_CHECKING:
    from calib.engine.api import Api

__all__ = ["load_engine", "said_by_tensorrt"]


def load_engine(
    api: Api,
    plan: bytes,
    logger: Any,
    *,
    origin: str = "",
    here: str = "",
    host_code: bool = False,
) -> tuple[Any, Any]:
    """Deserializes an engine. CUDA must have been started.

    Args:
        api: TensorRT.
        plan: The serialized engine.
        logger: A logger of ``capture_log``.
        origin: Where the engine comes from, for the message: "m.engine, built by TensorRT 8.6.0 for …".
        here: The GPU that is here.
        host_code: Lets a version-compatible engine run the runtime code that it holds. It is code like
            any program's: only for engines that are trusted.

    Returns:
        The ``trt.Runtime``, which must outlive the engine, and the ``trt.ICudaEngine``.

    Raises:
        EngineError: It is of another version, another device, cut off, or no engine at all; or CUDA does not
            start for this TensorRT.
    """
    trt, start = api.trt, len(logger.lines)
    if api.has("plugins"):
        # Else NMS and other layers that NVIDIA ships as plug-ins are unknown.
        trt.init_libnvinfer_plugins(logger, "")
    runtime = _make_runtime(api, logger, start)
    if host_code:
        runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise EngineError(_refusal(api, plan, logger.lines[start:], origin, here))
    return runtime, engine


def _make_runtime(api: Api, logger: Any, start: int) -> Any:
    try:
        return api.trt.Runtime(logger)
    except (TypeError, RuntimeError) as error:
        # Where CUDA does not start for TensorRT it makes nothing, and pybind11 says only that.
        lines = logger.lines[start:]
        raise EngineError(
            f"{api.title} cannot run engines here. {_cause(api, lines) or f'It says: {error}.'} calib doctor "
            "shows GPUs and drivers, and which of them do not fit."
        ) from error


def _cause(api: Api, lines: list[tuple[str, str]]) -> str:
    """Why CUDA did not start, or else what TensorRT said; empty where it said nothing."""
    from calib.engine.faults import no_gpu_reason, worst_lines

    reason = no_gpu_reason(api, lines)
    if reason is not None:
        return f"{reason}."
    return said_by_tensorrt(lines) if worst_lines(lines) else ""


def _refusal(api: Api, plan: bytes, lines: list[tuple[str, str]], origin: str, here: str) -> str:
    from calib.engine.faults import no_gpu_reason

    where = f" on {here}" if here else ""
    of = f" ({origin})" if origin else ""
    text = f"{api.title}{where} cannot load the engine of {len(plan)} bytes{of}. {said_by_tensorrt(lines)}"
    if (reason := no_gpu_reason(api, lines)) is not None:
        return f"{text} {reason}."
    if any("host code" in line.lower() for _, line in lines):
        return (
            f"{text} It is version-compatible and holds code of its own. If you trust it, allow that: "
            "calib inspect --host-code, or host_code=True in Python."
        )
    return text


def said_by_tensorrt(lines: list[tuple[str, str]]) -> str:
    """What TensorRT said of a failure, and what to do about it, as sentences.

    Args:
        lines: (name of the severity, text), of the time of the failure.
    """
    from calib.engine.faults import find_hints, worst_lines

    worst = worst_lines(lines)
    said = f"TensorRT says: {' | '.join(worst)}." if worst else "TensorRT says nothing about it."
    return " ".join((said, *find_hints(worst)))
