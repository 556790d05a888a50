"""Choosing the endpoint of a call: from a card to one of its interfaces.

Rules: credentials go to the origins that the caller named, and to no other. Where the card leaves
the version of the protocol open, the client finds it out before the first call goes there
(`holdfast._pipeline.versions`); a call falls back to an older version only if the agent reports
that it does not support the newer one (-32009), which is before anything is executed.
"""

from __future__ import annotations

import contextlib
import copy
from http import HTTPStatus
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast._model.addresses import address_doubt
from holdfast._model.grpc_addresses import without_grpc
from holdfast._model.operations import Operation
from holdfast._pipeline.call_errors import not_sent
from holdfast._pipeline.extensions import Extensions, check_tools_version
from holdfast._pipeline.failover import try_in_order
from holdfast._pipeline.interfaces import (
    CHECK_ADDRESS,
    Route,
    choose_interfaces,
    declared_versions,
    leaves_room_for,
)
from holdfast._pipeline.transport import BaseLayer, Call
from holdfast._pipeline.versions import (
    detect_version,
    is_of_another_version,
    shows_another_version,
)
from holdfast._policy.retry import is_permanent_connect_failure
from holdfast._wire.bindings import PROTOCOL_VERSIONS
from holdfast._wire.http import presentable
from holdfast._wire.network_scope import NetworkReach, innermost, scope_of_host
from holdfast._wire.origins import origin, origin_and_aliases
from holdfast._wire.redaction import hidden_in_path
from holdfast._wire.security import explain_refusal
from holdfast._wire.status import is_not_an_agent, is_unknown_operation
from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    AuthenticationError,
    CredentialOriginError,
    InvalidAgentCardError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.types import AgentInterface

if TYPE_CHECKING:
    from holdfast._model.operations import Capability
    from holdfast._pipeline.cards.resolver import AgentCardResolver
    from holdfast._pipeline.endpoints import Endpoint, KnownEndpoints
    from holdfast._pipeline.security_warnings import SecurityWarnings
    from holdfast._pipeline.transport import AnyCall, CallNext, Reply, Transport
    from holdfast.types import AgentCard

__all__ = ["CHOOSE_INTERFACE", "InterfaceLayer"]

CHOOSE_INTERFACE: Operation[None, AgentInterface] = Operation(
    name="choice of the interface",  # in logs and errors; not sent to any agent
    request=NoneType,
    response=AgentInterface,
    safety="read",
    verb="GET",
    path="",
)
"""The reply of `InterfaceLayer.interface`."""

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class InterfaceLayer(BaseLayer):
    """Chooses the interface of a call, and fetches the card if necessary.

    Args:
        inner: Makes calls at the chosen interface.
        older_files: The same, for endpoints where files have two encodings.
        resolver: Fetches and caches the card.
        route: The caller's options for the choice.
        endpoints: The addresses that the client knows.
        warnings: Logs warnings about the destinations of content and credentials.
    """

    def __init__(
        self,
        inner: Transport,
        older_files: Transport,
        resolver: AgentCardResolver,
        route: Route,
        *,
        endpoints: KnownEndpoints,
        warnings: SecurityWarnings,
    ) -> None:
        super().__init__(inner)
        self._older_files = older_files
        self._resolver = resolver
        self._route = route
        self._endpoints = endpoints
        self._warnings = warnings
        self._trusted: frozenset[str] | None = None  # until the first card is there
        self._choice: _Choice | None = None

    async def handle(self, call: Call[P, R], call_next: CallNext[P, R, T], /) -> Reply[T]:
        """Make the call at the chosen endpoint.

        Raises:
            CredentialOriginError: The call carries credentials that were not given for the
                interface's origin. Nothing was sent.
            ExtensionNotSupportedError: The card does not declare a requested extension.
            ExtensionSupportRequiredError: The card requires an extension that is not requested.
            InvalidAgentCardError: The interface has an address that cannot be right.
            PushNotificationNotSupportedError: The card declares no push notifications.
            UnsupportedOperationError: The card declares no such operation.
            VersionNotSupportedError: The client and the agent have no protocol version in common.
        """
        card = self._resolver.fresh_card(call) or await self._fetched(call)
        choice = self._choice_for(call, card)
        if choice.others:
            return await self._call_with_fallback(call, choice, call_next)
        if choice.older is not None:
            return await self._call_interface(call, choice, call_next)
        try:
            if choice.endpoint.has_two_file_forms:
                call_next = self._converting(call)
            return await call_next(self._routed(call, choice))
        except A2AError as error:
            self._explain(error, call, choice, choice)
            raise

    async def interface(self, call: AnyCall) -> AgentInterface:
        """Return the interface that a call would go to, without making it.

        Fetches the card, and sends a read if the card leaves the version open.

        Args:
            call: The credentials and headers that calls carry.

        Raises:
            A2AError: The reason why no interface can be called; see `handle`.
        """
        card = self._resolver.fresh_card(call) or await self._fetched(call)
        choice = self._choice_for(call, card)
        if choice.older is not None:
            choice = await self._in_a_spoken_version(call, choice)
        return choice.endpoint.interface

    def _choice_for(self, call: AnyCall, card: AgentCard) -> _Choice:
        """Return the choice that follows from a card, if it allows the call."""
        if secrets := self._resolver.secrets:  # the card may repeat them
            call.progress.secrets.note_values(secrets)
        choice = self._choice
        if choice is None or choice.card is not card:
            choice = self._choice = self._choose(card)
        capability = call.operation.capability
        if capability is not None and not getattr(card.capabilities, capability):
            raise _undeclared(call.operation.name, capability, card)
        if call.extensions or choice.extensions.required:
            choice.extensions.check(call, card)
        if choice.refusal is not None:
            _check_credentials(call, choice)
        return choice

    async def _fetched(self, call: AnyCall) -> AgentCard:
        try:
            card = await self._resolver.card(call)
        except A2AError as error:
            not_sent(error)
            raise
        call.progress.card = None  # the card has arrived
        return card

    async def _call_with_fallback(
        self,
        call: Call[P, R],
        choice: _Choice,
        call_next: CallNext[P, R, T],
    ) -> Reply[T]:
        """Make the call at the first of several interfaces that accepts it.

        An interface other than the first that turns out not to be an agent is not called again.
        """
        carries = bool(call.headers or call.query or call.auth is not None)
        others = [
            candidate
            for candidate in choice.others
            if not (carries and candidate.refusal is not None)
        ]
        candidates = {candidate.endpoint: candidate for candidate in (choice, *others)}
        progress = call.progress

        async def make(endpoint: Endpoint) -> Reply[T] | None:
            candidate, attempts_before = candidates[endpoint], len(progress.attempts)
            try:
                return await self._call_interface(call, candidate, call_next)
            except A2AError as error:
                is_answer = (
                    len(progress.attempts) > attempts_before and not progress.lacks_credentials
                )
                if candidate is choice or not (is_answer and _can_try_next(call, error)):
                    raise
                if is_not_an_agent(call.operation, error):
                    choice.others = [other for other in choice.others if other is not candidate]
                return None

        return await try_in_order(call, candidates, make)

    async def _call_interface(
        self,
        call: Call[P, R],
        choice: _Choice,
        call_next: CallNext[P, R, T],
    ) -> Reply[T]:
        """Make the call at one interface, in a version that is supported there."""
        chosen = choice
        if choice.older is not None:
            chosen = await self._in_a_spoken_version(call, choice)
        while True:
            make = self._converting(call) if chosen.endpoint.has_two_file_forms else call_next
            try:
                reply = await make(self._routed(call, chosen))
            except A2AError as error:
                may_go_on = chosen is choice and choice.older is not None
                if may_go_on and _is_free_to_fall_back(call, error):
                    choice.endpoint.speaks_version = False
                    chosen = self._older(call, choice)
                    continue
                self._explain(error, call, choice, chosen)
                raise
            if chosen is choice and choice.older is not None:
                choice.endpoint.speaks_version = True
            return reply

    async def _in_a_spoken_version(self, call: Call[P, R], choice: _Choice) -> _Choice:
        """Return a choice whose version is supported there, as far as that can be found out."""
        endpoint = choice.endpoint
        if choice.in_doubt and endpoint.speaks_version is None:
            await detect_version(
                self._inner,
                endpoint,
                self._routed(call, choice),
                lambda: self._routed(call, self._older(call, choice)),
            )
        if endpoint.speaks_version is False:
            return self._older(call, choice)
        return choice

    def _converting(self, call: Call[P, R]) -> CallNext[P, R, Any]:
        """Return the function that makes a call where files have two encodings."""
        files = self._older_files
        return files.stream if call.operation.streaming else files.unary

    def _explain(
        self,
        error: A2AError,
        call: AnyCall,
        choice: _Choice,
        chosen: _Choice,
    ) -> None:
        """Add to an error what the card declares about its cause."""
        if isinstance(error, AuthenticationError | PermissionDeniedError):
            if call.auth is None:
                explain_refusal(error, choice.card, call.headers)
        else:
            self._doubt_version(error, call, choice, chosen)
            if isinstance(error, A2AHTTPError) and error.http_status == HTTPStatus.NOT_FOUND:
                given = self._route.url is not None
                place = "url=" if given else "the interface's URL in the agent card"
                error.message = (
                    f"{error.message.rstrip('.')}; there may be no "
                    f"{chosen.endpoint.interface.protocol_binding}"
                    f"{CHECK_ADDRESS}{place}"
                )

    def _doubt_version(
        self, error: A2AError, call: AnyCall, choice: _Choice, chosen: _Choice
    ) -> None:
        """Add to an error that another version may be right, and forget the detected version.

        An error with another cause is left unchanged.
        """
        spoken, interface = chosen.endpoint.version, chosen.endpoint.interface
        is_forced = self._route.version is not None and not leaves_room_for(spoken, choice.card)
        is_doubted = is_forced and is_of_another_version(error)
        if is_doubted or isinstance(error, VersionNotSupportedError):
            declared = ", ".join(declared_versions(choice.card)) or "no version"
            asked = ", as requested" if is_forced else ""
            error.message = (
                f"{error.message.rstrip('.')}; protocol {spoken} was used{asked}, and the "
                f"card declares {declared}"
            )
        elif not shows_another_version(error, call, interface.protocol_binding):
            return
        choice.endpoint.speaks_version = None
        error.other_version = next(v for v in PROTOCOL_VERSIONS if v != spoken)

    def _routed(self, call: Call[P, R], choice: _Choice) -> Call[P, R]:
        """Return the call with the endpoint of an interface."""
        if call.extensions:
            check_tools_version(call, choice.endpoint.version)
        if choice.refusal is not None:  # only the card has named the origin
            there, named = choice.refusal.origin, self._trusted or ()
            self._warnings.check_content(call.operation, there, named)
        if call.auth is None and (call.headers or call.query):
            self._warnings.check_credentials(call, choice.endpoint)
        return msgspec.structs.replace(
            call,
            endpoint=choice.endpoint,
            reach=choice.reach,
            card=choice.card,
            is_trusted=choice.refusal is None,
        )

    def _older(self, call: Call[P, R], choice: _Choice) -> _Choice:
        """Return the choice to fall back to."""
        older = choice.older
        if isinstance(older, AgentInterface):
            trusted = self._trusted or frozenset()
            older = choice.older = self._choose_interface(older, choice.card, trusted)
        if older is None:
            return choice
        _check_credentials(call, older)
        return older

    def _choose(self, card: AgentCard) -> _Choice:
        trusted = self._trusted
        if trusted is None:
            # The first card that the caller passed defines trusted origins; later ones do not.
            trusted = self._trusted = _trusted(self._route, card)
        interfaces = choose_interfaces(card, self._route)
        choice = self._choose_interface(interfaces.first, card, trusted)
        choice.older, choice.in_doubt = interfaces.older, interfaces.in_doubt
        for other in interfaces.others:
            with contextlib.suppress(InvalidAgentCardError):  # only the first one must be valid
                choice.others.append(self._choose_interface(other, card, trusted))
        return choice

    def _choose_interface(
        self, interface: AgentInterface, card: AgentCard, trusted: frozenset[str]
    ) -> _Choice:
        _check_address(interface, card, self._route, source=self._source_of(interface, trusted))
        refusal = _check_origin(interface, trusted)
        reach = self._route.within
        if reach is None and refusal is not None:
            reach = self._reach(trusted)
        endpoint = self._endpoints.of(interface)
        if self._resolver.secrets:  # the card may repeat them
            endpoint.agent = hidden_in_path(endpoint.agent, self._resolver.secrets)
        return _Choice(card, endpoint, refusal, reach)

    def _source_of(self, interface: AgentInterface, trusted: frozenset[str]) -> str | None:
        """Return the origin of an interface's address; None if the caller trusts it."""
        if origin(interface.url) in trusted:
            return None
        address = without_grpc(interface.url)
        is_allowed = self._route.networks and self._route.allows_loopback(address)
        return None if is_allowed else self._route.source

    def _reach(self, trusted: frozenset[str]) -> NetworkReach:
        """Return how private an address may be that the card names and the caller did not."""
        inward = innermost([self._resolver.scope, *map(scope_of_host, trusted)])
        return NetworkReach(inward=inward, allowed=self._route.networks)


class _Choice:
    """The choice that follows from a card, computed once for each card.

    Attributes:
        card: The card.
        endpoint: The endpoint of calls.
        refusal: Why credentials are not sent there; None if they are.
        reach: The most private network in which the endpoint may be.
        older: The fallback if the version is not supported there; an interface until it is used.
        in_doubt: Whether the card leaves open which version is supported there.
        others: Other interfaces where calls may go.
        extensions: The extensions that the card declares and requires.
    """

    __slots__ = (
        "card",
        "endpoint",
        "extensions",
        "in_doubt",
        "older",
        "others",
        "reach",
        "refusal",
    )

    def __init__(
        self,
        card: AgentCard,
        endpoint: Endpoint,
        refusal: CredentialOriginError | None,
        reach: NetworkReach | None,
    ) -> None:
        self.card = card
        self.endpoint = endpoint
        self.refusal = refusal
        self.reach = reach
        self.older: _Choice | AgentInterface | None = None
        self.in_doubt = False
        self.others: list[_Choice] = []
        self.extensions = Extensions.of(card)


def _check_credentials(call: Call[P, R], choice: _Choice) -> None:
    """Raise an error if a call carries credentials that were not given for its destination."""
    if choice.refusal is not None and (call.headers or call.query or call.auth is not None):
        raise copy.copy(choice.refusal)


def _can_try_next(call: AnyCall, error: A2AError) -> bool:
    """Return whether an error shows that the address is not an agent's, and nothing ran."""
    if error.transient or is_permanent_connect_failure(error):
        return False
    is_read = call.operation.safety != "conditional"
    return error.executed is False or (is_read and is_unknown_operation(error))


def _is_free_to_fall_back(call: Call[P, R], error: A2AError) -> bool:
    """Return whether an error says that the version is not supported, and nothing was executed."""
    return isinstance(error, VersionNotSupportedError) and (
        error.executed is False or call.operation.safety != "conditional"
    )


def _trusted(route: Route, first: AgentCard) -> frozenset[str]:
    """Return the origins that may get the caller's headers and credentials."""
    if not route.trust_first:
        return route.trusted
    return route.trusted | origin_and_aliases(first.supported_interfaces[0].url)


def _check_address(
    interface: AgentInterface, card: AgentCard, route: Route, *, source: str | None
) -> None:
    """Check an address that the caller did not name."""
    address = without_grpc(interface.url)
    doubt = None if route.url is not None else address_doubt(address, source)
    if doubt is None:
        return
    hint = "pass the correct address as url="
    if route.source is not None:
        guess = f"{origin(route.source)}{urlsplit(address).path}"
        hint = f'if the agent is where its card is, pass url="{guess}"'
    urls = [offered.url.partition("#")[0] for offered in card.supported_interfaces]
    field = f"supportedInterfaces[{urls.index(interface.url)}].url"
    raise InvalidAgentCardError(
        f"the card names {presentable(interface.url)} as the agent's address ({field}), but "
        f"{doubt}; nothing was sent there. {hint[0].upper()}{hint[1:]}",
        field=field,
        executed=False,
    )


_UNDECLARED = {
    "streaming": (UnsupportedOperationError, "streaming"),
    "push_notifications": (PushNotificationNotSupportedError, "push notifications"),
    "extended_agent_card": (UnsupportedOperationError, "an extended card"),
}


def _undeclared(operation: str, capability: Capability, card: AgentCard) -> A2AError:
    kind, feature = _UNDECLARED[capability]
    return kind(
        f"{operation} was not called: agent {card.name!r} does not declare {feature} in its "
        "card (capabilities)",
        executed=False,
    )


def _check_origin(
    interface: AgentInterface, trusted: frozenset[str]
) -> CredentialOriginError | None:
    """Return the error of a call with credentials that were not given for this interface."""
    its_origin = origin(interface.url)
    if its_origin in trusted:
        return None
    return CredentialOriginError(
        f"the agent's interface is at {its_origin}, but the credentials and headers were "
        f"given for {', '.join(sorted(trusted))}; nothing was sent. If you trust it, pass "
        f'credential_origins=("{its_origin}",)',
        origin=its_origin,
        executed=False,
    )
