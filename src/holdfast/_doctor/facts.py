"""What was observed of an agent, for `holdfast._doctor.checks` to judge.

Nothing here is an opinion: what was not observed is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast._model.addresses import address_doubt
from holdfast._pipeline.cards.verification import CardVerification
from holdfast._wire.bindings import HTTP_BINDINGS, spoken_version
from holdfast._wire.http import media_type, presentable
from holdfast._wire.network_scope import NetworkScope, scope_of_host
from holdfast._wire.origins import origin
from holdfast._wire.tls import TlsFacts
from holdfast.errors import A2AError, InvalidAgentResponseError
from holdfast.types import AgentCard, AgentInterface

__all__ = [
    "Answered",
    "CardFacts",
    "InterfaceFacts",
    "ListingFacts",
    "Observed",
    "SendingFacts",
    "StreamFacts",
    "SubscriptionFacts",
]

_NAMES = {
    -32700: "ParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
}
"""What the codes of JSON-RPC itself are called, whatever they mean of an older agent."""

_ADVICE = ". If you trust it, pass"
"""Begins what a program can do about an address that must not be reached."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What came back to one request.

    Attributes:
        status: The HTTP status; None if there was no reply.
        media_type: What the body is said to be; empty if nothing is said.
        error: Name of the protocol's error, as ``TaskNotFoundError``; None if it is none.
        code: Code of that error.
        is_result: Whether it is what the operation answers.
        failure: What kept a reply from coming, or from being understood; empty for nothing.
        is_executed: Whether the agent executed the request; None if that is not known.
        challenge: The value of ``WWW-Authenticate``; empty for none.
        retry_after: Seconds that the agent wants callers to wait.
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
    def of(cls, error: A2AError) -> Answered:
        """What an error says of the reply."""
        is_protocols = error.code is not None
        status = error.http_status or 0
        unread = status < 400 or isinstance(error, InvalidAgentResponseError)
        return cls(
            status=error.http_status,
            media_type=media_type(error.headers),
            error=_NAMES.get(error.code or 0, type(error).__name__) if is_protocols else None,
            code=error.code,
            failure=error.message.partition(_ADVICE)[0] if unread and not is_protocols else "",
            is_executed=error.executed,
            challenge=error.headers.get("www-authenticate", ""),
            retry_after=error.retry_after,
        )

    @classmethod
    def result(cls, headers: Mapping[str, str], status: int = 200) -> Answered:
        """What a reply is that answers the question."""
        return cls(status=status, media_type=media_type(headers), is_result=True)

    @property
    def is_of_agent(self) -> bool:
        """Whether it is in the protocol's own terms."""
        return self.is_result or self.code is not None

    @property
    def is_refusal(self) -> bool:
        """Whether it is for want of credentials, or of a permission."""
        return self.status in {401, 403}

    @property
    def in_words(self) -> str:
        """What it is, in a few words."""
        if self.status is None:
            return self.failure or "no reply"
        if self.code is not None:
            return f"{self.error} ({self.code}), HTTP {self.status}"
        if self.failure.startswith("HTTP "):
            return self.failure
        kind = f" {self.media_type}" if self.media_type else ""
        if self.is_result:
            return f"HTTP {self.status}{kind}, a result"
        why = f": {self.failure}" if self.failure else ""
        return f"HTTP {self.status}{kind or ' without a content type'}{why}"


class CardFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's card, and how its server gave it.

    Attributes:
        card: The card.
        document: The JSON that it was read from.
        url: Where it was asked for, as it may be shown; a path for a file.
        moved_to: Where it was in the end.
        is_fetched: Whether it came from a server.
        is_at_older_path: Whether it is at the well-known path of agents before protocol 0.3 only.
        headers: Of the reply.
        is_confirmed: Whether its server answers 304 to who has it already; None if not asked.
        is_guarded: Whether its server wanted credentials.
        verification: What its signatures are worth; None if there was nobody to verify them.
    """

    card: AgentCard
    document: Mapping[str, Any]
    url: str
    moved_to: str
    is_fetched: bool = True
    is_at_older_path: bool = False
    headers: Mapping[str, str] = {}
    is_confirmed: bool | None = None
    is_guarded: bool = False
    verification: CardVerification | None = None


class ListingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent lists tasks.

    Attributes:
        answered: What ListTasks answers.
        tasks: How many tasks a small page has.
        with_history: How many of them have messages in their history.
        of_no_context: How many tasks it lists for a context that there is not; None if not asked.
        of_the_future: How many it lists for a time to come; None if not asked.
    """

    answered: Answered
    tasks: int = 0
    with_history: int = 0
    of_no_context: int | None = None
    of_the_future: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is a list, and nothing in it."""
        return self.answered.is_result and not self.tasks


class InterfaceFacts(msgspec.Struct, kw_only=True):
    """An interface of the card, and what it answers.

    Attributes:
        interface: As the card has it.
        address: Its address, as it may be shown.
        number: Its place in the card, from 1.
        version: The protocol version that questions use there; as declared until that is known.
        is_known: Whether its binding and version are spoken here.
        is_examined: Whether it was called.
        is_own_origin: Whether it is where the card came from; None for a card from a file.
        is_trusted: Whether credentials may go there.
        doubt: Why its address cannot be meant; None if nothing says so.
        scope: Where its host lies, as far as that is plain.
        versions: By version: whether it is understood; None if the answer does not tell.
        task: What a task that there is not is answered by.
        unauthorized: The same without credentials; None if there are none to leave out.
        unmet: Why there are no credentials for it among those given; empty if there are.
        method: What an unknown method is answered by.
        params: What impossible parameters are answered by.
        broken: What a body is answered by that is no JSON.
        path: What an unknown path is answered by.
        subscription: What a subscription to a task that there is not is answered by.
        listing: How tasks are listed.
    """

    interface: AgentInterface
    address: str
    number: int
    version: str = ""
    is_known: bool = True
    is_examined: bool = False
    is_own_origin: bool | None = None
    is_trusted: bool = True
    doubt: str | None = None
    scope: NetworkScope = "public"
    versions: dict[str, bool | None] = {}
    task: Answered | None = None
    unauthorized: Answered | None = None
    unmet: str = ""
    method: Answered | None = None
    params: Answered | None = None
    broken: Answered | None = None
    path: Answered | None = None
    subscription: Answered | None = None
    listing: ListingFacts | None = None

    @classmethod
    def of(
        cls, interface: AgentInterface, number: int, source: str, trusted: frozenset[str]
    ) -> InterfaceFacts:
        """What there is to know of an interface before it is called.

        Args:
            interface: As the card has it.
            number: Its place there, from 1.
            source: Where the card came from; empty for a file.
            trusted: Origins that credentials may go to.
        """
        is_known = (
            interface.protocol_binding.upper() in HTTP_BINDINGS
            and spoken_version(interface.protocol_version) is not None
        )
        if not is_known:  # what its address is in the words of another protocol is not judged
            address = presentable(interface.url)
            declared = interface.protocol_version or ""
            return cls(
                interface=interface,
                address=address,
                number=number,
                version=declared,
                is_known=False,
            )
        is_trusted = origin(interface.url) in trusted
        return cls(
            interface=interface,
            address=presentable(interface.url),
            number=number,
            version=spoken_version(interface.protocol_version) or "",
            is_own_origin=is_trusted if source else None,
            is_trusted=is_trusted,
            doubt=address_doubt(interface.url, source if source and not is_trusted else None),
            scope=scope_of_host(interface.url),
        )

    @property
    def about(self) -> str:
        """What findings call it: binding, declared version, and address."""
        interface = self.interface
        words = (interface.protocol_binding, interface.protocol_version, self.address)
        return " ".join(word for word in words if word)

    @property
    def is_usable(self) -> bool:
        """Whether an agent answers there, who takes the credentials."""
        task = self.task
        return task is not None and task.is_of_agent and not (task.is_refusal or self.unmet)

    @property
    def is_reached(self) -> bool:
        """Whether somebody answers there."""
        return self.task is not None and self.task.status is not None


class StreamFacts(msgspec.Struct, kw_only=True):
    """A stream of events as it came.

    Attributes:
        opened: What its opening was answered by.
        arrivals: When each event was there, in seconds from the request on.
        stamped: The times that the agent itself gave for states, in seconds since the epoch.
        pieces: In how many pieces the bytes came.
        comments: How many comments there were.
        silence: The longest time without a byte, in seconds.
        end: How it ended: with the task or where it waits, with a message, too early, not while
            it was watched, or not although the task is over; None while it goes on.
        failure: What cut it; empty for nothing.
    """

    opened: Answered | None = None
    arrivals: list[float] = []
    stamped: list[float] = []
    pieces: int = 0
    comments: int = 0
    silence: float = 0.0
    end: Literal["settled", "message", "cut", "left", "open"] | None = None
    failure: str = ""


class SubscriptionFacts(msgspec.Struct, kw_only=True):
    """A subscription to the task while it ran, and to the same task when it was over.

    Attributes:
        opened: What the first one was answered by; None if there was none.
        begins_with_task: Whether its first event was the task.
        text: Whether what it told adds up to the task: as it should, with text twice, or with
            text lost; None if that cannot be said.
        of_over: What the one to the task that is over was answered by.
        events_of_over: How many events that one told.
    """

    opened: Answered | None = None
    begins_with_task: bool | None = None
    text: Literal["right", "repeated", "lost"] | None = None
    of_over: Answered | None = None
    events_of_over: int = 0


class SendingFacts(msgspec.Struct, kw_only=True):
    """What became of a message.

    Attributes:
        message_id: Its id.
        about: The interface that it goes to, as findings call it; empty if it goes nowhere.
        is_streamed: Whether it was sent to be answered by a stream.
        why_not: Why it was not sent; empty if it was.
        answered: What sending was answered by; None while nothing is.
        task_id: The task that it made; empty if there is none.
        state: The task's state as last seen.
        is_message: Whether a message came back in place of a task.
        stream: The stream.
        subscription: What subscriptions brought.
        has_list: Whether the interface that it went to has a list of tasks.
        is_older: Whether it went out in protocol 0.3, whose lists know no times.
        in_task: Whether the task's history has the message; None if it was not asked.
        in_list: Whether the list of tasks, by context, has the message; None if it was not asked.
        in_recent: Whether it has the task by the time from which on it changed; None if it was
            not asked.
        again: What the same message was answered by when it came once more; None if it did not.
        second_task_id: The task that this made, or named.
        is_second_message: Whether a message was the answer to that.
    """

    message_id: str = ""
    about: str = ""
    is_streamed: bool = False
    why_not: str = ""
    answered: Answered | None = None
    task_id: str = ""
    state: str = ""
    is_message: bool = False
    stream: StreamFacts | None = None
    subscription: SubscriptionFacts = msgspec.field(default_factory=SubscriptionFacts)
    has_list: bool = False
    is_older: bool = False
    in_task: bool | None = None
    in_list: bool | None = None
    in_recent: bool | None = None
    again: Answered | None = None
    second_task_id: str = ""
    is_second_message: bool = False


class Observed(msgspec.Struct, kw_only=True):
    """All that was observed so far.

    Attributes:
        agent: Where the agent was looked for, as it may be shown.
        scope: Where its host lies, as far as that is plain.
        scheme: Of its address; empty for a file.
        card_error: Why there is no card to go by.
        card: The card.
        tls: What the server's TLS is; None if it has none, or was not asked.
        why_no_tls: Why it was not asked; empty if it was.
        interfaces: Those of the card.
        has_credentials: Whether there are credentials to send.
        error: What a call fails with.
        skew: Seconds that the agent's clock is ahead; None if it does not tell.
        hints: Headers about limits to how often it may be called, by name.
        refusals: How often it answered that it is called too often.
        is_to_send: Whether the caller allows a message.
        is_to_repeat: Whether the caller allows it twice.
        sending: What became of it.
        stopped: Why the examination did not come to its end; empty if it did.
    """

    agent: str
    scope: NetworkScope = "public"
    scheme: str = ""
    card_error: A2AError | None = None
    card: CardFacts | None = None
    tls: TlsFacts | None = None
    why_no_tls: str = ""
    interfaces: list[InterfaceFacts] = []
    has_credentials: bool = False
    error: A2AError | None = None
    skew: float | None = None
    hints: dict[str, str] = {}
    refusals: int = 0
    is_to_send: bool = False
    is_to_repeat: bool = False
    sending: SendingFacts | None = None
    stopped: str = ""

    @property
    def why_unmeasured(self) -> str:
        """Why what is not known is not known."""
        return self.stopped or "it could not be asked"
