"""Tasks: how a model's outputs become answers, and how good those are."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from calib.data.task_options import TaskOptions
from calib.validation.tasks.base import Context, Figure, Judge, Task

__all__ = ["Context", "Figure", "Judge", "Task", "make_task"]


def make_task(options: TaskOptions, context: Context) -> Task[Any]:
    """Makes the task that a recipe states.

    Args:
        options: What the recipe says.
        context: Dataset, the model's metadata, and the recipe's files.

    Raises:
        UsageError: An option cannot be meant.
        ValidationError: Labels are not what the task needs.
        MissingExtraError: The task needs a package that is not installed.
    """
    # Each kind has a module of its name, loaded only where it is needed.
    module = import_module(f"{__name__}.{options.kind}")
    task: Task[Any] = getattr(module, f"{options.kind.capitalize()}Task")(options, context)
    return task
