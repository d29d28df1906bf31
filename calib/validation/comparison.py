"""One pass over the validation dataset: every precision on the same batch, then the next batch.

Nothing of a batch is kept but sums, the top-1 class and a few figures a sample.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from calib.data import Array, Batch, Dataset
from calib.errors import ValidationError
from calib.runners import Runner
from calib.validation.classification import (
    Answers,
    TopKCounter,
    baseline_warnings,
    check_labels,
    class_scores,
    integer_labels,
    top_classes,
)
from calib.validation.columns import column_warnings
from calib.validation.drops import correct_drops, with_drop
from calib.validation.intervals import Floats, sqnr_interval
from calib.validation.naming import RunName
from calib.validation.outcomes import pack_hits, pack_powers
from calib.validation.results import Metric, OutputError, WorstSample
from calib.validation.samples import SampleErrors, rank_samples
from calib.validation.tensors import ErrorAccumulator

__all__ = ["Comparison", "PrecisionFindings"]


class PrecisionFindings:
    """What one precision has shown so far.

    Attributes:
        name: What the run is called.
        counter: Its class answers; empty where the model is no classifier.
        samples: How far each sample's outputs are from the baseline's.
        seconds: Time that inference took.
    """

    def __init__(self, runner: Runner, name: RunName) -> None:
        self.name = name
        self.counter = TopKCounter()
        self.samples = SampleErrors()
        self.seconds = 0.0
        self._runner = runner
        self._errors = {name: ErrorAccumulator(name) for name in runner.output_names}
        self._powers: dict[str, list[Floats]] = {name: [] for name in runner.output_names}

    def infer(self, feeds: Mapping[str, Array], fed: int, samples: int) -> dict[str, Array]:
        """Runs one batch; rows that only fill up a fixed batch size are cut off."""
        start = time.perf_counter()
        outputs = self._runner.infer(feeds)
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
        return {name: pack_hits(hits) for name, hits in self.counter.hits.items()}


class Comparison:
    """Compares the precisions of one model on one dataset, batch by batch.

    Args:
        runners: The FP32 baseline first, then the candidates.
        dataset: The validation dataset.
        classify: Whether the model is a classifier.
        scores: The output that holds class scores; None looks for it.
        names: What the runs are called; by default their precisions.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        dataset: Dataset,
        *,
        classify: bool = False,
        scores: str | None = None,
        names: Sequence[RunName] | None = None,
    ) -> None:
        _check_same_outputs(runners)
        called = names or [RunName(runner.precision) for runner in runners]
        self.findings = tuple(map(PrecisionFindings, runners, called))
        self.classify = classify or scores is not None
        self.labels = integer_labels(dataset.labels) if self.classify else None
        self._dataset = dataset
        self._scores = scores
        self._classes = 0
        self._seen = 0
        self._origins: list[str] = []
        self._broken: dict[str, tuple[int, str]] = {}
        self._warnings: list[str] = []

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
        answers = self._answers(reference, samples)
        self._count(self.baseline, answers, None, samples)
        for candidate in self.findings[1:]:
            outputs = candidate.infer(feeds, rows, samples)
            candidate.compare(reference, outputs, samples)
            self._count(candidate, self._answers(outputs, samples), answers, samples)
        self._origins.extend(batch.origins)
        self._seen += samples

    def _answers(self, outputs: Mapping[str, Array], samples: int) -> Answers | None:
        if not self.classify:
            return None
        if not self._classes:
            self._scores = class_scores(outputs, samples, self._scores)
            self._classes = outputs[self._scores].shape[1]
            self._check_labels()
        assert self._scores is not None
        class_scores({self._scores: outputs[self._scores]}, samples, self._scores)
        return top_classes(outputs[self._scores])

    def _check_labels(self) -> None:
        if self.labels is None:
            self._warnings.append(
                f"Dataset {self._dataset.name!r} has no label for some or all samples: accuracy is not "
                "measured, only agreement with FP32."
            )
            return
        assert self._scores is not None
        names = self._dataset.class_names
        doubt = check_labels(self.labels, self._classes, self._scores, self._dataset.name, names)
        if doubt:
            self._warnings.append(doubt)

    def _count(
        self, found: PrecisionFindings, answers: Answers | None, baseline: Answers | None, samples: int
    ) -> None:
        if answers is None:
            return
        labels = None if self.labels is None else self.labels[self._seen : self._seen + samples]
        found.counter.add(answers, labels, baseline)

    def _note_broken(self, outputs: Mapping[str, Array], batch: Batch) -> None:
        for name, array in outputs.items():
            bad = _broken(array)
            if bad.any():
                count, first = self._broken.get(name, (0, _first_sample(bad, batch)))
                self._broken[name] = (count + int(bad.sum()), first)

    def metrics(self, found: PrecisionFindings) -> tuple[Metric, ...]:
        """Accuracy and agreement of one precision; none where the model is no classifier."""
        if not self.classify:
            return ()
        return self._all_metrics()[self.findings.index(found)]

    def _all_metrics(self) -> tuple[tuple[Metric, ...], ...]:
        """The figures of every precision: the p-values of all drops are corrected together."""
        labelled, baseline = self.labels is not None, self.baseline.counter
        own = baseline.metrics(labelled, None)
        values, hits = {metric.name: metric.value for metric in own}, baseline.hits
        drops = [
            [
                with_drop(metric, candidate.counter.hits, hits)
                for metric in candidate.counter.metrics(labelled, values)
            ]
            for candidate in self.findings[1:]
        ]
        return (own, *correct_drops(drops))

    def worst(self, found: PrecisionFindings, count: int = 10) -> tuple[WorstSample, ...]:
        """The candidate's samples that changed their answer or moved most, the worst first."""
        ours, theirs = self.baseline.counter.predictions, found.counter.predictions
        changed = np.array(ours) != np.array(theirs) if self.classify else None
        return tuple(
            WorstSample(
                precision=found.name.precision,
                sample_id=self._dataset.ids[index],
                origin=self._origins[index],
                label=self._label(index),
                baseline_class=ours[index] if self.classify else None,
                candidate_class=theirs[index] if self.classify else None,
                sqnr_db=found.samples.sqnr_db(index),
                max_abs=found.samples.max_abs(index),
                calibration=found.name.calibration,
            )
            for index in rank_samples(found.samples, changed, count)
        )

    def _label(self, index: int) -> str | None:
        if self.labels is None:
            return None
        number, names = int(self.labels[index]), self._dataset.class_names
        return names[number] if names is not None and number < len(names) else str(number)

    def warnings(self) -> tuple[str, ...]:
        """Doubts about the FP32 baseline first, then about the candidates' outputs."""
        found = [
            f"The FP32 model is already broken: {count} values of output {name!r} are NaN or infinite, "
            f"first at {first}. Mend the model or the data before judging other precisions."
            for name, (count, first) in self._broken.items()
        ]
        if self.labels is not None and self._classes:
            predictions = self.baseline.counter.predictions
            found.extend(baseline_warnings(predictions, self.labels, self._classes))
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
        return (*found, *self._warnings)


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
