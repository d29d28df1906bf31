"""One pass over the validation dataset: every precision on the same batch, then the next batch.

Nothing of a batch is kept but sums, the top-1 class and a few figures a sample.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.data import Array, Batch, Dataset
from calib.data.task_options import ClassificationOptions, TaskOptions
from calib.errors import UsageError, ValidationError
from calib.runners import Runner
from calib.validation.columns import column_warnings
from calib.validation.intervals import Floats, sqnr_interval
from calib.validation.judgement import Judgement, judge_runs
from calib.validation.naming import RunName
from calib.validation.outcomes import pack_hits, pack_powers
from calib.validation.readings import Readings
from calib.validation.results import Metric, OutputError, WorstSample
from calib.validation.samples import SampleErrors, rank_samples
from calib.validation.tasks import Context, Judge, Task, make_task
from calib.validation.tensors import ErrorAccumulator
from calib.wording import counted, inflected

__all__ = ["Comparison", "PrecisionFindings"]


class PrecisionFindings:
    """What one precision has shown so far.

    Attributes:
        name: What the run is called.
        runner: What runs it.
        judge: Its answers; None where there is no task.
        samples: How far each sample's outputs are from the baseline's.
        seconds: Time that inference took.
    """

    def __init__(self, runner: Runner, name: RunName, judge: Judge[Any] | None = None) -> None:
        self.name = name
        self.runner = runner
        self.judge = judge
        self.samples = SampleErrors()
        self.seconds = 0.0
        self._errors = {name: ErrorAccumulator(name) for name in runner.output_names}
        self._powers: dict[str, list[Floats]] = {name: [] for name in runner.output_names}

    def infer(self, feeds: Mapping[str, Array], fed: int, samples: int) -> dict[str, Array]:
        """Runs one batch; rows that only fill up a fixed batch size are cut off."""
        start = time.perf_counter()
        outputs = self.runner.infer(feeds)
        self.seconds += time.perf_counter() - start
        if fed == samples:
            return outputs
        return {
            name: array[:samples] if array.ndim and len(array) == fed else array
            for name, array in outputs.items()
        }

    def compare(self, reference: Mapping[str, Array], outputs: Mapping[str, Array], samples: int) -> None:
        """Counts one batch's errors against the baseline."""
        rows = {name: self._errors[name].add(reference[name], outputs[name]) for name in self._errors}
        per_sample = {
            name: found
            for name, found in rows.items()
            if found is not None
            and reference[name].dtype.kind == "f"
            and reference[name].ndim
            and len(reference[name]) == samples
        }
        for name, found in per_sample.items():
            self._powers[name].append(np.stack([found.reference_power, found.error_power]))
        self.samples.add(samples, per_sample.values())

    def figures(self) -> dict[str, float | None]:
        """The figures of accuracy by name, without intervals."""
        return {} if self.judge is None else {one.name: one.number for one in self.judge.figures()}

    def output_errors(self) -> tuple[OutputError, ...]:
        """The errors of every output, in the model's order."""
        return tuple(errors.result() for errors in self._errors.values())

    def judged_outputs(self) -> tuple[OutputError, ...]:
        """The same, with the interval of each SQNR over the samples."""
        return tuple(map(self._with_interval, self.output_errors()))

    def _with_interval(self, errors: OutputError) -> OutputError:
        powers = self._powers[errors.output]
        if errors.sqnr_db is None or not powers:
            return errors
        signal, noise = np.concatenate(powers, axis=1)
        if len(signal) != len(self.samples):
            return errors
        interval = sqnr_interval(signal, noise)
        return replace(
            errors,
            sqnr_low=interval.low,
            sqnr_high=interval.high,
            sqnr_method=interval.method,
            powers=pack_powers([signal, noise]),
        )

    def outcomes(self) -> dict[str, tuple[str, ...]]:
        """Whether each sample is right, packed, by the name of the figure."""
        hits = {} if self.judge is None else self.judge.hits
        return {name: pack_hits(right) for name, right in hits.items()}


class Comparison:
    """Compares the precisions of one model on one dataset, batch by batch.

    Args:
        runners: The FP32 baseline first, then the candidates.
        dataset: The validation dataset.
        classify: Whether the model is a classifier, where ``task`` does not say what it is.
        scores: The output that holds class scores; None looks for it.
        names: What the runs are called; by default their precisions.
        task: What the model is for, or what reads its answers for other comparisons too; None judges outputs
            alone.
        context: What the task may know beside the dataset.
        labels: Whether answers are judged by the labels too, or compared with the reference's alone.

    Raises:
        UsageError: Class scores are named, and the task is another one.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        dataset: Dataset,
        *,
        classify: bool = False,
        scores: str | None = None,
        names: Sequence[RunName] | None = None,
        task: TaskOptions | Readings | None = None,
        context: Context | None = None,
        labels: bool = True,
    ) -> None:
        _check_same_outputs(runners)
        called = names or [RunName(runner.precision) for runner in runners]
        if not isinstance(task, Readings):
            options = _task_options(task, classify, scores)
            task = None if options is None else Readings(make_task(options, context or Context(dataset)))
        self.task: Task[Any] | None = None if task is None else task.task
        self.findings = tuple(
            PrecisionFindings(runner, name, self.task.judge() if self.task else None)
            for runner, name in zip(runners, called, strict=True)
        )
        self._readings = task
        self._by_labels = labels
        self._dataset = dataset
        self._origins: list[str] = []
        self._broken: dict[str, tuple[int, str]] = {}

    def beside(
        self,
        runners: Sequence[Runner],
        names: Sequence[RunName],
        *,
        answers: bool = True,
        labels: bool = True,
    ) -> Comparison:
        """A comparison of other runs on the same batches, which must be added to this one first.

        Args:
            runners: The reference first. What those of this comparison answer is read once.
            names: What they are called.
            answers: Whether answers are compared, or outputs alone.
            labels: Whether answers are judged by the labels too, or compared with the reference's alone.
        """
        readings = self._readings if answers else None
        if readings is not None:
            readings.share(runners)
        return Comparison(runners, self._dataset, names=names, task=readings, labels=labels)

    @property
    def baseline(self) -> PrecisionFindings:
        """The FP32 reference."""
        return self.findings[0]

    def add(self, batch: Batch, feeds: Mapping[str, Array], fed: int | None = None) -> None:
        """Runs one batch in every precision and counts what comes out.

        Args:
            batch: The samples.
            feeds: The same samples, as the model takes them.
            fed: Rows of the feeds, where a fixed batch size needs more of them than there are samples.

        Raises:
            ValidationError: Outputs cannot be compared, or labels do not fit them.
        """
        samples = len(batch)
        rows = samples if fed is None else fed
        reference = self.baseline.infer(feeds, rows, samples)
        self._note_broken(reference, batch)
        answers = self._answers(reference, batch, self.baseline)
        judged = batch if self._by_labels else replace(batch, labels=(None,) * samples)
        self._count(self.baseline, answers, judged, None)
        for candidate in self.findings[1:]:
            outputs = candidate.infer(feeds, rows, samples)
            candidate.compare(reference, outputs, samples)
            self._count(candidate, self._answers(outputs, batch, candidate), judged, answers)
        self._origins.extend(batch.origins)

    def _answers(self, outputs: Mapping[str, Array], batch: Batch, found: PrecisionFindings) -> Any:
        if self._readings is None:
            return None
        try:
            return self._readings.of(found.runner, outputs, batch)
        except ValidationError as error:
            if found is self.baseline:
                raise
            raise ValidationError(f"{found.name.label}: {error}") from error

    @staticmethod
    def _count(found: PrecisionFindings, answers: Any, batch: Batch, baseline: Any) -> None:
        if found.judge is not None:
            found.judge.add(answers, batch, baseline)

    def _note_broken(self, outputs: Mapping[str, Array], batch: Batch) -> None:
        for name, array in outputs.items():
            bad = _broken(array)
            if bad.any():
                count, first = self._broken.get(name, (0, _first_sample(bad, batch)))
                self._broken[name] = (count + int(bad.sum()), first)

    @cached_property
    def judgements(self) -> tuple[Judgement, ...]:
        """The figures of every precision; the p-values of all drops are corrected together."""
        judges = [found.judge for found in self.findings if found.judge is not None]
        if self.task is None:
            return (Judgement(),) * len(self.findings)
        return judge_runs(self.task, judges, self._dataset.class_names)

    def judgement(self, found: PrecisionFindings) -> Judgement:
        """All figures of one precision."""
        return self.judgements[self.findings.index(found)]

    def metrics(self, found: PrecisionFindings) -> tuple[Metric, ...]:
        """The accuracy of one precision and its agreement with FP32; none where there is no task."""
        return self.judgement(found).metrics

    @property
    def labels(self) -> tuple[int, ...] | None:
        """Class number of every sample; None where labels are something else, or missing."""
        labels = None if self.task is None else self.task.labels()
        return None if labels is None else tuple(labels)

    def worst(self, found: PrecisionFindings, count: int = 10) -> tuple[WorstSample, ...]:
        """The candidate's samples that changed their answer or moved most, the worst first."""
        judge, reference = found.judge, self.baseline.judge
        changed = None if judge is None or reference is None else judge.changed(reference)
        return tuple(
            self._worst_sample(found, index) for index in rank_samples(found.samples, changed, count)
        )

    def _worst_sample(self, found: PrecisionFindings, index: int) -> WorstSample:
        judge, reference = found.judge, self.baseline.judge
        ours = None if reference is None else reference.predictions
        theirs = None if judge is None else judge.predictions
        return WorstSample(
            precision=found.name.precision,
            sample_id=self._dataset.ids[index],
            origin=self._origins[index],
            label=self._label(index),
            baseline_class=None if ours is None else ours[index],
            candidate_class=None if theirs is None else theirs[index],
            sqnr_db=found.samples.sqnr_db(index),
            max_abs=found.samples.max_abs(index),
            calibration=found.name.calibration,
            change="" if judge is None or reference is None else judge.change(reference, index),
            run=found.name.label,
        )

    def _label(self, index: int) -> str | None:
        labels = self.labels
        if labels is None:
            return None
        number, names = labels[index], self._dataset.class_names
        return names[number] if names is not None and number < len(names) else str(number)

    def doubts(self) -> tuple[str, ...]:
        """What makes FP32's own answers doubtful, and with them every verdict on another precision."""
        found = [
            f"The FP32 model is already broken: {counted(count, 'value[s]')} of output {name!r} "
            f"{inflected(count, '[is|are]')} NaN or infinite, "
            f"first at {first}. Mend the model or the data before judging other precisions."
            for name, (count, first) in self._broken.items()
        ]
        if self.task is not None and self.baseline.judge is not None:
            found.extend(self.task.doubts(self.baseline.judge))
        return tuple(found)

    def warnings(self) -> tuple[str, ...]:
        """Doubts about the FP32 baseline first, then about the candidates' outputs."""
        found = [*self.doubts()]
        for candidate in self.findings[1:]:
            label, outputs = candidate.name.label, candidate.output_errors()
            found.extend(
                f"{label} output {errors.output!r}: {errors.note}."
                for errors in outputs
                if errors.verdict in ("candidate not finite", "rows differ")
            )
            found.extend(
                f"{label} {text}"
                for errors in outputs
                for text in column_warnings(errors.output, errors.sqnr_db, errors.groups)
            )
        return (*found, *(() if self.task is None else self.task.warnings()))


def _task_options(task: TaskOptions | None, classify: bool, scores: str | None) -> TaskOptions | None:
    """The task, with the output that an option names in place of the recipe's."""
    if task is None:
        # Copied, since an empty name is refused where the outputs are known, as it is with a task.
        options = ClassificationOptions().model_copy(update={"output": scores})
        return options if classify or scores is not None else None
    if scores is None:
        return task
    if not isinstance(task, ClassificationOptions):
        raise UsageError(
            f"--scores names an output of class scores, and the task is {task.kind}. Leave it out."
        )
    return task.model_copy(update={"output": scores})


def _check_same_outputs(runners: Sequence[Runner]) -> None:
    if not runners:
        raise ValidationError("Nothing to compare: give the FP32 runner and its candidates.")
    first = runners[0]
    for runner in runners[1:]:
        if runner.output_names != first.output_names:
            raise ValidationError(
                f"The {runner.precision} model has outputs {', '.join(runner.output_names)}, "
                f"the baseline has {', '.join(first.output_names)}: they are not the same model."
            )


def _broken(array: Array) -> npt.NDArray[np.bool_]:
    return ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros(0, np.bool_)


def _first_sample(bad: npt.NDArray[np.bool_], batch: Batch) -> str:
    if not bad.ndim or len(bad) != len(batch):
        return f"the batch from sample {batch.ids[0]}"
    row = int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
    return f"sample {batch.origins[row]}"
