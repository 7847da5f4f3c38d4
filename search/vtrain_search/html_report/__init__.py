"""Reports that can be sent round: one self-contained HTML file, or Markdown."""

from __future__ import annotations

from vtrain_search.html_report.write import report_format, write_report

__all__ = ["report_format", "write_report"]
