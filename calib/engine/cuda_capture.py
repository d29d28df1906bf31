"""CUDA graphs through the driver's library itself, for PyCUDA, which has nothing for them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from calib.engine.cuda_failures import cuda_failure, too_old
from calib.engine.driver_library import load_driver_library

__all__ = ["SPOILT", "THREAD_LOCAL", "GraphCapture", "LaunchableGraph"]

THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do meanwhile, such as torch's, spoils nothing."""

SPOILT = range(900, 909)
"""Error codes CUDA_ERROR_STREAM_CAPTURE_*: something was enqueued that no graph can hold."""

_HANDLE = ctypes.c_void_p
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuStreamBeginCapture_v2": (_HANDLE, ctypes.c_int),
    "cuStreamEndCapture": (_HANDLE, ctypes.POINTER(_HANDLE)),
    "cuGraphInstantiateWithFlags": (ctypes.POINTER(_HANDLE), _HANDLE, ctypes.c_ulonglong),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}


@dataclass(frozen=True)
class LaunchableGraph:
    """A graph made ready for launching.

    Attributes:
        launchable: The driver's CUgraphExec.
    """

    launchable: int


class GraphCapture:
    """The calls for CUDA graphs of the driver, 11.4 and later.

    Raises:
        EngineError: The driver's library cannot be loaded.
    """

    def __init__(self) -> None:
        self._library = load_driver_library()

    def begin(self, stream: int) -> None:
        """Starts capturing a stream's work.

        Args:
            stream: The CUstream.

        Raises:
            EngineError: The driver refuses.
        """
        self._checked("cuStreamBeginCapture_v2", stream, THREAD_LOCAL)

    def end(self, stream: int) -> LaunchableGraph | None:
        """Ends the capture.

        Args:
            stream: The CUstream.

        Returns:
            The graph; None where the capture was spoilt.

        Raises:
            EngineError: The driver refuses.
        """
        graph = _HANDLE()
        code = self._call("cuStreamEndCapture", stream, ctypes.byref(graph))
        if code in SPOILT:
            return None
        self._check("cuStreamEndCapture", code)
        if graph.value is None:
            return None
        launchable = _HANDLE()
        try:
            self._checked("cuGraphInstantiateWithFlags", ctypes.byref(launchable), graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)
        return None if launchable.value is None else LaunchableGraph(launchable.value)

    def launch(self, graph: LaunchableGraph, stream: int) -> None:
        """Launches a graph on a stream.

        Raises:
            EngineError: The driver refuses.
        """
        self._checked("cuGraphLaunch", graph.launchable, stream)

    def free(self, graph: LaunchableGraph) -> None:
        """Gives a graph back.

        Raises:
            EngineError: The driver refuses.
        """
        self._checked("cuGraphExecDestroy", graph.launchable)

    def _checked(self, name: str, *arguments: Any) -> None:
        self._check(name, self._call(name, *arguments))

    def _call(self, name: str, *arguments: Any) -> int:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise too_old(name) from error
        function.argtypes, function.restype = _ARGUMENTS[name], ctypes.c_int
        return int(function(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._call("cuGetErrorString", code, ctypes.byref(text))
            raise cuda_failure(name, (text.value or f"error {code}".encode()).decode())
