"""What a check says: on a terminal, in Markdown and as JUnit XML."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from test_report import report_results as made

from calib.report import check_junit, check_markdown, check_text
from calib.report.gates import check_headline
from calib.validation import Change, CheckReport, GateOutcome, check, make_baseline


def gate(verdict: str, subject: str = "top1", **more: object) -> GateOutcome:
    fields = {"reason": f"because it is {verdict}", "limit": "at most 1 percentage point (0.01)", **more}
    return GateOutcome("max_drop", "INT8", subject, "FP32", verdict, **fields)  # type: ignore[arg-type]


REPORT = CheckReport(
    results="results.json",
    baseline="base.json",
    outcomes=(
        GateOutcome("integrity", "", "samples", "", "pass", "360 samples"),
        gate("pass", "a", method="Tango score test", p_value=0.01, p_worse=0.99, p_adjusted=0.02),
        gate("fail", "b", method="Tango score test", p_value=0.99, p_worse=0.0001, p_worse_adjusted=0.0002),
        gate("undecided", "c", method="Tango score test", p_value=0.2, p_worse=0.8, note="more samples"),
        gate("not measured", "d"),
        gate("new", "e"),
    ),
    changes=(
        Change("INT8", "top1", 0.97, 0.95, "worse", 0.01, 0.03),
        Change("INT8", "SQNR of y", 30.0, 29.9, "within noise", noise=0.2, unit="dB"),
        Change("INT8", "map", None, None, "not measured"),
        Change("FP16", "top1", 0.97, 0.97, "same"),
    ),
    warnings=("0.5 is 50%",),
)


def test_the_headline_counts() -> None:
    expected = "FAIL: 1 failed, 1 undecided, 1 new, 1 not measured, 2 passed"
    assert check_headline(REPORT) == expected
    open_one = replace(REPORT, outcomes=(gate("undecided"),))
    assert check_headline(open_one) == "UNDECIDED: 1 undecided"
    allowed = replace(open_one, allow_undecided=True)
    assert check_headline(allowed) == "UNDECIDED (undecided gates are allowed): 1 undecided"
    nothing = replace(REPORT, outcomes=(gate("not measured"),))
    assert check_headline(nothing) == "FAIL: no gate was decided; 1 not measured"


def test_text_shows_gates_limits_reasons_and_changes() -> None:
    assert check_text(REPORT).splitlines() == [
        "calib check results.json: FAIL: 1 failed, 1 undecided, 1 new, 1 not measured, 2 passed",
        "against base.json",
        "  pass          max_drop a: INT8 against FP32, at most 1 percentage point (0.01)",
        "                because it is pass",
        "                (Tango score test, p = 0.01, 0.02 after correction)",
        "  fail          max_drop b: INT8 against FP32, at most 1 percentage point (0.01)",
        "                because it is fail",
        "                (Tango score test, p < 0.001, <0.001 after correction)",
        "  undecided     max_drop c: INT8 against FP32, at most 1 percentage point (0.01)",
        "                because it is undecided",
        "                (Tango score test, p = 0.2 within, 0.8 beyond; more samples)",
        "  not measured  max_drop d: INT8 against FP32, at most 1 percentage point (0.01)",
        "                because it is not measured",
        "  new           max_drop e: INT8 against FP32, at most 1 percentage point (0.01)",
        "                because it is new",
        "Against the baseline:",
        "  INT8 top1: 97.0% → 95.0%: worse, change −3.0 to −1.0 points (95% interval)",
        "  INT8 SQNR of y: 30.0 dB → 29.9 dB: within noise, rebuild noise 0.200 dB",
        "  INT8 map: null → null: not measured",
    ]
    assert "integrity samples" in check_text(REPORT, every=True)


def test_markdown_starts_with_the_verdict_and_puts_failures_first() -> None:
    text = check_markdown(REPORT)
    assert text.startswith("## ❌ calib check: FAIL: 1 failed")
    assert "> [!WARNING]\n> 0.5 is 50%" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[0] == "| Verdict | Gate | Limit | Found |"
    assert rows[2].startswith("| **failed** | max_drop b: INT8 against FP32 |")
    assert "| INT8 | top1 | 97.0% | 95.0% | −3.0 to −1.0 points | **worse** |" in rows
    passed = check_markdown(replace(REPORT, outcomes=(gate("pass"),), changes=()))
    assert passed.startswith("## ✅ calib check: PASS")
    assert check_markdown(replace(REPORT, outcomes=(gate("undecided"),))).startswith("## ⚠️")


class TestJUnit:
    def cases(self, report: CheckReport) -> tuple[ElementTree.Element, dict[str, ElementTree.Element]]:
        root = ElementTree.fromstring(check_junit(report).split("\n", 1)[1])
        return root, {case.attrib["name"]: case for case in root.iter("testcase")}

    def test_one_case_a_gate(self) -> None:
        root, cases = self.cases(REPORT)
        assert root.tag == "testsuites"
        suite = root.find("testsuite")
        assert suite is not None
        counts = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")}
        assert counts == {"tests": "6", "failures": "2", "errors": "0", "skipped": "2"}
        failure = cases["max_drop b: INT8 against FP32"].find("failure")
        assert failure is not None
        assert failure.attrib == {"type": "fail", "message": "because it is fail"}
        assert failure.text is not None
        assert failure.text.startswith("limit: at most 1 percentage point (0.01)\nbecause it is fail")
        undecided = cases["max_drop c: INT8 against FP32"].find("failure")
        assert undecided is not None
        assert undecided.attrib["type"] == "undecided"
        assert cases["max_drop a: INT8 against FP32"].find("failure") is None
        skipped = cases["max_drop d: INT8 against FP32"].find("skipped")
        assert skipped is not None
        assert skipped.attrib["message"] == "not measured: because it is not measured"

    def test_allowed_undecided_gates_are_skipped(self) -> None:
        root, cases = self.cases(replace(REPORT, outcomes=(gate("undecided"),), allow_undecided=True))
        assert root.attrib["failures"] == "0"
        assert cases["max_drop top1: INT8 against FP32"].find("skipped") is not None

    def test_nothing_decided_is_a_failure(self) -> None:
        root, cases = self.cases(replace(REPORT, outcomes=(gate("new"),)))
        assert root.attrib["failures"] == "1"
        assert cases["decided"].find("failure") is not None

    def test_any_string_is_well_formed(self) -> None:
        results = made.hostile()
        report = check(results, baseline=make_baseline(results), max_drop="1%", min_sqnr=20)
        _, cases = self.cases(report)
        assert len(cases) >= 6
        assert "<script" not in check_markdown(report)
