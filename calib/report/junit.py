"""What a check found as JUnit XML, which every CI system reads: one test case a gate."""

from __future__ import annotations

from xml.etree import ElementTree

from calib.report.gates import check_headline
from calib.report.text import visible
from calib.validation.verdicts import CheckReport, GateOutcome

__all__ = ["check_junit"]


def check_junit(report: CheckReport) -> str:
    """Writes a check as JUnit XML.

    Failed gates are failures of type "fail"; undecided ones are failures of type "undecided", or skipped
    where the check allows them; figures that are new or not measured are skipped.

    Args:
        report: What ``calib.check`` found.
    """
    cases = [_case(one, report.allow_undecided) for one in report.outcomes]
    if report.verdict == "fail" and not report.count("fail"):
        cases.append(_nothing(report))
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    root = ElementTree.Element("testsuites", {"name": "calib check", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": visible(report.results) or "calib", **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (
        ("verdict", check_headline(report)),
        ("baseline", visible(report.baseline)),
        ("alpha", f"{report.alpha:g}"),
        ("correction", report.correction),
    ):
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    suite.extend(cases)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(one: GateOutcome, allow_undecided: bool) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", {"classname": f"calib.{one.gate}", "name": visible(one.name), "time": "0"}
    )
    reason = visible(one.reason)
    parts = (f"limit: {one.limit}" if one.limit else "", reason, visible(one.note), visible(one.method))
    details = "\n".join(part for part in parts if part)
    if one.verdict == "fail" or (one.verdict == "undecided" and not allow_undecided):
        failure = ElementTree.SubElement(case, "failure", {"type": one.verdict, "message": reason})
        failure.text = details
    elif one.verdict != "pass":
        ElementTree.SubElement(case, "skipped", {"message": f"{one.verdict}: {reason}"})
    else:
        ElementTree.SubElement(case, "system-out").text = details
    return case


def _nothing(report: CheckReport) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": "calib.check", "name": "decided", "time": "0"})
    message = f"nothing was decided: {check_headline(report)}"
    ElementTree.SubElement(case, "failure", {"type": "fail", "message": message})
    return case
