"""Runners of models with recurrent state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from typing_extensions import Self

from calib.data import Array, Carried
from calib.graph import StateKeeper
from calib.runners.base import Runner

__all__ = ["CarryingRunner", "carrying"]


class CarryingRunner:
    """Runs batches in order and feeds each with the state that the one before left.

    Feeds that hold the state inputs begin a sequence; feeds without them go on.

    Args:
        runner: Runs the model.
        state: The state inputs, and the outputs that feed them.
    """

    def __init__(self, runner: Runner, state: Mapping[str, Carried]) -> None:
        self.name = runner.name
        self.precision = runner.precision
        self.clock = runner.clock
        self.note = runner.note
        self.output_names = runner.output_names
        self._runner = runner
        self._state = state
        self._keeper = StateKeeper(runner.output_names, f"the {runner.precision} model")

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.__exit__(kind, error, trace)

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch; see ``Runner.infer``."""
        outputs = self._runner.infer(self._keeper.complete(self._state, feeds))
        self._keeper.keep(self._state, outputs)
        return outputs

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        """Times one batch, with the state as it is; see ``Runner.time_ms``."""
        return self._runner.time_ms(self._keeper.complete(self._state, feeds))


def carrying(runners: Sequence[Runner], state: Mapping[str, Carried]) -> Sequence[Runner]:
    """Runners that carry a dataset's state, each its own; the same runners where there is none."""
    return [CarryingRunner(runner, state) for runner in runners] if state else runners
