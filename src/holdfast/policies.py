"""Policies: how calls are retried, limited, hedged, searched for and bounded in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._policy.breaker import BreakerFailure, BreakerPolicy
from holdfast._policy.budget import BudgetPolicy
from holdfast._policy.concurrency import ConcurrencyPolicy
from holdfast._policy.deadline import Deadline
from holdfast._policy.hedge import HedgePolicy
from holdfast._policy.reconcile import ContextIds, OnUnknown, ReconcilePolicy
from holdfast._policy.reconnect import ReconnectPolicy
from holdfast._policy.resilience import Resilience
from holdfast._policy.retry import RetryPolicy
from holdfast._policy.retry_after import RetryAfterPolicy
from holdfast._public import publish
from holdfast._wire.http import Timeouts
from holdfast._wire.limits import Limits

if TYPE_CHECKING:
    from holdfast._net.tls_config import TlsConfig

__all__ = [
    "BreakerFailure",
    "BreakerPolicy",
    "BudgetPolicy",
    "ConcurrencyPolicy",
    "ContextIds",
    "Deadline",
    "HedgePolicy",
    "Limits",
    "OnUnknown",
    "ReconcilePolicy",
    "ReconnectPolicy",
    "Resilience",
    "RetryAfterPolicy",
    "RetryPolicy",
    "Timeouts",
    "TlsConfig",
]

__getattr__, __dir__ = publish(__name__, {"_net.tls_config": "TlsConfig"})
