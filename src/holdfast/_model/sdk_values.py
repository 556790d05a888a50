"""Names of rejected values in errors; the official SDK's come with what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["is_of_sdk", "kind_of"]

_MESSAGE_ADVICE = "pass its message; its metadata and the fields of its configuration are options"

_INSTEAD: Mapping[str, str] = {
    "ClientCallContext": (
        "pass holdfast.auth.ClientCallContext(state=….state), its timeout as timeout= and its "
        "service_parameters as headers="
    ),
    "ClientConfig": (
        "pass holdfast.compat.ClientConfig(…), which has engine= in place of httpx_client="
    ),
    "BaseClient": "pass the agent's URL or card: Holdfast makes its own connection",
    "ListTasksRequest": (
        "pass its fields by keyword, such as context_id=….context_id and limit=….page_size"
    ),
    "SendMessageRequest": _MESSAGE_ADVICE,
    "MessageSendParams": _MESSAGE_ADVICE,
    "StreamResponse": "pass its task, message, status_update or artifact_update",
}
"""Classes of the SDK, by name, and what to pass in place of one of their objects."""

_V03_INSTEAD: Mapping[str, str] = {
    **_INSTEAD,
    "SendMessageRequest": "pass its params.message",
    "Task": "pass await agent.get_task(….id)",
    "TaskPushNotificationConfig": (
        "pass holdfast.types.TaskPushNotificationConfig(task_id=….task_id, "
        "url=….push_notification_config.url, token=….push_notification_config.token)"
    ),
}
"""The same for the SDK for protocol 0.3, whose classes have other members."""

_POLICY_INSTEAD: Mapping[tuple[str, str], str] = {
    ("RetryConfig", "Resilience"): (
        "pass Resilience(retry=RetryPolicy(max_retries=…)); a RetryConfig is for clients of the "
        "official SDK"
    ),
    ("RetryPolicy", "Resilience"): "pass Resilience(retry=…)",
    ("RetryPolicy", "RetryConfig"): "pass resilience=Resilience(retry=…) instead",
    ("Resilience", "RetryConfig"): "pass it as resilience=",
}
"""Classes of policies, with the class that is expected, and what to pass instead."""

_ACCEPTED_AS_DICTS = ("AgentCard", "Message")
"""Classes of values that may be passed as JSON objects, too."""


def is_of_sdk(kind: type) -> bool:
    """Return whether a class is one of the official SDK."""
    return kind.__module__.partition(".")[0] in {"a2a", "a2a_pb2"}


def kind_of(value: object, expected: type | None = None) -> str:
    """Name the class of a rejected value; for the official SDK's, add what to pass.

    Args:
        value: The rejected value.
        expected: The class that is accepted; None if there are several.
    """
    kind = type(value)
    if not is_of_sdk(kind):
        advice = _enum_advice(value, expected)
        if expected is not None:
            advice = _POLICY_INSTEAD.get((kind.__name__, expected.__name__), advice)
        return f"{kind.__name__}{advice and f'; {advice}'}"
    advice = _advice(value, kind, expected)
    return f"{kind.__module__}.{kind.__name__} of the official SDK{advice and f'; {advice}'}"


def _enum_advice(value: object, expected: type | None) -> str:
    """Return advice for a number or a text in place of an enum; protobuf's enums are numbers."""
    if expected is None or not issubclass(expected, Enum):
        return ""
    name = expected.__name__
    if isinstance(value, str):
        word = value.upper()
        for choice in expected:
            if word in {choice.name, str(choice.value).upper()}:
                return f"pass {name}.{choice.name}"
        return f"pass one of {', '.join(f'{name}.{choice.name}' for choice in expected)}"
    if type(value) is not int:
        return ""
    member = list(expected)[1].name
    return (
        f"pass a member such as {name}.{member}; for a number of the official SDK, pass "
        f"holdfast.{name}(a2a.types.{name}.Name(…))"
    )


def _advice(value: Any, kind: type, expected: type | None) -> str:
    """Return what to pass in place of a value of the SDK; empty if nothing is known."""
    name, is_protobuf = kind.__name__, hasattr(kind, "DESCRIPTOR")
    is_same = expected is not None and expected.__name__ == name
    if isinstance(value, Enum) and is_same:
        return f"pass holdfast.{name}[….name.upper()]"
    if is_same and is_protobuf:
        return f"pass holdfast.integrations.a2a_sdk.to_value(…, holdfast.types.{name})"
    if expected is str:
        ids = [f"its {each}" for each in ("task_id", "id") if hasattr(value, each)]
        if ids:
            return f"pass {' and '.join(ids)}"
    if expected is dict or (expected is None and name in _ACCEPTED_AS_DICTS):
        if is_protobuf:
            return "pass what google.protobuf.json_format.MessageToDict(…) gives"
        dump = 'model_dump(mode="json", by_alias=True, exclude_none=True)'
        return f"pass what its {dump} gives" if hasattr(value, "model_dump") else ""
    instead = _V03_INSTEAD if hasattr(kind, "model_fields") else _INSTEAD
    return instead.get(name, "")
