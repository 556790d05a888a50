"""Observations of an agent, which `holdfast._doctor.checks` evaluates.

These are facts only; None means not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from holdfast._model.addresses import address_doubt
from holdfast._model.error_values import presentable
from holdfast._pipeline.cards.verification import CardVerification
from holdfast._wire.http import media_type
from holdfast._wire.network_scope import NetworkScope, scope_of_host
from holdfast.errors import A2AError, InvalidAgentResponseError
from holdfast.protocol import HTTP_BINDINGS, spoken_version
from holdfast.types import AgentCard, AgentInterface

__all__ = [
    "CardFacts",
    "InterfaceFacts",
    "ListingFacts",
    "Observations",
    "ReplyFacts",
    "SendingFacts",
    "StreamFacts",
    "SubscriptionFacts",
    "TlsFacts",
]

_NAMES = {
    -32700: "ParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
}
"""Names of the codes that JSON-RPC itself defines."""

_ADVICE = ". If you trust it, pass"
"""The start of the advice that a `NetworkPolicyError` gives to programs; findings leave it out."""


class ReplyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to one request.

    Attributes:
        status: The HTTP status; None if there was no reply.
        media_type: The media type of the body; empty if it is not declared.
        error: Name of the protocol error, as ``TaskNotFoundError``; None if it is not one.
        code: The error's JSON-RPC code.
        is_result: Whether it is the operation's result.
        failure: Why there is no reply, or why it cannot be read; empty otherwise.
        is_executed: Whether the agent executed the request; None if unknown.
        challenge: The value of ``WWW-Authenticate``; empty for none.
        retry_after: Seconds that the agent asks callers to wait; None for none.
    """

    status: int | None = None
    media_type: str = ""
    error: str | None = None
    code: int | None = None
    is_result: bool = False
    failure: str = ""
    is_executed: bool | None = None
    challenge: str = ""
    retry_after: float | None = None

    @classmethod
    def of_error(cls, error: A2AError) -> ReplyFacts:
        """Return the facts of a failed call."""
        is_protocol_error = error.code is not None
        status = error.http_status or 0
        is_unreadable = status < 400 or isinstance(error, InvalidAgentResponseError)
        failure = ""
        if is_unreadable and not is_protocol_error:
            failure = error.message.partition(_ADVICE)[0]
        name = type(error).__name__
        return cls(
            status=error.http_status,
            media_type=media_type(error.headers),
            error=_NAMES.get(error.code or 0, name) if is_protocol_error else None,
            code=error.code,
            failure=failure,
            is_executed=error.executed,
            challenge=error.headers.get("www-authenticate", ""),
            retry_after=error.retry_after,
        )

    @classmethod
    def of_result(cls, headers: Mapping[str, str], status: int = 200) -> ReplyFacts:
        """Return the facts of a result."""
        return cls(status=status, media_type=media_type(headers), is_result=True)

    @property
    def is_protocol_reply(self) -> bool:
        """Whether it is a result or an error of the protocol."""
        return self.is_result or self.code is not None

    @property
    def is_auth_refusal(self) -> bool:
        """Whether credentials or a permission are missing."""
        return self.status in {401, 403}

    @property
    def summary(self) -> str:
        """The reply in a few words."""
        if self.status is None:
            return self.failure or "no reply"
        if self.code is not None:
            return f"{self.error} ({self.code}), HTTP {self.status}"
        if self.failure.startswith("HTTP "):
            return self.failure
        kind = f" {self.media_type}" if self.media_type else ""
        if self.is_result:
            return f"HTTP {self.status}{kind}, a result"
        reason = f": {self.failure}" if self.failure else ""
        return f"HTTP {self.status}{kind or ' without a content type'}{reason}"


class CardFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's card, and how its server serves it.

    Attributes:
        card: The card.
        document: The JSON object that it was read from.
        url: The address that was asked for, as it may be shown; a path for a file.
        moved_to: The address after redirects.
        is_fetched: Whether it came from a server.
        is_at_legacy_path: Whether it is only at the well-known path of agents before 0.3.
        headers: The headers of the reply; names in lower case.
        is_revalidated: Whether its server answers 304 to a conditional request; None if unknown.
        requires_credentials: Whether its server requires credentials.
        verification: The result of verifying its signatures; None without a verifier.
    """

    card: AgentCard
    document: Mapping[str, Any]
    url: str
    moved_to: str
    is_fetched: bool = True
    is_at_legacy_path: bool = False
    headers: Mapping[str, str] = {}
    is_revalidated: bool | None = None
    requires_credentials: bool = False
    verification: CardVerification | None = None


class ListingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The replies to ListTasks.

    Attributes:
        reply: The reply for a small page.
        tasks: Number of tasks on that page.
        with_history: Number of them with messages in their history.
        in_unknown_context: Number of tasks listed for an unknown context; None if not asked.
        after_future: Number of tasks listed for a time in the future; None if not asked.
    """

    reply: ReplyFacts
    tasks: int = 0
    with_history: int = 0
    in_unknown_context: int | None = None
    after_future: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is a list without tasks."""
        return self.reply.is_result and not self.tasks


class InterfaceFacts(msgspec.Struct, kw_only=True):
    """An interface of the card, and its replies to probes.

    Attributes:
        interface: The interface in the card.
        address: Its address, as it may be shown.
        number: Its position in the card, from 1.
        version: The protocol version that probes use; the declared one until that is known.
        is_supported: Whether its binding and version can be examined.
        is_examined: Whether it was called.
        is_card_origin: Whether it has the origin of the card; None for a card from a file.
        is_trusted: Whether credentials may go there.
        address_fault: Why its address must be wrong; None if it need not be.
        scope: The network of its host, as far as the address tells.
        versions: By version: whether the agent speaks it; None if the reply does not tell.
        task: The reply to GetTask for an unknown task.
        unauthorized: The same without credentials; None if there are none to leave out.
        credentials_error: Why the given credentials do not suit it; empty if they do.
        method: The reply to an unknown method.
        params: The reply to invalid parameters.
        broken: The reply to a body that is not JSON.
        path: The reply to an unknown path.
        subscription: The reply to a subscription to an unknown task.
        listing: The replies to ListTasks.
    """

    interface: AgentInterface
    address: str
    number: int
    version: str = ""
    is_supported: bool = True
    is_examined: bool = False
    is_card_origin: bool | None = None
    is_trusted: bool = True
    address_fault: str | None = None
    scope: NetworkScope = "public"
    versions: dict[str, bool | None] = {}
    task: ReplyFacts | None = None
    unauthorized: ReplyFacts | None = None
    credentials_error: str = ""
    method: ReplyFacts | None = None
    params: ReplyFacts | None = None
    broken: ReplyFacts | None = None
    path: ReplyFacts | None = None
    subscription: ReplyFacts | None = None
    listing: ListingFacts | None = None

    @classmethod
    def of_interface(
        cls, interface: AgentInterface, number: int, source: str, is_trusted: Callable[[str], bool]
    ) -> InterfaceFacts:
        """Return the facts of an interface before it is called.

        Args:
            interface: The interface in the card.
            number: Its position in the card, from 1.
            source: The address that the card came from; empty for a file.
            is_trusted: Returns whether credentials may go to an address.
        """
        is_supported = (
            interface.protocol_binding.upper() in HTTP_BINDINGS
            and spoken_version(interface.protocol_version) is not None
        )
        if not is_supported:  # the address of another protocol is not checked
            return cls(
                interface=interface,
                address=presentable(interface.url),
                number=number,
                version=interface.protocol_version or "",
                is_supported=False,
            )
        may_have_credentials = is_trusted(interface.url)
        return cls(
            interface=interface,
            address=presentable(interface.url),
            number=number,
            version=spoken_version(interface.protocol_version) or "",
            is_card_origin=may_have_credentials if source else None,
            is_trusted=may_have_credentials,
            address_fault=address_doubt(
                interface.url, source if source and not may_have_credentials else None
            ),
            scope=scope_of_host(interface.url),
        )

    @property
    def about(self) -> str:
        """Its name in findings: binding, declared version, and address."""
        interface = self.interface
        words = (interface.protocol_binding, interface.protocol_version, self.address)
        return " ".join(word for word in words if word)

    @property
    def is_usable(self) -> bool:
        """Whether an agent answers there, and accepts the credentials."""
        if self.task is None or self.credentials_error:
            return False
        return self.task.is_protocol_reply and not self.task.is_auth_refusal

    @property
    def is_reached(self) -> bool:
        """Whether a server answers there."""
        return self.task is not None and self.task.status is not None


class TlsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a TLS connection.

    Attributes:
        host: Name of the host.
        version: Protocol version, such as ``TLSv1.3``; empty without a connection.
        fault: Why the certificate is not trusted, in the TLS library's words; empty if it is.
        not_after: End of the certificate's validity, in seconds since the epoch; None if unknown,
            as for an untrusted certificate.
        failure: Why no connection was established; empty if it was.
    """

    host: str
    version: str = ""
    fault: str = ""
    not_after: float | None = None
    failure: str = ""


class StreamFacts(msgspec.Struct, kw_only=True):
    """A stream of events as received.

    Attributes:
        opened: The reply to its request.
        arrivals: The time of each event, in seconds since the request.
        timestamps: The agent's own times of states, in seconds since the epoch.
        pieces: Number of pieces in which the bytes arrived.
        comments: Number of comments.
        silence: The longest time without a byte, in seconds.
        end: Its end: "settled" with the task or where the task waits, "message" with a message,
            "cut" too early, "left" not while it was observed, "open" not although the task has
            ended; None while it runs.
        failure: Why it was cut; empty otherwise.
    """

    opened: ReplyFacts | None = None
    arrivals: list[float] = []
    timestamps: list[float] = []
    pieces: int = 0
    comments: int = 0
    silence: float = 0.0
    end: Literal["settled", "message", "cut", "left", "open"] | None = None
    failure: str = ""


class SubscriptionFacts(msgspec.Struct, kw_only=True):
    """A subscription to the task while it ran, and one after its end.

    Attributes:
        opened: The reply to the first one; None if there was none.
        begins_with_task: Whether its first event was the task.
        text: Whether its events add up to the task's text: "right", "repeated" with text twice, or
            "lost" with text missing; None if unknown.
        after_end: The reply to the one after the end.
        events_after_end: Number of events of that one.
    """

    opened: ReplyFacts | None = None
    begins_with_task: bool | None = None
    text: Literal["right", "repeated", "lost"] | None = None
    after_end: ReplyFacts | None = None
    events_after_end: int = 0


class SendingFacts(msgspec.Struct, kw_only=True):
    """The outcome of a message.

    Attributes:
        message_id: The message's id.
        about: The name of the interface that it was sent to; empty if it was not sent.
        is_streamed: Whether a stream was requested.
        not_sent_reason: Why it was not sent; empty if it was.
        reply: The reply to sending it; None while there is none.
        task_id: The task that it created; empty if there is none.
        state: The task's state as last seen.
        is_message: Whether a message came back instead of a task.
        stream: The stream.
        subscription: The subscriptions.
        has_list: Whether the interface has a list of tasks.
        is_v03: Whether it was sent in protocol 0.3, whose lists have no filter by time.
        in_task: Whether the task's history contains the message; None if not asked.
        in_list: Whether the list of the task's context contains the message; None if not asked.
        in_recent: Whether the list since the time of sending contains the task; None if not asked.
        second_reply: The reply to sending the message once more; None if that was not done.
        second_task_id: The task of the second reply.
        is_second_message: Whether the second reply is a message.
    """

    message_id: str = ""
    about: str = ""
    is_streamed: bool = False
    not_sent_reason: str = ""
    reply: ReplyFacts | None = None
    task_id: str = ""
    state: str = ""
    is_message: bool = False
    stream: StreamFacts | None = None
    subscription: SubscriptionFacts = msgspec.field(default_factory=SubscriptionFacts)
    has_list: bool = False
    is_v03: bool = False
    in_task: bool | None = None
    in_list: bool | None = None
    in_recent: bool | None = None
    second_reply: ReplyFacts | None = None
    second_task_id: str = ""
    is_second_message: bool = False


class Observations(msgspec.Struct, kw_only=True):
    """All observations so far.

    Attributes:
        agent: The address of the agent, as it may be shown.
        scope: The network of its host, as far as the address tells.
        scheme: The scheme of its address; empty for a file.
        card_error: Why there is no usable card.
        card: The card.
        tls: The server's TLS; None if it has none, or was not inspected.
        no_tls_reason: Why TLS was not inspected; empty if it was.
        interfaces: The interfaces of the card.
        has_credentials: Whether there are credentials to send.
        error: The error that every call fails with.
        skew: Seconds that the agent's clock is ahead; None if unknown.
        hints: Headers about rate limits, by name.
        refusals: Number of 429 replies.
        may_send: Whether the caller allows a message.
        may_repeat: Whether the caller allows it twice.
        sending: The outcome of the message.
        stopped: Why the examination did not finish; empty if it did.
    """

    agent: str
    scope: NetworkScope = "public"
    scheme: str = ""
    card_error: A2AError | None = None
    card: CardFacts | None = None
    tls: TlsFacts | None = None
    no_tls_reason: str = ""
    interfaces: list[InterfaceFacts] = []
    has_credentials: bool = False
    error: A2AError | None = None
    skew: float | None = None
    hints: dict[str, str] = {}
    refusals: int = 0
    may_send: bool = False
    may_repeat: bool = False
    sending: SendingFacts | None = None
    stopped: str = ""

    @property
    def unmeasured_reason(self) -> str:
        """Why a fact is missing."""
        return self.stopped or "it could not be asked"
