"""Choosing where a call goes: from a card to one of its interfaces.

Rules: credentials go to the origins that the caller named, and to no other. Where the card leaves
open which version of the protocol is spoken, a harmless request finds out before the first call
goes there; a call goes on in an older one only if the agent says of a newer one that it does not
speak it (-32009), which is before anything is executed.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    AuthenticationError,
    CredentialOriginError,
    InternalError,
    InvalidAgentCardError,
    InvalidParamsError,
    InvalidRequestError,
    MethodNotFoundError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.model.addresses import doubt
from holdfast.model.card import AgentInterface
from holdfast.model.operations import GET_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast.model.requests import GetTaskRequest
from holdfast.runtime.extensions import Extensions
from holdfast.runtime.interfaces import Route, choose_interfaces
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.transport import Call, CallProgress, PassThrough
from holdfast.wire.bindings import OLDER_VERSION, PROTOCOL_VERSION, VERSION_ADVICE
from holdfast.wire.http import presentable
from holdfast.wire.origins import origin, origin_and_aliases
from holdfast.wire.reach import Reach, furthest_in, scope_of_host
from holdfast.wire.redaction import hidden_in_path
from holdfast.wire.security import explain

if TYPE_CHECKING:
    from holdfast.model.card import AgentCard
    from holdfast.model.operations import Capability
    from holdfast.runtime.credentials import AuthSlot
    from holdfast.runtime.endpoints import Endpoint, Endpoints
    from holdfast.runtime.resolver import AgentCardResolver
    from holdfast.runtime.transport import AuthProvider, Onward, Reply, Transport

__all__ = ["InterfaceLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class InterfaceLayer(PassThrough):
    """Chooses the interface that a call goes to, fetching the card if need be."""

    def __init__(
        self,
        inner: Transport,
        resolver: AgentCardResolver,
        route: Route,
        endpoints: Endpoints,
        auth: AuthSlot,
    ) -> None:
        super().__init__(inner)
        self._resolver = resolver
        self._route = route
        self._auth = auth
        self._endpoints = endpoints
        self._trusted: frozenset[str] | None = None  # until the first card is there
        self._choice: _Choice | None = None
        self._finding_out = PerLoop(asyncio.Lock)

    async def through(self, call: Call[P, R], onward: Onward[P, R, T], /) -> Reply[T]:
        """Makes the call at the chosen endpoint.

        Raises:
            CredentialOriginError: The call carries credentials that were not given for the
                interface's origin. Nothing was sent.
            ExtensionNotSupportedError: The card does not declare an extension that is asked for.
            ExtensionSupportRequiredError: It requires one that is not asked for.
            InvalidAgentCardError: The interface has an address that cannot be meant.
            PushNotificationNotSupportedError: The card declares no push notifications.
            UnsupportedOperationError: The card declares no such operation.
            VersionNotSupportedError: No version of the protocol is spoken on both sides.
        """
        try:
            card = self._resolver.fresh or await self._resolver.card(call)
        except A2AError as error:
            error.executed = False  # of this call, whatever became of the card's
            raise
        call.progress.card = None  # it has come
        provider = self._auth.provider
        if self._resolver.secrets:  # which the card may repeat
            call.progress.secrets.note_values(self._resolver.secrets)
        choice = self._checked(call, card, provider)
        if choice.older is not None:
            choice = await self._in_a_spoken_version(call, choice, provider)
        try:
            return await onward(_routed(call, choice, provider))
        except (AuthenticationError, PermissionDeniedError) as error:
            if provider is None:
                explain(error, card, call.headers)
            raise
        except (VersionNotSupportedError, MethodNotFoundError, A2AHTTPError) as error:
            if choice.older is None or not _is_free_to_fall_back(call, error):
                _explain_version(error, call, choice)
                raise
        choice.endpoint.is_refused = True
        return await onward(_routed(call, self._older(call, choice, provider), provider))

    async def _in_a_spoken_version(
        self, call: Call[P, R], choice: _Choice, provider: AuthProvider | None
    ) -> _Choice:
        """A choice whose version is spoken there, as far as that can be found out."""
        endpoint = choice.endpoint
        if choice.in_doubt and not (endpoint.is_known or endpoint.is_refused):
            asked = choice.asked
            async with self._finding_out.here():
                if choice.asked == asked:  # else somebody has meanwhile
                    await self._find_out(call, choice, provider)
                    choice.asked += 1
        return self._older(call, choice, provider) if endpoint.is_refused else choice

    async def _find_out(
        self, call: Call[P, R], choice: _Choice, provider: AuthProvider | None
    ) -> None:
        """Asks for a task that is none; what cannot be found out so is left to the call."""
        speaks = await self._speaks(call, choice, provider)
        if speaks is None:
            return
        older = self._older(call, choice, provider)
        if not speaks and await self._speaks(call, older, provider):
            choice.endpoint.is_refused = True
        else:
            choice.endpoint.is_known = True

    async def _speaks(
        self, call: Call[P, R], choice: _Choice, provider: AuthProvider | None
    ) -> bool | None:
        """Whether an agent understands a request as it is chosen; None if it cannot say now."""
        name = f"{call.request_id}-version"
        progress = CallProgress(began=call.progress.began, secrets=call.progress.secrets)
        question = Call(
            operation=GET_TASK,
            params=GetTaskRequest(id=name),
            request_id=name,
            deadline=call.deadline,
            headers=call.headers,
            query=call.query,
            extensions=call.extensions,
            context=call.context,
            is_retried=False,
            progress=progress,
        )
        try:
            await self._inner.unary(_routed(question, choice, provider))
        except (TaskNotFoundError, InvalidParamsError):
            return True
        except A2AError as error:
            if _is_of_another_version(error):
                return False
            return None if error.transient else True  # it was read, whatever is the matter
        return True

    def _older(self, call: Call[P, R], choice: _Choice, provider: AuthProvider | None) -> _Choice:
        """What to fall back to."""
        older = choice.older
        if isinstance(older, AgentInterface):
            trusted = self._trusted or frozenset()
            older = choice.older = self._choose_interface(older, choice.card, trusted)
        if older is None:
            return choice
        _check_credentials(call, older, provider)
        return older

    def _checked(
        self, call: Call[P, R], card: AgentCard, provider: AuthProvider | None
    ) -> _Choice:
        """What follows from the card, if it allows the call."""
        choice = self._choice
        if choice is None or choice.card is not card:
            choice = self._choice = self._choose(card)
        capability = call.operation.capability
        if capability is not None and not getattr(card.capabilities, capability):
            raise _undeclared(call.operation.name, capability, card)
        if call.extensions or choice.extensions.required:
            choice.extensions.check(call, card)
        if choice.refusal is not None:
            _check_credentials(call, choice, provider)
        return choice

    def _choose(self, card: AgentCard) -> _Choice:
        trusted = self._trusted
        if trusted is None:
            # The caller's own card says whom to trust; one that replaces it later does not.
            trusted = self._trusted = _trusted(self._route, card)
        interface, older = choose_interfaces(card, self._route)
        choice = self._choose_interface(interface, card, trusted)
        choice.older = older
        choice.in_doubt = not interface.protocol_version or self._route.allow_legacy
        return choice

    def _choose_interface(
        self, interface: AgentInterface, card: AgentCard, trusted: frozenset[str]
    ) -> _Choice:
        _check_address(interface, card, self._route, source=self._source_of(interface, trusted))
        refusal = _check_origin(interface, trusted)
        reach = None if refusal is None else self._reach(trusted)
        endpoint = self._endpoints.of(interface)
        if self._resolver.secrets:  # which the card may repeat
            endpoint.agent = hidden_in_path(endpoint.agent, self._resolver.secrets)
        return _Choice(card, endpoint, refusal, reach)

    def _source_of(self, interface: AgentInterface, trusted: frozenset[str]) -> str | None:
        """Where an interface's address is from; None if the caller stands for it in some way."""
        if origin(interface.url) in trusted:
            return None
        is_allowed = self._route.networks and self._route.allows_host(interface.url)
        return None if is_allowed else self._route.source

    def _reach(self, trusted: frozenset[str]) -> Reach:
        """How far an address of the card may lead that the caller did not name."""
        inward = furthest_in([self._resolver.scope, *map(scope_of_host, trusted)])
        return Reach(inward=inward, allowed=self._route.networks)


class _Choice:
    """What follows from a card, so that it is worked out once for each card.

    Attributes:
        card: The card.
        endpoint: Where calls go.
        refusal: Why credentials do not; None if they do.
        reach: How far inside that may lie.
        older: What to fall back to if the version is not spoken there; an interface until then.
        in_doubt: Whether the card leaves open which version is spoken there.
        asked: How often it was tried to find that out.
        extensions: What the card declares and requires.
    """

    __slots__ = (
        "asked",
        "card",
        "endpoint",
        "extensions",
        "in_doubt",
        "older",
        "reach",
        "refusal",
    )

    def __init__(
        self,
        card: AgentCard,
        endpoint: Endpoint,
        refusal: CredentialOriginError | None,
        reach: Reach | None,
    ) -> None:
        self.card = card
        self.endpoint = endpoint
        self.refusal = refusal
        self.reach = reach
        self.older: _Choice | AgentInterface | None = None
        self.in_doubt = False
        self.asked = 0
        self.extensions = Extensions.of(card)


def _routed(call: Call[P, R], choice: _Choice, provider: AuthProvider | None) -> Call[P, R]:
    return msgspec.structs.replace(
        call, endpoint=choice.endpoint, reach=choice.reach, card=choice.card, auth=provider
    )


def _check_credentials(call: Call[P, R], choice: _Choice, provider: AuthProvider | None) -> None:
    """Raises if a call carries what was not given for where it goes."""
    if choice.refusal is not None and (call.headers or call.query or provider is not None):
        raise copy.copy(choice.refusal)


def _is_free_to_fall_back(call: Call[P, R], error: A2AError) -> bool:
    """Whether an error says that the version is not spoken, and that nothing was executed."""
    return isinstance(error, VersionNotSupportedError) and (
        error.executed is False or call.operation.safety != "conditional"
    )


def _is_of_another_version(error: A2AError) -> bool:
    """Whether an agent answers so that speaks another version."""
    if isinstance(error, _OF_ANOTHER_VERSION):
        return True
    return isinstance(error, A2AHTTPError) and error.http_status in {400, 404, 405, 501}


_OF_ANOTHER_VERSION = (
    InternalError,
    InvalidRequestError,
    MethodNotFoundError,
    VersionNotSupportedError,
)
_EVERYWHERE = frozenset({SEND_MESSAGE.name, SEND_STREAMING_MESSAGE.name, GET_TASK.name})
"""What agents of every version know, by some name."""


def _explain_version(error: A2AError, call: Call[P, R], choice: _Choice) -> None:
    """Says what to pass to an agent that seems to speak another version than its card says."""
    interface, spoken = choice.endpoint.interface, choice.endpoint.version
    if not isinstance(error, VersionNotSupportedError):
        if call.operation.name not in _EVERYWHERE:
            return
        if isinstance(error, A2AHTTPError) and not (
            error.http_status in {404, 405} and interface.protocol_binding == "HTTP+JSON"
        ):
            return  # else the path is unknown, which has the version in it
    other = OLDER_VERSION if spoken == PROTOCOL_VERSION else PROTOCOL_VERSION
    error.message = f'{error.message}{VERSION_ADVICE}{other}, pass protocol_version="{other}"'


def _trusted(route: Route, first: AgentCard) -> frozenset[str]:
    """The origins that may get the caller's headers and credentials."""
    if not route.trust_first:
        return route.trusted
    return route.trusted | origin_and_aliases(first.supported_interfaces[0].url)


def _check_address(
    interface: AgentInterface, card: AgentCard, route: Route, *, source: str | None
) -> None:
    """Checks an address that the caller did not name."""
    why = None if route.url is not None else doubt(interface.url, source)
    if why is None:
        return
    hint = "pass the right one as url="
    if route.source is not None:
        guess = f"{origin(route.source)}{urlsplit(interface.url).path}"
        hint = f'if the agent is where its card is, pass url="{guess}"'
    urls = [offered.url.partition("#")[0] for offered in card.supported_interfaces]
    field = f"supportedInterfaces[{urls.index(interface.url)}].url"
    raise InvalidAgentCardError(
        f"the card names {presentable(interface.url)} as the agent's address ({field}), but "
        f"{why}; nothing was sent there. {hint[0].upper()}{hint[1:]}",
        field=field,
        executed=False,
    )


_UNDECLARED = {
    "streaming": (UnsupportedOperationError, "streaming"),
    "push_notifications": (PushNotificationNotSupportedError, "push notifications"),
    "extended_agent_card": (UnsupportedOperationError, "an extended card"),
}


def _undeclared(operation: str, capability: Capability, card: AgentCard) -> A2AError:
    kind, what = _UNDECLARED[capability]
    return kind(
        f"{operation} was not called: agent {card.name!r} does not declare {what} in its "
        "card (capabilities)",
        executed=False,
    )


def _check_origin(
    interface: AgentInterface, trusted: frozenset[str]
) -> CredentialOriginError | None:
    """The error of a call with credentials, if they were not given for this interface."""
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
