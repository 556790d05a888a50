"""Holdfast as the transport of the official SDK (a2a-sdk 1.x), whose client and types stay.

Needs the extra ``holdfast[a2a-sdk]``.

`client_factory` replaces the SDK's ``ClientFactory``. Its clients make their calls with Holdfast:
a failed call is retried where that is safe, the task of a message whose reply was lost is searched
for, and a stream that was cut is resumed::

    factory = client_factory(config)

`RetryTransport` retries the calls of any other transport of the SDK, and executes no message
twice::

    transport = RetryTransport(GrpcTransport(channel, card))

`to_value` and
`to_proto` convert between the SDK's messages and `holdfast.types`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast._model.extras import install_hint
from holdfast._public import publish

try:
    import_module("a2a.types.a2a_pb2")  # which came with 1.0
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "a2a":
        raise
    text = (
        "holdfast.integrations.a2a_sdk needs the official SDK, a2a-sdk 1.0 or later: "
        f"{install_hint('a2a-sdk')}"
    )
    raise ImportError(text, name=missing.name) from missing


if TYPE_CHECKING:
    from holdfast._integrations.a2a_sdk.errors import CallFailedError, CallTimeoutError
    from holdfast._integrations.a2a_sdk.factory import HoldfastClientFactory, client_factory
    from holdfast._integrations.a2a_sdk.failures import default_retry_predicate
    from holdfast._integrations.a2a_sdk.messages import to_proto, to_value
    from holdfast._integrations.a2a_sdk.retry import RetryTransport
    from holdfast._integrations.a2a_sdk.retry_config import (
        OnRetry,
        RetryConfig,
        RetryPredicate,
        SharedBudget,
    )
    from holdfast._integrations.a2a_sdk.retry_loop import RetryFacts, retry_facts
    from holdfast._integrations.a2a_sdk.transport import HoldfastTransport, TransportOptions

__all__ = [
    "CallFailedError",
    "CallTimeoutError",
    "HoldfastClientFactory",
    "HoldfastTransport",
    "OnRetry",
    "RetryConfig",
    "RetryFacts",
    "RetryPredicate",
    "RetryTransport",
    "SharedBudget",
    "TransportOptions",
    "client_factory",
    "default_retry_predicate",
    "retry_facts",
    "to_proto",
    "to_value",
]

__getattr__, __dir__ = publish(
    __name__,
    {
        "_integrations.a2a_sdk.errors": "CallFailedError CallTimeoutError",
        "_integrations.a2a_sdk.factory": "HoldfastClientFactory client_factory",
        "_integrations.a2a_sdk.failures": "default_retry_predicate",
        "_integrations.a2a_sdk.messages": "to_proto to_value",
        "_integrations.a2a_sdk.retry": "RetryTransport",
        "_integrations.a2a_sdk.retry_config": "OnRetry RetryConfig RetryPredicate SharedBudget",
        "_integrations.a2a_sdk.retry_loop": "RetryFacts retry_facts",
        "_integrations.a2a_sdk.transport": "HoldfastTransport TransportOptions",
    },
)
