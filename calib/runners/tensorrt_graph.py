"""A captured CUDA graph of one enqueue, captured anew when what it has fixed changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from calib.errors import CalibError

if TYPE_CHECKING:
    from calib.engine.memory import Graph, Stream

__all__ = ["GraphSlot"]


class GraphSlot:
    """Keeps the last captured graph.

    A capture needs one plain enqueue before it, in which TensorRT does what it put off since shapes were
    set. A capture that fails is not tried again; the plain enqueue stays.

    Attributes:
        wanted: Whether a graph was asked for and nothing spoke against it so far.
        problem: Why there is none though it was asked for; empty otherwise.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.problem = ""
        self._key: Hashable = None
        self._graph: Graph | None = None

    @property
    def captured(self) -> bool:
        """Whether launches go through a graph."""
        return self._graph is not None

    @property
    def state(self) -> str:
        """For records: "on", "off", or "off" with the reason."""
        if self.wanted:
            return "on"
        return f"off: {self.problem}" if self.problem else "off"

    def fits(self, key: Hashable) -> bool:
        """Whether a graph is captured, with these things fixed."""
        return self.captured and key == self._key

    def prepare(self, key: Hashable, enqueue: Callable[[], None], stream: Stream) -> None:
        """Captures the enqueue, unless it is captured already.

        Args:
            key: What a graph has fixed; another key, another graph.
            enqueue: Enqueues the network on the stream, whose inputs are on their way.
            stream: The stream.

        Raises:
            EngineError: The plain enqueue fails.
        """
        if not self.wanted or self.fits(key):
            return
        self.free()
        enqueue()
        stream.synchronize()
        self._graph = self._capture(enqueue, stream)
        self._key = key

    def _capture(self, enqueue: Callable[[], None], stream: Stream) -> Graph | None:
        try:
            stream.begin_capture()
        except CalibError as error:
            self.refuse(str(error))
            return None
        problem = ""
        try:
            enqueue()
        except CalibError as error:
            problem = str(error)
        try:
            # Also after a failure: the stream must leave its capture mode.
            graph = stream.end_capture()
        except CalibError as error:
            self.refuse(problem or str(error))
            return None
        if problem and graph is not None:
            graph.free()
        if problem or graph is None:
            self.refuse(problem or "the CUDA driver made no graph of it")
            return None
        return graph

    def refuse(self, reason: str) -> None:
        """Gives CUDA graphs up."""
        self.wanted, self.problem = False, reason
        self.free()

    def launch(self, stream: Stream) -> None:
        """Launches the captured graph, where there is one."""
        if self._graph is not None:
            self._graph.launch(stream)

    def free(self) -> None:
        """Gives the graph back; a second call does nothing."""
        graph, self._graph = self._graph, None
        if graph is not None:
            graph.free()
