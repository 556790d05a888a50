"""The activity's name, argument and result, which Temporal stores in the history of a workflow."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

__all__ = ["ASK", "AskRequest", "AskResult"]

ASK = "holdfast.ask"
"""The type of the activity that asks an agent."""


@dataclass(frozen=True, kw_only=True)
class AskRequest:
    """The argument of the activity; Temporal's converters store it as a JSON object.

    Attributes:
        agent: The name of the agent at the plugin of the worker.
        message: The message, as a JSON object of protocol 1.0; its ``messageId`` may be empty.
        metadata: The metadata of the request; none by default.
        accepted_output_modes: Media types that the caller accepts; None for those of the client.
        key: The caller's own idempotency key; None for a key of the activity.
        cancel_task: Whether a cancellation of the activity cancels the agent's task.
        fingerprint: Identifies this request, for the check of a replay; None without a check.
    """

    agent: str
    message: dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: dict[str, Any] | None = None
    accepted_output_modes: list[str] | None = None
    key: str | None = None
    cancel_task: bool = False
    fingerprint: str | None = None

    def new_fingerprint(self) -> str:
        """Return the fingerprint of everything that determines the agent's answer."""
        content = [self.agent, self.message, self.metadata, self.accepted_output_modes, self.key]
        text = json.dumps(content, sort_keys=True)
        return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, kw_only=True)
class AskResult:
    """The result of the activity; Temporal's converters store it as a JSON object.

    Attributes:
        answer: The answer, as `Answer.to_dict` returns it, without the history of its task.
        fingerprint: That of the request.
    """

    answer: dict[str, Any]
    fingerprint: str | None = None
