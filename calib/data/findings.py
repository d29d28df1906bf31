"""What a check of data found, and whether a gate lets it pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from calib.wording import inflected

__all__ = ["SEVERITIES", "Doubt", "Finding", "Severe", "Severity", "passes", "severity_counts"]

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """Something worth knowing about data or preprocessing.

    Attributes:
        code: A fixed word for it, such as "mixed-sizes".
        severity: "error": figures made with these data mean nothing, or nothing can be run. "warning":
            they may be wrong. "note": good to know.
        message: What it is.
        where: Files, samples, inputs or tensors that it is about; all of them.
        advice: What to do; empty where nothing needs to be done.
    """

    code: str
    severity: Severity
    message: str
    where: tuple[str, ...] = ()
    advice: str = ""


class Doubt(str):
    """A note of a dataset that a check of the data is to warn of.

    Args:
        text: The note.
        code: A fixed word for it, as of ``Finding``.
        advice: What to do.

    Attributes:
        code: The word.
        advice: What to do; empty where nothing needs to be done.
    """

    code: str
    advice: str

    def __new__(cls, text: str, code: str = "", advice: str = "") -> Doubt:
        """Makes the text, which is what results and reports have of it."""
        made = super().__new__(cls, text)
        made.code, made.advice = code, advice
        return made


class Severe(Protocol):
    """Whatever has a severity: a finding of data, or of a cache."""

    @property
    def severity(self) -> Severity:
        """How much it matters."""


def severity_counts(findings: Iterable[Severe]) -> str:
    """How many findings there are of each severity.

    >>> severity_counts([Finding("x", "note", "fine"), Finding("y", "warning", "doubtful")])
    'no errors, 1 warning, 1 note'
    """
    found = [finding.severity for finding in findings]
    counts = {severity: found.count(severity) for severity in SEVERITIES}
    return ", ".join(f"{count or 'no'} {inflected(count, name + '[s]')}" for name, count in counts.items())


def passes(findings: Iterable[Severe], *, strict: bool = False) -> bool:
    """Whether a gate lets what has these findings pass: no error, if strict no warning either.

    >>> passes([Finding("x", "warning", "doubtful")]), passes([Finding("x", "warning", "")], strict=True)
    (True, False)
    """
    stopping = {"error", "warning"} if strict else {"error"}
    return not any(finding.severity in stopping for finding in findings)
