"""Several results files as one: a row for each run, comparable runs found.

Results may come from different machines, runners and days, but must be of one model (by SHA-256) and
one validation dataset (by fingerprint): anything else in one table would compare unlike things, so it is
refused. An exact copy of results that are there already is left out, so that a wildcard which also
finds a report's own copy does no harm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from calib.errors import UsageError, ValidationError
from calib.report.text import shorten, visible
from calib.validation.results import Metric, OutputError, PrecisionRun, Results, WorstSample
from calib.wording import counted

__all__ = ["Merged", "Row", "Source", "fault_of", "is_exact", "level_of", "merge"]

_LABEL_LIMIT = 40


@dataclass(frozen=True)
class Source:
    """One results file.

    Attributes:
        key: "A", "B", …; empty where there is only one.
        results: Its content.
    """

    key: str
    results: Results

    @property
    def place(self) -> str:
        """The hardware that ran it, as a reader would name it."""
        environment = self.results.environment
        return visible(environment.gpu or environment.processor or environment.machine)


@dataclass(frozen=True)
class Row:
    """One run of one source.

    Attributes:
        label: Unique name in this report, such as "INT8" or "INT8 · B".
        source: Where it comes from.
        run: The record.
        variant: Number of its calibration among those of the report, from 0.
    """

    label: str
    source: Source
    run: PrecisionRun
    variant: int = 0

    @property
    def is_baseline(self) -> bool:
        """Whether the others of its source are compared against it."""
        return self.run.role == "baseline"

    @property
    def median_ms(self) -> float | None:
        """Latency p50 of one batch, in milliseconds."""
        return self.run.latency.median_ms if self.run.latency else None

    @property
    def simulated_latency(self) -> bool:
        """Whether its latency says nothing of TensorRT's speed."""
        return self.run.latency is not None and (self.run.latency.simulated or self.run.simulated)

    def metric(self, name: str) -> Metric | None:
        """The accuracy figure of that name, if there is one."""
        return next((metric for metric in self.run.metrics if metric.name == name), None)

    @property
    def worst_output(self) -> OutputError | None:
        """The output with the lowest SQNR; None where no output has one, or one cannot be compared."""
        if self.fault:
            return None
        known = [
            (output.sqnr_db, output)
            for output in self.run.outputs
            if output.sqnr_db is not None and math.isfinite(output.sqnr_db)
        ]
        return min(known, key=lambda pair: pair[0], default=(None, None))[1]

    @property
    def fault(self) -> str:
        """What makes the outputs incomparable: "not finite", "rows differ", or nothing."""
        return next((fault for output in self.run.outputs if (fault := fault_of(output))), "")

    @property
    def exact(self) -> bool:
        """Whether every value of every output equals the baseline's."""
        return bool(self.run.outputs) and all(is_exact(output) for output in self.run.outputs)


@dataclass(frozen=True)
class Merged:
    """Everything a report shows.

    Attributes:
        sources: The results, in the order given, copies left out.
        rows: All their runs.
    """

    sources: tuple[Source, ...]
    rows: tuple[Row, ...]

    @property
    def first(self) -> Results:
        """The results that speak for model and dataset."""
        return self.sources[0].results

    @property
    def judged(self) -> bool:
        """Whether accuracy was to be judged, or was."""
        named = any(source.results.task is not None for source in self.sources)
        return named or any(row.run.metrics for row in self.rows)

    def baseline_of(self, row: Row) -> Row | None:
        """The baseline that a row was compared against."""
        known = [other for other in self._siblings(row) if other.is_baseline]
        same_runner = [other for other in known if other.run.runner == row.run.runner]
        return next(iter(same_runner or known), None)

    def peer(self, row: Row, precision: str) -> Row | None:
        """The run of that precision whose latency can be compared: same source, runner and batch size.

        Of several calibrations the row's own comes first.
        """
        known = [
            other
            for other in self._siblings(row)
            if other is not row and other.run.precision == precision and _same_conditions(row, other)
        ]
        same = [other for other in known if other.run.calibration == row.run.calibration]
        return next(iter(same or known), None)

    def row_of(self, source: Source, sample: WorstSample) -> Row | None:
        """The run that a worst sample belongs to; never the baseline, against which samples are worst."""
        rows = [row for row in self.rows if row.source is source and not row.is_baseline]
        return next((row for row in rows if sample.is_of(row.run)), None)

    def _siblings(self, row: Row) -> list[Row]:
        return [other for other in self.rows if other.source is row.source]


def _same_conditions(row: Row, other: Row) -> bool:
    mine, theirs = row.run.latency, other.run.latency
    timed = mine is not None and theirs is not None and mine.batch_size == theirs.batch_size
    return timed and row.run.runner == other.run.runner


def fault_of(output: OutputError) -> str:
    """What keeps an output from being compared; values that are NaN in the baseline too do not."""
    if output.verdict == "rows differ":
        return "rows differ"
    return "not finite" if output.non_finite > output.both_non_finite else ""


def is_exact(output: OutputError) -> bool:
    """Whether every value equals the baseline's."""
    return output.verdict == "equal" or (output.max_abs == 0 and not fault_of(output))


def level_of(output: OutputError) -> float | None:
    """SQNR in dB: +inf without error, -inf where values cannot be compared, None where there is none."""
    if fault_of(output):
        return -math.inf
    if is_exact(output):
        return math.inf
    return output.sqnr_db if output.sqnr_db is not None and math.isfinite(output.sqnr_db) else None


def merge(results: Sequence[Results]) -> Merged:
    """Puts results side by side.

    Args:
        results: At least one.

    Raises:
        UsageError: There are none.
        ValidationError: They are of different models or validation datasets, hold no runs, or labels of
            another number of samples.
    """
    distinct: list[Results] = []
    for result in results:
        if result.labels is not None and len(result.labels) != len(result.sample_ids):
            raise ValidationError(
                f"The results hold {counted(len(result.labels), 'label[s]')} for "
                f"{counted(len(result.sample_ids), 'sample[s]')}: the file was cut or edited. Run "
                "the validation again."
            )
        if not any(result == other for other in distinct):
            distinct.append(result)
    if not distinct:
        raise UsageError("A report needs at least one results file, none was given.")
    for other in distinct[1:]:
        _check_same(distinct[0], other)
    sources = tuple(
        Source(_key(index) if len(distinct) > 1 else "", result) for index, result in enumerate(distinct)
    )
    rows = _rows(sources)
    if not rows:
        raise ValidationError("The results hold no runs: nothing was measured. Run the validation again.")
    return Merged(sources, rows)


def _check_same(first: Results, other: Results) -> None:
    if first.model.sha256 != other.model.sha256:
        raise ValidationError(
            "The results are of different models: "
            f"{_name(first.model.name, first.model.sha256)} and "
            f"{_name(other.model.name, other.model.sha256)}. Make a report for each model."
        )
    if first.dataset.fingerprint != other.dataset.fingerprint:
        raise ValidationError(
            "The results are of different validation datasets: "
            f"{_name(first.dataset.name, first.dataset.fingerprint)} and "
            f"{_name(other.dataset.name, other.dataset.fingerprint)} (the fingerprint covers samples, "
            "labels and preprocessing). Validate on the same dataset, or make a report for each."
        )


def _name(name: str, digest: str) -> str:
    return f"{visible(name)} ({visible(digest)[:12]}…)"


def _key(index: int) -> str:
    """A … Z, then A1 … Z1 and so on."""
    turn, letter = divmod(index, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")


def _rows(sources: tuple[Source, ...]) -> tuple[Row, ...]:
    seen: Counter[str] = Counter()
    # A calibration keeps its number through all sources, so that charts draw it alike.
    calibrations = list(
        dict.fromkeys(run.calibration for source in sources for run in source.results.runs if run.calibration)
    )
    rows = []
    for source in sources:
        # Labels name the runner already, but for results of other tools: add it where they do not.
        runners = Counter(label for label, _ in {(run.label, run.runner) for run in source.results.runs})
        for run in source.results.runs:
            parts = [run.label, source.key, run.runner if runners[run.label] > 1 else ""]
            label = shorten(visible(" · ".join(part for part in parts if part)), _LABEL_LIMIT)
            seen[label] += 1
            number = f" #{seen[label]}" if seen[label] > 1 else ""
            variant = calibrations.index(run.calibration) if run.calibration else 0
            rows.append(Row(label + number, source, run, variant))
    return tuple(rows)
