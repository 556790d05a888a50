"""The types of the options of a call and of a client, which are passed by keyword.

A function that passes options on can declare them as ``**options: Unpack[CallOptions]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, cast, get_args

from holdfast._arguments import (
    check_extension_uris,
    check_kind,
    check_not_empty,
    check_one_of,
    check_options,
    check_seconds,
)
from holdfast._pipeline.transport import ClientCallContext
from holdfast._policy.reconcile import OnUnknown
from holdfast._wire.http import Timeouts, check_caller_headers

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import aiohttp
    from grpc import aio

    from holdfast._aio.env import Env
    from holdfast._auth.providers import AuthProvider, CredentialService
    from holdfast._journal.protocol import Journal
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.endpoints import Endpoints
    from holdfast._pipeline.listeners import Consumer, Interceptor
    from holdfast._pipeline.observations import Observer, TelemetrySource
    from holdfast._pipeline.produced import TransportProducer
    from holdfast._pipeline.transport import Layer
    from holdfast._policy.reconcile import ContextIds
    from holdfast._policy.resilience import Resilience
    from holdfast._signatures.verifier import CardVerifier, CardVerifierCallable
    from holdfast._wire.bindings import ProtocolVersion
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import AgentReach
    from holdfast.types import SendMessageConfiguration

__all__ = [
    "CALL_TIMEOUT",
    "CARD_TTL",
    "CallOptions",
    "ClientOptions",
    "ConnectOptions",
    "CreateOptions",
    "SendOptions",
    "check_call_options",
]

CALL_TIMEOUT = 900.0
"""Default time limit of a call, in seconds."""


CARD_TTL = 300.0
"""Seconds for which a card is cached if its server does not say."""


class CallOptions(TypedDict, total=False):
    """Options that every operation of a `Client` takes by keyword, besides its own arguments.

    Attributes:
        timeout: Seconds for the whole call, including retries and waits; more than 0. None, the
            default, is the client's own timeout (900 unless `connect` sets another) and does not
            disable it; a stream without a timeout has no limit.
        headers: HTTP headers to send with each request of the call, to trusted origins only; none
            by default.
        extensions: URIs of protocol extensions to request (``A2A-Extensions``), besides those of
            the client; none by default.
        context: A `ClientCallContext` with values for credential services, interceptors and
            layers; none by default.
        tenant: Tenant of every request of the call, in place of the one of the card or `connect`.
            Protocol 0.3 has no tenants.
        timeouts: `Timeouts` of each attempt, in seconds; None, the default, for those of the
            client.
    """

    timeout: float | None
    headers: Mapping[str, str] | None
    extensions: Iterable[str]
    context: ClientCallContext | None
    tenant: str | None
    timeouts: Timeouts | None


class SendOptions(CallOptions, total=False):
    """Options of every operation of a `Client` that sends a message: `CallOptions` and these.

    Attributes:
        on_unknown: Handling of a message whose reply was lost: ``"reconcile"``, ``"raise"``,
            ``"resend_if_absent"`` or ``"resend"``, as `connect` explains; the client's own by
            default.
    """

    on_unknown: OnUnknown


_CALL_OPTIONS = tuple(CallOptions.__annotations__)
_FILE_OPTIONS = ("file", "files", "attachments", "images")  # of other libraries
_SEND_OPTIONS = (*_CALL_OPTIONS, *SendOptions.__annotations__.keys() - set(_CALL_OPTIONS))


def check_call_options(
    options: CallOptions | SendOptions,
    *,
    sends: bool = False,
    method: Callable[..., Any] | None = None,
) -> SendOptions:
    """Check the options of a call, and return them with header names in lower case.

    Args:
        options: The caller's options.
        sends: Whether the call may send a message.
        method: The method that takes the options, for errors about its own arguments.

    Raises:
        ValueError: A timeout, header or URI that is not valid.
        TypeError: An option that does not exist, or is of another type.
    """
    if sends and "message_id" in options:
        text = "message_id is a member of the message: pass Message(message_id=…, …) as message"
        raise TypeError(text)
    if sends and (name := next((name for name in _FILE_OPTIONS if name in options), None)):
        text = f"{name!r} is not an option of a call; pass [text, file_part(path)] as the message"
        raise TypeError(text)
    check_options("a call", options, _SEND_OPTIONS if sends else _CALL_OPTIONS, function=method)
    checked = cast("SendOptions", {**options})
    if "on_unknown" in checked:
        check_one_of("on_unknown", checked["on_unknown"], get_args(OnUnknown))
    if (timeout := options.get("timeout")) is not None:
        check_seconds("timeout", timeout)
    if (tenant := options.get("tenant")) is not None:
        check_not_empty("tenant", tenant)
    if (timeouts := options.get("timeouts")) is not None:
        check_kind("timeouts", timeouts, Timeouts)
    if (context := options.get("context")) is not None:
        check_kind("context", context, ClientCallContext)
    extensions = options.get("extensions")
    if extensions is None:
        checked.pop("extensions", None)
    else:
        checked["extensions"] = check_extension_uris(extensions)
    if (headers := options.get("headers")) is not None:
        checked["headers"] = check_caller_headers(headers)
    return checked


class ClientOptions(TypedDict, total=False):
    """Options of `connect` that concern neither the agent's address nor its replies."""

    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None
    timeout: float
    resilience: Resilience | None
    limits: Limits | None
    engine: HttpEngine | aiohttp.ClientSession | None
    tls: TlsConfig | None
    shared: Endpoints | None
    env: Env | None
    protocol_version: ProtocolVersion | None
    allow_legacy: bool
    on_unknown: OnUnknown
    context_ids: ContextIds
    journal: str | os.PathLike[str] | Journal | None
    headers: Mapping[str, str] | None
    credential_origins: Iterable[str]
    allowed_networks: Iterable[str]
    reach: AgentReach
    observers: Sequence[Observer]
    telemetry: TelemetrySource | None
    call_layers: Sequence[Layer]
    attempt_layers: Sequence[Layer]


class CreateOptions(ClientOptions, total=False):
    """Options of `connect` that are not arguments of `ClientFactory.create` itself."""

    card_verifier: CardVerifier | CardVerifierCallable | None
    require_signature: bool
    card_ttl: float
    url: str | None
    tenant: str | None
    bindings: Sequence[str]
    supported_protocol_bindings: Sequence[str]
    transport_producers: Mapping[str, TransportProducer] | None
    grpc_channel_factory: Callable[[str], aio.Channel] | None
    configuration: SendMessageConfiguration | None
    streaming: bool
    shared_store: bool | None
    extensions: Iterable[str]


class ConnectOptions(CreateOptions, total=False):
    """Options of `connect`, as a type for functions that pass them on.

    The documentation of `connect` has the meaning, the unit and the default of each.
    """

    interceptors: Sequence[Interceptor]
    consumers: Sequence[Consumer]
