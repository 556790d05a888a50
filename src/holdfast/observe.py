"""Names for observers: the observations of calls, statistics, and the health of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._public import publish

if TYPE_CHECKING:
    from holdfast._client.circuit import Circuit
    from holdfast._client.named_agent import AgentHealth
    from holdfast._client.stats import ClientStats, EndpointStats
    from holdfast._pipeline.observations import (
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
    from holdfast._policy.breaker import BreakerState

__all__ = [
    "AgentHealth",
    "AttemptFailed",
    "AttemptStarted",
    "BreakerState",
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

__getattr__, __dir__ = publish(
    __name__,
    {
        "_client.circuit": "Circuit",
        "_client.named_agent": "AgentHealth",
        "_client.stats": "ClientStats EndpointStats",
        "_pipeline.observations": (
            "AttemptFailed AttemptStarted CallFinished CardChecked CircuitChanged Observation "
            "Observer ReconcileStarted Reconciled Reconnected RequestFinished RetryScheduled"
        ),
        "_policy.breaker": "BreakerState",
    },
)
