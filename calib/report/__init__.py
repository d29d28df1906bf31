"""Reports: HTML, Markdown, JSON and CSV, drawn from saved results only."""

from __future__ import annotations

from calib.report.gates import check_markdown, check_text
from calib.report.junit import check_junit
from calib.report.writer import ReportFiles, write_report

__all__ = ["ReportFiles", "check_junit", "check_markdown", "check_text", "write_report"]
