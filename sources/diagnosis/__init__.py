"""The offline half of ``governor doctor``: what a pasted scrape tells, and what it will never tell."""

from sources.diagnosis.diagnose import diagnose_exposition
from sources.diagnosis.model import Diagnosis, Finding, Histogram, Level, Row
from sources.diagnosis.render import render, to_json

__all__ = ["Diagnosis", "Finding", "Histogram", "Level", "Row", "diagnose_exposition", "render", "to_json"]
