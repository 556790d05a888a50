"""What observers receive, and what a client knows of its agents."""

from __future__ import annotations

from holdfast._client.circuit import Circuit
from holdfast._client.named_agent import AgentHealth
from holdfast._client.stats import ClientStats, EndpointStats
from holdfast._pipeline.listeners import (
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    CardChecked,
    CircuitChanged,
    Observation,
    Observer,
    Reconciled,
    ReconcileStarted,
    Reconnected,
    RequestFinished,
    RetryScheduled,
)
from holdfast._public import publish

__all__ = [
    "AgentHealth",
    "AttemptFailed",
    "AttemptStarted",
    "CallFinished",
    "CardChecked",
    "Circuit",
    "CircuitChanged",
    "ClientStats",
    "EndpointStats",
    "Observation",
    "Observer",
    "ReconcileStarted",
    "Reconciled",
    "Reconnected",
    "RequestFinished",
    "RetryScheduled",
]

__getattr__, __dir__ = publish(__name__)
