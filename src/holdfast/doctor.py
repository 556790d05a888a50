"""Examining an agent: what it says of itself, what it does, and what that means for callers.

diagnosis = await diagnose("https://agent.example.com")
for finding in diagnosis.findings:
    print(finding.check, finding.level, finding.saw)
"""

from holdfast._doctor.examination import Examination, diagnose
from holdfast._doctor.findings import Diagnosis, Finding, Level

__all__ = ["Diagnosis", "Examination", "Finding", "Level", "diagnose"]
