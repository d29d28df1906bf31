"""Reports: HTML, Markdown, JSON and CSV, drawn from saved results only."""

from __future__ import annotations

from calib.report.writer import ReportFiles, write_report

__all__ = ["ReportFiles", "write_report"]
