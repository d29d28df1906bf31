"""What a check of data found, and whether a gate lets it pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["SEVERITIES", "Doubt", "Finding", "Severity", "passes"]

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


def passes(findings: Iterable[Finding], *, strict: bool = False) -> bool:
    """Whether a gate lets data with these findings pass: no error, if strict no warning either.

    >>> passes([Finding("x", "warning", "doubtful")]), passes([Finding("x", "warning", "")], strict=True)
    (True, False)
    """
    stopping = {"error", "warning"} if strict else {"error"}
    return not any(finding.severity in stopping for finding in findings)
