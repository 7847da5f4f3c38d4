"""What a search says: answers, tables, JSON, progress."""

from __future__ import annotations

from vtrain_search.report.answer import Answer, answer_case
from vtrain_search.report.assumptions import assumptions
from vtrain_search.report.document import SCHEMA_VERSION, document
from vtrain_search.report.table import render

__all__ = ["SCHEMA_VERSION", "Answer", "answer_case", "assumptions", "document", "render"]
