"""Holdfast below the official SDK (a2a-sdk 1.x): its client and its types outside.

Needs the extra ``holdfast[a2a-sdk]``.

    factory = client_factory(config)

in place of ``ClientFactory(config)`` makes the SDK's clients, whose calls go over Holdfast's: they
are tried again where that is safe, a message whose reply was lost is looked for, and a stream that
was cut goes on.

    transport = RetryTransport(GrpcTransport(channel, card))

tries the calls of any other transport of the SDK again, and executes no message twice.
"""

from __future__ import annotations

from importlib import import_module

from holdfast._model.extras import install_command

try:
    import_module("a2a.types.a2a_pb2")  # which came with 1.0
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "a2a":
        raise
    text = (
        "holdfast.integrations.a2a_sdk needs the official SDK, a2a-sdk 1.0 or later: "
        f"{install_command('a2a-sdk')}"
    )
    raise ImportError(text, name=missing.name) from missing

from holdfast._integrations.a2a_sdk.errors import CallFailedError, CallTimeoutError
from holdfast._integrations.a2a_sdk.factory import HoldfastClientFactory, client_factory
from holdfast._integrations.a2a_sdk.failures import default_retry_predicate
from holdfast._integrations.a2a_sdk.retry import RetryTransport
from holdfast._integrations.a2a_sdk.retry_config import RetryConfig, SharedBudget
from holdfast._integrations.a2a_sdk.retry_loop import RetryFacts, retry_facts
from holdfast._integrations.a2a_sdk.transport import HoldfastTransport, TransportOptions
from holdfast._public import publish

__all__ = [
    "CallFailedError",
    "CallTimeoutError",
    "HoldfastClientFactory",
    "HoldfastTransport",
    "RetryConfig",
    "RetryFacts",
    "RetryTransport",
    "SharedBudget",
    "TransportOptions",
    "client_factory",
    "default_retry_predicate",
    "retry_facts",
]

__getattr__, __dir__ = publish(__name__)
