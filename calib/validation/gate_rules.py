"""What gates there are, and the rules that a user states: by options, in Python or in a YAML file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from calib.data.document import Document, read_document
from calib.errors import DatasetError, UsageError
from calib.validation.corrections import Correction
from calib.validation.outcomes import SHARE_METRICS
from calib.validation.thresholds import Threshold, describe_points, parse_threshold, plain
from calib.wording import as_several, suggestion

__all__ = ["GATES", "GateFile", "Limit", "Rule", "make_rules", "read_gate_file"]

Limit = str | float | Sequence[str | float]
"""A threshold, or several: a number, text such as "1%", or "NAME=1%"."""

GATES = {
    "max_drop": "share",
    "max_relative_drop": "share",
    "worst_class": "share",
    "min_agreement": "share",
    "min_sqnr": "dB",
    "min_cosine": "cosine",
    "max_latency_ratio": "ratio",
    "min_int8_share": "share",
    "max_engine_mb": "MB",
}
"""Gate → unit of its threshold."""

_ON_METRICS = ("max_drop", "max_relative_drop", "worst_class")
_ON_OUTPUTS = ("min_sqnr", "min_cosine")
_AGAINST = {
    **dict.fromkeys(_ON_METRICS, ("fp32", "baseline")),
    "max_latency_ratio": ("fp32", "fp16", "baseline"),
}
_SETTINGS = ("schema", "gates", "alpha", "correction", "allow_undecided")
_PATHS = ("baseline", "noise")
_SUBJECT = ("results", "validate")
_KEYS = ("metric", "output", "against", "precisions")


@dataclass(frozen=True)
class Rule:
    """One gate.

    Attributes:
        gate: Which, one of ``GATES``.
        threshold: What it judges by.
        metric: The figure that gates of drops judge: "top1", "mAP", or another that the results have; empty
            for the one that speaks for the results' task.
        output: The model output that gates of outputs judge; empty for every one.
        against: "fp32" or "fp16" of the same results, or "baseline"; empty for the baseline where one is
            given and FP32 else.
        precisions: The runs that are judged, by precision or label; empty for all but the FP32 reference.
    """

    gate: str
    threshold: Threshold
    metric: str = ""
    output: str = ""
    against: str = ""
    precisions: tuple[str, ...] = ()

    @property
    def limit(self) -> str:
        """The threshold in words.

        >>> make_rules(max_drop="1%")[0].limit, make_rules(min_sqnr=20)[0].limit
        ('at most 1 percentage point (0.01)', 'at least 20 dB')
        """
        value = self.threshold.value
        word = "at least" if self.gate.startswith("min_") else "at most"
        if self.gate in ("max_drop", "worst_class") and self.threshold.unit == "number":
            return f"{word} {plain(value)} in its unit"
        if self.gate in ("max_drop", "worst_class"):
            return f"{word} {describe_points(value)}"
        words = {
            "max_relative_drop": f"{plain(100 * value)}% of the baseline's ({plain(value)})",
            "min_agreement": f"{plain(100 * value)}% of the samples ({plain(value)})",
            "min_sqnr": f"{plain(value)} dB",
            "min_cosine": plain(value),
            "max_latency_ratio": f"{plain(value)} times as long",
            "min_int8_share": f"{plain(100 * value)}% of the layers ({plain(value)})",
            "max_engine_mb": f"{plain(value)} MB",
        }
        return f"{word} {words[self.gate]}"


def make_rules(
    *,
    metrics: Sequence[str] = (),
    against: str = "",
    precisions: Sequence[str] = (),
    **thresholds: Limit | None,
) -> tuple[Rule, ...]:
    """Rules from options.

    Args:
        metrics: Figures that gates of drops judge; each gives a rule. Without them the figure that speaks for
            the results' task is judged.
        against: What drops are measured against; empty for the baseline where one is given and FP32 else.
        precisions: The runs that are judged; empty for all.
        **thresholds: Gate → threshold, as text or number; None leaves the gate out. Gates of drops take
            "NAME=THRESHOLD" too, and several of them: ``max_drop=["mAP=0.01", "mAP50=2%"]``.

    Raises:
        UsageError: A gate is unknown, or a threshold or another value cannot be meant.

    >>> [rule.gate for rule in make_rules(max_drop="1%", min_sqnr=20, worst_class=None)]
    ['max_drop', 'min_sqnr']
    >>> [(rule.metric, rule.threshold.value) for rule in make_rules(max_drop=["mAP=0.01", "MAE=3"])]
    [('mAP', 0.01), ('MAE', 3.0)]
    """
    rules: list[Rule] = []
    figures, runs = as_several(metrics), as_several(precisions)
    for gate, given in thresholds.items():
        _check_known(gate, GATES, "gate")
        if given is None:
            continue
        option = "--" + gate.replace("_", "-")
        side = against if against in _AGAINST.get(gate, ()) else ""
        rules += [
            Rule(
                gate,
                _threshold(gate, text, option, metric),
                metric,
                against=side,
                precisions=runs,
            )
            for metric, text in _limits(gate, given, figures)
        ]
    if against and not any(rule.against for rule in rules):
        raise UsageError(
            f"Nothing can be judged against {against!r}: drops are against fp32 or baseline, "
            "latency is against fp32, fp16 or baseline."
        )
    return tuple(rules)


def _limits(gate: str, given: Limit, metrics: Sequence[str]) -> list[tuple[str, str | float]]:
    """Figures and their thresholds."""
    # numpy's numbers are none of Python's; what is no number at all is refused where it is parsed.
    every = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    found: list[tuple[str, str | float]] = []
    for one in every:
        name, sign, rest = one.partition("=") if isinstance(one, str) else ("", "", one)
        if sign and not name.strip():
            option = "--" + gate.replace("_", "-")
            raise UsageError(f"{option} {one!r} names no figure before the sign. Write top1=1%, or 1%.")
        if sign and gate in _ON_METRICS:
            found.append((name.strip(), rest.strip() if isinstance(rest, str) else rest))
        elif gate in _ON_METRICS:
            found += [(metric, one) for metric in metrics or ("",)]
        else:
            found.append(("", one))
    return found


def _threshold(gate: str, given: str | float, option: str, metric: str) -> Threshold:
    """The threshold; where the figure is named its unit is not known before results are there."""
    unit = GATES[gate]
    if gate != "max_drop" or not metric or metric in SHARE_METRICS:
        return parse_threshold(given, option, unit)
    try:
        return parse_threshold(given, option, unit)
    except UsageError:
        return parse_threshold(given, option, "number")


def _check_known(name: str, known: Iterable[str], what: str, where: str = "") -> None:
    names = list(known)
    if name in names:
        return
    raise UsageError(
        f"{where}Unknown {what} {name!r}.{suggestion(name, names)} Choose from {', '.join(names)}."
    )


@dataclass(frozen=True)
class GateFile:
    """Rules and settings of a YAML file.

    Attributes:
        rules: The gates.
        alpha: Chance of a wrong verdict; None where the file does not say.
        correction: Correction of several judgements; None where the file does not say.
        allow_undecided: Whether undecided gates pass; None where the file does not say.
        baseline: The baseline that drops are judged against; None where the file names none.
        noise: Results of builds of one model, as ``check`` takes them.
        subject: What says which results pytest judges: the values of "results" and "validate".
    """

    rules: tuple[Rule, ...]
    alpha: float | None = None
    correction: Correction | None = None
    allow_undecided: bool | None = None
    baseline: Path | None = None
    noise: tuple[Path, ...] = ()
    subject: Mapping[str, Any] = field(default_factory=dict)


def read_gate_file(path: str | os.PathLike[str]) -> GateFile:
    """Reads gates from a YAML file.

    ::

        schema: 1
        baseline: baseline.json   # paths are relative to the file
        gates:
          - max_drop: 1%
            metric: top1          # by default the one that speaks for the task
            against: fp32         # or baseline
            precisions: [int8]    # all candidates by default
          - min_sqnr: 20
            output: logits

    Args:
        path: The file. What pytest needs beside the gates may stand in it too.

    Raises:
        UsageError: The file cannot be read, or holds what is no gate; with the line.
    """
    source = Path(path)
    try:
        document, content = read_document(source, "Gates file")
    except DatasetError as error:
        raise UsageError(str(error)) from error
    for key in content:
        _check_known(str(key), (*_SETTINGS, *_PATHS, *_SUBJECT), "key", f"{document.where([key])}: ")
    if content.get("schema") != 1:
        raise UsageError(f"{document.where(['schema'])}: expected schema: 1, got {content.get('schema')!r}.")
    entries = content.get("gates")
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{document.where(['gates'])}: expected a list of gates, such as '- max_drop: 1%'.")
    rules = tuple(
        _rule(entry, f"{document.where(['gates', index])}: ") for index, entry in enumerate(entries)
    )
    alpha, allow = content.get("alpha"), content.get("allow_undecided")
    if alpha is not None and (isinstance(alpha, bool) or not isinstance(alpha, (int, float))):
        raise UsageError(f"{document.where(['alpha'])}: expected a number such as 0.05, got {alpha!r}.")
    if allow is not None and not isinstance(allow, bool):
        raise UsageError(f"{document.where(['allow_undecided'])}: expected true or false, got {allow!r}.")
    baseline, noise = (_paths(content, key, document) for key in _PATHS)
    if len(baseline) > 1:
        raise UsageError(f"{document.where(['baseline'])}: expected one file, got {len(baseline)}.")
    subject = {key: content[key] for key in _SUBJECT if content.get(key) is not None}
    correction = content.get("correction")
    if correction is not None and correction not in get_args(Correction):
        # YAML reads "no" and "off" as false, which would be Holm's.
        known = ", ".join(get_args(Correction))
        raise UsageError(f"{document.where(['correction'])}: expected one of {known}, got {correction!r}.")
    return GateFile(rules, alpha, correction, allow, baseline[0] if baseline else None, noise, subject)


def _paths(content: Mapping[str, Any], key: str, document: Document) -> tuple[Path, ...]:
    """The files of a key, relative to the file that names them."""
    given = content.get(key)
    names = [] if given is None else given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"{document.where([key])}: expected the path of a file, got {given!r}.")
    return tuple(document.path.parent / name for name in names)


def _rule(entry: Any, where: str) -> Rule:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}expected a gate such as 'max_drop: 1%', got {entry!r}.")
    named = [key for key in entry if key in GATES]
    for key in entry:
        _check_known(str(key), (*GATES, *_KEYS), "key", where)
    if len(named) != 1:
        raise UsageError(f"{where}expected one gate in each entry, got {', '.join(named) or 'none'}.")
    gate = named[0]
    metric = entry.get("metric", "")
    threshold = _threshold(gate, entry[gate], f"{where}{gate}", metric if isinstance(metric, str) else "")
    for key, gates in (("metric", _ON_METRICS), ("output", _ON_OUTPUTS), ("against", tuple(_AGAINST))):
        if key in entry and gate not in gates:
            raise UsageError(f"{where}{key} is a name, and belongs to {', '.join(gates)}; {gate} takes none.")
        if key in entry and not isinstance(entry[key], str):
            raise UsageError(f"{where}{key} is one name, got {entry[key]!r}.")
    if "against" in entry:
        _check_known(entry["against"], _AGAINST[gate], "side", where)
    return Rule(
        gate,
        threshold,
        metric=metric,
        output=entry.get("output", ""),
        against=entry.get("against", ""),
        precisions=_names(entry.get("precisions", ()), where),
    )


def _names(given: Any, where: str) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where}precisions is a list of names such as [int8], got {given!r}.")
    return tuple(names)
