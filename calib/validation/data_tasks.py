"""What a recipe's task says of the FP32 model's answers to a few samples, before INT8 is judged."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import TYPE_CHECKING

from calib.data import Dataset, Recipe
from calib.data.findings import Finding, Severity
from calib.data.task_options import ClassificationOptions
from calib.errors import DatasetError, MissingExtraError, UsageError, ValidationError
from calib.graph import FeedBuilder, OnnxModel
from calib.progress import track
from calib.runners import OnnxRuntimeRunner, carrying
from calib.validation.comparison import Comparison
from calib.validation.subject import Subject, batches, size_of_batches
from calib.wording import counted

if TYPE_CHECKING:
    from calib.validation.tasks import Figure

__all__ = ["check_task"]


def check_task(
    model: OnnxModel,
    recipe: Recipe | None,
    dataset: Dataset,
    chosen: Collection[str],
    *,
    scores: str | None = None,
    threads: int | None = None,
    batch_size: int = 8,
) -> list[Finding]:
    """Judges FP32 by the recipe's task, as validation will: labels, outputs and options must fit.

    Classifications are judged elsewhere, with other preparations of the same samples.

    Args:
        model: The FP32 model.
        recipe: The recipe, whose task it is; None for a dataset from Python.
        dataset: All samples of the use.
        chosen: Ids of those to try; whole groups are taken, such as both sentences of a pair.
        scores: The output that holds class scores, which no other task has.
        threads: Threads inside an operator; None for one a core.
        batch_size: Samples a batch, where neither model nor state insist on another.

    Returns:
        An error where the task cannot be judged at all, else FP32's main figure and its doubts.

    Raises:
        UsageError: Class scores are named, and the task is another one.
    """
    if recipe is None or recipe.task is None or isinstance(recipe.task, ClassificationOptions):
        return []
    if scores is not None:
        raise UsageError(
            f"--scores names an output of class scores, and the task is {recipe.task.kind}. Leave it out."
        )
    where = (str(recipe.path) if recipe.path.is_file() else dataset.name,)
    samples = _with_groups(dataset, chosen)
    try:
        comparison = _judged(model, Subject(samples, recipe, recipe.task), threads, batch_size)
        return _findings(comparison, len(samples), where)
    except MissingExtraError as error:
        return [Finding("not-judged", "note", str(error))]
    except (DatasetError, UsageError, ValidationError) as error:
        advice = f"The task of the recipe is {recipe.task.kind}: is it meant for these labels and this model?"
        return [Finding("task-misfit", "error", str(error), where, advice)]


def _with_groups(dataset: Dataset, chosen: Collection[str]) -> Dataset:
    wanted = set(chosen)
    if dataset.groups is not None:
        groups = {group for group, name in zip(dataset.groups, dataset.ids, strict=True) if name in wanted}
        indices = [index for index, group in enumerate(dataset.groups) if group in groups]
        # Recordings are long: what state carries on must begin where it does, and end somewhere.
        return dataset.subset(indices if not dataset.state else indices[: len(wanted)])
    return dataset.subset([index for index, name in enumerate(dataset.ids) if name in wanted])


def _judged(model: OnnxModel, subject: Subject, threads: int | None, batch_size: int) -> Comparison:
    dataset = subject.dataset
    runner = carrying([OnnxRuntimeRunner(model, "fp32", threads=threads, optimize=True)], dataset.state)[0]
    with runner:
        comparison = Comparison([runner], dataset, task=subject.task, context=subject.context(model.metadata))
        builder = FeedBuilder(model.inputs, str(model.path))
        size = size_of_batches(dataset, batch_size, model.fixed_batch)
        pairs = batches(dataset, batch_size, model.fixed_batch)
        for batch, fed in track(pairs, -(-len(dataset) // size), "Judging FP32"):
            comparison.add(batch, builder.feeds(fed), len(fed))
    return comparison


def _findings(comparison: Comparison, samples: int, where: tuple[str, ...]) -> list[Finding]:
    task, judge = comparison.task, comparison.baseline.judge
    assert task is not None
    assert judge is not None
    figures = {figure.name: figure for figure in judge.figures()}
    main = figures.get(task.main)
    if main is None or main.value is None:
        reason = main.note if main is not None and main.note else "nothing was measured"
        text = f"The task is {task.kind}, but there is no {task.main or 'figure'}: {reason}."
        advice = "Give all samples what the task judges by, or leave out the recipe's task."
        return [Finding("no-labels", "error", text, where, advice)]
    worthless = not isfinite(main.value) or (main.higher_is_better and main.value <= 0)
    severity: Severity = "error" if worthless else "warning"
    warnings = comparison.warnings()
    found = [Finding("low-accuracy", severity, text, where) for text in task.doubts(judge)]
    found += [
        Finding("task", "warning", text, where)
        for text in warnings
        if text not in {finding.message for finding in found}
    ]
    if not isfinite(main.value):
        return found
    return [*found, Finding("accuracy", "note", f"FP32 {_words(main)} on {counted(samples, 'sample[s]')}.")]


def _words(figure: Figure) -> str:
    assert figure.value is not None
    shown = f"{100 * figure.value:.1f}%" if figure.unit == "share" else f"{figure.value:.4g}"
    unit = "" if figure.unit in ("", "share") else f" {figure.unit}"
    return f"{figure.name} is {shown}{unit}"
