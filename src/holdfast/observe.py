"""Names for observers: the observations of calls, statistics, and the health of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._public import publish

if TYPE_CHECKING:
    from holdfast._client.circuit import Circuit
    from holdfast._client.named_agent import AgentHealth
    from holdfast._client.stats import ClientStats, EndpointStats
    from holdfast._model.server_spans import (
        ActivityKind,
        ServerActivity,
        ServerSpan,
        ServerTelemetry,
    )
    from holdfast._pipeline.observations import (
        AttemptFinished,
        AttemptStarted,
        CardChecked,
        CircuitChanged,
        EventReceived,
        GapDetected,
        HedgeStarted,
        JournalStep,
        JournalWritten,
        Observation,
        Observer,
        OperationFinished,
        OperationStarted,
        Outcome,
        Reconciled,
        ReconcileStarted,
        Reconnected,
        RequestFinished,
        RequestStarted,
        RetryScheduled,
        RetryStopped,
        StreamInterrupted,
        TelemetrySource,
        WaitFinished,
        WaitReason,
        WaitStarted,
    )
    from holdfast._policy.breaker import BreakerState

__all__ = [
    "ActivityKind",
    "AgentHealth",
    "AttemptFinished",
    "AttemptStarted",
    "BreakerState",
    "CardChecked",
    "Circuit",
    "CircuitChanged",
    "ClientStats",
    "EndpointStats",
    "EventReceived",
    "GapDetected",
    "HedgeStarted",
    "JournalStep",
    "JournalWritten",
    "Observation",
    "Observer",
    "OperationFinished",
    "OperationStarted",
    "Outcome",
    "ReconcileStarted",
    "Reconciled",
    "Reconnected",
    "RequestFinished",
    "RequestStarted",
    "RetryScheduled",
    "RetryStopped",
    "ServerActivity",
    "ServerSpan",
    "ServerTelemetry",
    "StreamInterrupted",
    "TelemetrySource",
    "WaitFinished",
    "WaitReason",
    "WaitStarted",
]

__getattr__, __dir__ = publish(
    __name__,
    {
        "_client.circuit": "Circuit",
        "_client.named_agent": "AgentHealth",
        "_client.stats": "ClientStats EndpointStats",
        "_model.server_spans": "ActivityKind ServerActivity ServerSpan ServerTelemetry",
        "_pipeline.observations": (
            "AttemptFinished AttemptStarted CardChecked CircuitChanged EventReceived "
            "GapDetected HedgeStarted JournalStep JournalWritten Observation Observer "
            "OperationFinished OperationStarted Outcome ReconcileStarted Reconciled "
            "Reconnected RequestFinished RequestStarted RetryScheduled RetryStopped "
            "StreamInterrupted TelemetrySource WaitFinished WaitReason WaitStarted"
        ),
        "_policy.breaker": "BreakerState",
    },
)
