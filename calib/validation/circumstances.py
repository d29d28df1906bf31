"""What is not the same in two results, and what that means for a comparison of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from calib.validation.alignment import Pair
from calib.validation.provenance import differing_keys
from calib.validation.qualification import Circumstance
from calib.validation.results import CalibrationRecord, PrecisionRun, Results
from calib.wording import counted

__all__ = ["find_circumstances"]

_NONE = "none"


def find_circumstances(old: Results, new: Results, pairs: Sequence[Pair]) -> tuple[Circumstance, ...]:
    """Lists what differs: first what makes the comparison unfair, then what makes it doubtful, then the rest.

    Args:
        old: The old results.
        new: The new ones, in the same order of samples.
        pairs: The runs that both have.
    """
    found = [
        *_data(old, new),
        *_model(old, new),
        *_calibrations(old, new),
        *_runs(pairs),
        *_software(old, new, pairs),
    ]
    order = ("unfair", "doubt", "subject")
    return tuple(sorted(found, key=lambda one: order.index(one.weight)))


def _data(old: Results, new: Results) -> Iterator[Circumstance]:
    keys = differing_keys(old.dataset.preprocess, new.dataset.preprocess)
    for key in keys:
        name, _, values = key.partition(": ")
        before, _, after = values.partition(" → ")
        yield Circumstance(f"preprocessing {name}", before, after, "unfair", "the models saw other inputs")
    if old.labels != new.labels:
        first, second = old.labels or (), new.labels or ()
        differing = sum(a != b for a, b in zip(first, second, strict=False))
        what = counted(differing, "label[s] differ[s|]") if first and second else "one of them has no labels"
        yield Circumstance("labels", _count(first), _count(second), "unfair", what)
    elif old.dataset.fingerprint != new.dataset.fingerprint and not keys:
        note = "same sample ids, preprocessing and labels: the files' content or the source changed"
        prints = (old.dataset.fingerprint[:12], new.dataset.fingerprint[:12])
        yield Circumstance("data fingerprint", *prints, "unfair", note)


def _count(values: Sequence[int]) -> str:
    return counted(len(values), "label[s]") if values else _NONE


def _model(old: Results, new: Results) -> Iterator[Circumstance]:
    if old.model.sha256 != new.model.sha256:
        names = [f"{one.model.name} ({one.model.sha256[:12]}…)" for one in (old, new)]
        note = "differences are those of the models too, not of versions alone"
        yield Circumstance("model", names[0], names[1], "doubt", note)
    if old.model.opset != new.model.opset:
        yield Circumstance("opset", str(old.model.opset), str(new.model.opset), "doubt")


def _calibrations(old: Results, new: Results) -> Iterator[Circumstance]:
    before, after = ({one.name: one for one in each.calibrations} for each in (old, new))
    for name in dict.fromkeys((*before, *after)):
        first, second = before.get(name), after.get(name)
        if first is None or second is None:
            ends = [_NONE if one is None else one.header for one in (first, second)]
            yield Circumstance(f"calibration {name}", ends[0], ends[1], "doubt", "only one of them has it")
        elif first.sha256 != second.sha256:
            yield _changed_cache(name, first, second)


def _changed_cache(name: str, first: CalibrationRecord, second: CalibrationRecord) -> Circumstance:
    what = f"calibration {name}"
    if first.scales_sha256 and first.scales_sha256 == second.scales_sha256:
        return Circumstance(what, first.header, second.header, "subject", "the same scales in another file")
    ends = [f"{one.header} ({one.sha256[:12]}…)" for one in (first, second)]
    known = first.scales_sha256 and second.scales_sha256
    note = "other scales" if known else "another cache file; whether its scales differ is not recorded"
    return Circumstance(what, ends[0], ends[1], "doubt", f"{note}: INT8 differs by them too")


def _runs(pairs: Sequence[Pair]) -> Iterator[Circumstance]:
    for old, new in pairs:
        if old.quantized_tensors != new.quantized_tensors:
            ends = [
                _NONE if one.quantized_tensors is None else str(one.quantized_tensors) for one in (old, new)
            ]
            yield Circumstance(f"Q/DQ pairs of {new.label}", ends[0], ends[1], "subject", "another placement")
        if old.simulated != new.simulated:
            words = ["simulated" if one.simulated else "not simulated" for one in (old, new)]
            yield Circumstance(f"arithmetic of {new.label}", words[0], words[1], "doubt")
        yield from _builds(old, new)


def _builds(old: PrecisionRun, new: PrecisionRun) -> Iterator[Circumstance]:
    if old.engine is None or new.engine is None:
        return
    for what, before, after in (
        ("route", old.engine.route, new.engine.route),
        ("builder level", old.engine.level, new.engine.level),
    ):
        if before != after:
            words = ["default" if value is None else str(value) for value in (before, after)]
            yield Circumstance(f"{what} of {new.label}", words[0], words[1], "doubt")


def _software(old: Results, new: Results, pairs: Sequence[Pair]) -> Iterator[Circumstance]:
    mine, theirs = old.environment, new.environment
    single = {
        "TensorRT": (_tensorrt(old, pairs, 0), _tensorrt(new, pairs, 1)),
        "calib": (old.calib_version, new.calib_version),
        **{
            name.replace("_", " ").replace("gpu", "GPU").replace("cuda", "CUDA"): (
                getattr(mine, name),
                getattr(theirs, name),
            )
            for name in ("gpu", "driver", "cuda", "system", "processor", "machine", "logical_cores", "python")
        },
    }
    yield from _pairs(single, {"GPU": "latencies are not compared"})
    yield from _pairs(
        {
            name: (mine.packages.get(name), theirs.packages.get(name))
            for name in dict.fromkeys((*mine.packages, *theirs.packages))
            if name != "int8-calib"
        }
    )
    settings = {
        f"setting {name}": (mine.session_options.get(name), theirs.session_options.get(name))
        for name in dict.fromkeys((*mine.session_options, *theirs.session_options))
        if name not in ("device", "torch.device")
    }
    yield from _pairs(settings)


def _tensorrt(results: Results, pairs: Sequence[Pair], side: int) -> str | None:
    engines = [pair[side].engine for pair in pairs]
    built = list(dict.fromkeys(engine.tensorrt for engine in engines if engine is not None))
    return ", ".join(built) or results.environment.tensorrt


def _pairs(
    values: Mapping[str, tuple[object, object]], notes: Mapping[str, str] | None = None
) -> Iterator[Circumstance]:
    for name, (before, after) in values.items():
        if before != after:
            ends = [_NONE if value is None else str(value) for value in (before, after)]
            yield Circumstance(name, ends[0], ends[1], "subject", (notes or {}).get(name, ""))
