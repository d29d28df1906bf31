"""What is wrong with the values that a model gets."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calib.data.dataset import Array, Dataset
from calib.data.findings import Finding, Severity
from calib.data.overview import MANY, Figures, Tally, channel_axis, spread, steps_of
from calib.errors import DatasetError
from calib.progress import track
from calib.wording import counted

__all__ = [
    "Reading",
    "SampleFacts",
    "check_against",
    "check_duplicates",
    "check_repeats",
    "check_values",
    "read_samples",
]

_FAR, _APART = 8.0, 2.5
_SMALL, _LARGE = 1.01, 100.0


@dataclass(frozen=True)
class SampleFacts:
    """One sample's inputs in a few numbers.

    Attributes:
        id: The sample.
        shapes: Shape of each input.
        dtypes: Type of each input.
        values: Range and moments of each input.
        constant: Inputs whose values are all the same.
        digest: Hash of all inputs.
    """

    id: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    values: Mapping[str, Figures]
    constant: tuple[str, ...]
    digest: str


@dataclass(frozen=True)
class Reading:
    """The samples of one use that were read.

    Attributes:
        use: ``calibration`` or ``validation``.
        dataset: Where they come from.
        samples: What each that could be read holds.
        failed: What the others failed with, by sample.
        pooled: Range and moments of each input over all samples.
    """

    use: str
    dataset: Dataset
    samples: tuple[SampleFacts, ...]
    failed: Mapping[str, str]
    pooled: Mapping[str, Figures]


def read_samples(dataset: Dataset, use: str, samples: int | None) -> Reading:
    """Reads samples, spread evenly; one that cannot be read does not stop it."""
    facts, failed = [], {}
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    chosen = spread(len(dataset), samples)
    for index in track(chosen, len(chosen), f"Reading {use} samples", least=MANY):
        try:
            inputs = dataset[index].inputs
        except DatasetError as error:
            failed[dataset.ids[index]] = str(error)
            continue
        facts.append(_facts(dataset.ids[index], inputs))
        for name, values in inputs.items():
            tallies[name].add(values)
    pooled = {name: tally.figures() for name, tally in tallies.items()}
    return Reading(use, dataset, tuple(facts), failed, pooled)


def _facts(name: str, inputs: Mapping[str, Array]) -> SampleFacts:
    digest = hashlib.sha256()
    figures = {}
    for key in sorted(inputs):
        values = inputs[key]
        digest.update(f"{key} {values.dtype.str} {values.shape}\n".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
        tally = Tally()
        tally.add(values)
        figures[key] = tally.figures()
    constant = tuple(key for key, values in inputs.items() if _one_value(values))
    return SampleFacts(
        id=name,
        shapes={key: values.shape for key, values in inputs.items()},
        dtypes={key: str(values.dtype) for key, values in inputs.items()},
        values=figures,
        constant=constant,
        digest=digest.hexdigest(),
    )


def _one_value(values: Array) -> bool:
    """Whether an input is the same everywhere, as a blank image is.

    An attention mask of a text by itself is 1 everywhere, and the token types of one sentence are 0.
    """
    if values.size < 2 or not bool((values == values.flat[0]).all()):
        return False
    return not (values.ndim == 1 and values.dtype.kind in "biu" and values[0] in (0, 1))


def check_values(reading: Reading) -> list[Finding]:
    """Findings on the samples of one use by themselves."""
    found = []
    if reading.failed:
        causes = list(reading.failed.values())
        more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
        message = f"{counted(len(causes), f'{reading.use} sample[s]')} cannot be read: {causes[0]}{more}"
        advice = "Replace the files, or take them out of the data."
        found.append(Finding("unreadable", "error", message, tuple(reading.failed), advice))
    for name in reading.pooled:
        found += _check_input(reading, name)
    return found


def _check_input(reading: Reading, name: str) -> list[Finding]:
    found = []
    samples = [sample for sample in reading.samples if name in sample.values]
    broken = tuple(sample.id for sample in samples if sample.values[name].not_finite)
    if broken:
        message = (
            f"Input {name!r} of {counted(len(broken), f'{reading.use} sample[s]')} holds NaN or "
            "infinite values."
        )
        advice = "Mend the data, or a mean and std that divide by zero."
        found.append(Finding("not-finite", "error", message, broken, advice))
    constant = tuple(sample.id for sample in samples if name in sample.constant)
    if constant:
        message = (
            f"Input {name!r} of {counted(len(constant), f'{reading.use} sample[s]')} has one value "
            "everywhere."
        )
        severity = _constant_severity(len(constant), len(samples))
        found.append(Finding("constant", severity, message, constant, "Look at them: blank images?"))
    return [*found, *_mixed(reading, name, samples), *_layout(reading, name, samples)]


def _constant_severity(count: int, samples: int) -> Severity:
    return "error" if count == samples and samples > 1 else "warning"


def _mixed(reading: Reading, name: str, samples: Sequence[SampleFacts]) -> list[Finding]:
    found = []
    shapes = Counter(sample.shapes[name] for sample in samples)
    if len(shapes) > 1 and name not in reading.dataset.padding:
        usual = shapes.most_common(1)[0][0]
        where = tuple(sample.id for sample in samples if sample.shapes[name] != usual)
        message = (
            f"Input {name!r} has {len(shapes)} shapes among the {reading.use} samples, such as "
            f"{list(usual)} and {list(_samples_shape(samples, name, where[0]))}: they make no batch."
        )
        advice = "Give preprocess.resize with crop or letterbox, declare padding, or go with batch size 1."
        found.append(Finding("mixed-shapes", "warning", message, where, advice))
    tops = {sample.id: sample.values[name].reach for sample in samples}
    small = tuple(key for key, top in tops.items() if 0 < top <= _SMALL)
    large = tuple(key for key, top in tops.items() if top > _LARGE)
    if small and large:
        few = min(small, large, key=len)
        message = (
            f"Input {name!r}: {counted(len(small), f'{reading.use} sample[s] stay[s|]')} within 1 and "
            f"{counted(len(large), 'reach[es|]')} beyond "
            f"{_LARGE:g}: some are scaled and some are not."
        )
        advice = "Store all of them alike; scale in the recipe is for all of them."
        found.append(Finding("mixed-scales", "error", message, few, advice))
    return found


def _samples_shape(samples: Sequence[SampleFacts], name: str, wanted: str) -> tuple[int, ...]:
    """Shape of an input of the sample with some id."""
    return next(sample.shapes[name] for sample in samples if sample.id == wanted)


def _layout(reading: Reading, name: str, samples: Sequence[SampleFacts]) -> list[Finding]:
    """An image whose channels are not where the recipe's layout says."""
    layout = steps_of(reading.dataset).layout
    expected = 0 if layout.startswith("c") else 2
    wrong = [s for s in samples if channel_axis(s.shapes[name], layout) not in (None, expected)]
    if not wrong:
        return []
    shape = list(wrong[0].shapes[name])
    message = (
        f"Input {name!r} has shape {shape}, which looks like {'hwc' if expected == 0 else 'chw'}, but the "
        f"layout is {layout}."
    )
    advice = "Give source.layout as the arrays are stored, and preprocess.layout as the model takes them."
    return [Finding("layout", "warning", message, tuple(sample.id for sample in wrong), advice)]


def check_against(calibration: Reading, validation: Reading) -> list[Finding]:
    """Whether both uses give the model values of the same size."""
    found = []
    for name in calibration.pooled.keys() & validation.pooled.keys():
        ours, theirs = calibration.pooled[name], validation.pooled[name]
        if ours.std is None or theirs.std is None or ours.mean is None or theirs.mean is None:
            continue
        tops = sorted((ours.reach, theirs.reach))
        stds = sorted((ours.std, theirs.std))
        ratio = max(_ratio(tops), _ratio(stds))
        shift = abs(ours.mean - theirs.mean) / (stds[1] or 1.0)
        if ratio < _APART and shift < 1:
            continue
        message = (
            f"Input {name!r}: calibration {_range(ours)}, validation {_range(theirs)}: INT8 ranges of one "
            "do not fit the other."
        )
        advice = "Prepare both alike: the same files' form, and one preprocess section."
        severity: Severity = "error" if ratio >= _FAR else "warning"
        found.append(Finding("ranges-differ", severity, message, (name,), advice))
    return found


def _ratio(ends: Sequence[float]) -> float:
    return ends[1] / ends[0] if ends[0] else (float("inf") if ends[1] else 1.0)


def _range(figures: Figures) -> str:
    return f"{figures.minimum:.4g} … {figures.maximum:.4g} (mean {figures.mean:.4g}, std {figures.std:.4g})"


def check_duplicates(
    calibration: Reading, validation: Reading, files: Mapping[str, str] | None = None
) -> list[Finding]:
    """The same content in both uses.

    Args:
        calibration: What was read of the one.
        validation: What was read of the other.
        files: Validation sample → calibration sample whose file is the same, byte for byte.
    """
    known = {sample.digest: sample.id for sample in calibration.samples}
    same = {**(files or {})}
    same |= {sample.id: known[sample.digest] for sample in validation.samples if sample.digest in known}
    found = []
    copies = tuple(f"{ours} = {theirs}" for ours, theirs in same.items() if ours != theirs)
    if copies:
        message = (
            f"{counted(len(copies), 'validation sample[s] [has|have]')} the content of calibration "
            "samples under another name: "
            "accuracy is measured on what was calibrated on."
        )
        found.append(Finding("duplicates-between", "warning", message, copies, "Take one of each pair out."))
    shared = tuple(ours for ours, theirs in same.items() if ours == theirs)
    if shared:
        message = (
            f"{counted(len(shared), 'sample[s] [is|are]')} calibrated and validated on: the recipe "
            "allows the overlap."
        )
        found.append(Finding("overlap", "note", message, shared))
    return found


def check_repeats(reading: Reading) -> list[Finding]:
    """The same content twice in one use; blank samples are not counted."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for sample in reading.samples:
        if len(sample.constant) < len(sample.shapes):
            groups[sample.digest].append(sample.id)
    where = tuple(" = ".join(ids) for ids in groups.values() if len(ids) > 1)
    if not where:
        return []
    message = (
        f"{counted(len(where), f'{reading.use} sample[s] occur[s|]')} more than once, with the same content."
    )
    return [Finding("duplicates-within", "note", message, where, "They count as often as they occur.")]
