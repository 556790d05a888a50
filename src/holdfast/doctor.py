"""Examination of an agent: its card, its replies, and their consequences for callers.

Print what an examination found::

    diagnosis = await diagnose("https://agent.example.com")
    for finding in diagnosis.findings:
        print(finding.check, finding.level, finding.saw)

A finding is an observation of the agent with a level, from ``ok`` to ``problem``.
"""

from __future__ import annotations

from holdfast._doctor.examination import diagnose
from holdfast._doctor.findings import Diagnosis, Finding, Level
from holdfast._public import publish

__all__ = ["Diagnosis", "Finding", "Level", "diagnose"]

__getattr__, __dir__ = publish(__name__)
