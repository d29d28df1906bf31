"""Answers that are read from outputs once, however many comparisons ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from calib.data import Array, Batch
from calib.runners import Runner
from calib.validation.tasks import Task

__all__ = ["Readings"]


class Readings:
    """A task, and what it reads out of the outputs of the batch that is judged.

    Attributes:
        task: Reads the outputs.
    """

    def __init__(self, task: Task[Any]) -> None:
        self.task = task
        self._shared: dict[int, Runner] = {}
        self._batch: Batch | None = None
        self._answers: dict[int, Any] = {}

    def share(self, runners: Iterable[Runner]) -> None:
        """Says that several comparisons ask for the answers of these: theirs alone are kept for a batch."""
        self._shared.update((id(runner), runner) for runner in runners)

    def of(self, runner: Runner, outputs: Mapping[str, Array], batch: Batch) -> Any:
        """What a run answers to a batch.

        Args:
            runner: The run.
            outputs: Its outputs.
            batch: The samples; the same object for all comparisons.
        """
        if batch is not self._batch:
            self._batch, self._answers = batch, {}
        if id(runner) not in self._shared:
            return self.task.answers(outputs, batch)
        if id(runner) not in self._answers:
            self._answers[id(runner)] = self.task.answers(outputs, batch)
        return self._answers[id(runner)]
