"""Finding an agent's card, from what the caller names.

Rules: nothing is fetched before it is needed; many who ask at once cause one fetch; a card is
kept for its time to live on the event loop's clock.
"""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import (
    A2AError,
    AgentCardResolutionError,
    InvalidAgentCardError,
    LimitExceededError,
)
from holdfast.model import codec
from holdfast.model.card import AgentCard, AgentInterface, check_card, read_card
from holdfast.model.operations import Operation
from holdfast.policy.retry import TOO_LATE
from holdfast.runtime.binding import protocol_headers
from holdfast.runtime.engine import HttpEngine, send
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.transport import AnyCall, Call, CallProgress, Reply, Transport
from holdfast.wire import status
from holdfast.wire.http import (
    MAX_REPLY_BYTES,
    HttpReply,
    HttpRequest,
    Timeouts,
    excerpt,
    harmless_headers,
    origin,
    presentable,
)
from holdfast.wire.redaction import redact, secrets_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.runtime.endpoints import Endpoints
    from holdfast.runtime.env import Env

__all__ = [
    "GET_AGENT_CARD",
    "AgentCardResolver",
    "CardLocation",
    "CardTransport",
]

P = TypeVar("P")
R = TypeVar("R")

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where cards are (RFC 8615; A2A 8.2), the second one for agents older than protocol 0.3."""


class CardLocation(msgspec.Struct, frozen=True):
    """Where a card may be.

    Attributes:
        urls: Addresses to try in order; the next one after a 404 only.
    """

    urls: tuple[str, ...]

    @classmethod
    def of(cls, agent: str) -> CardLocation:
        """Reads what a caller named: an origin, an address below one, or a card's own URL."""
        parts = urlsplit(agent)
        if parts.path.endswith(".json"):
            return cls((agent,))
        base = agent.partition("?")[0].partition("#")[0].rstrip("/")
        well_known = tuple(f"{base}{path}" for path in WELL_KNOWN)
        return cls(well_known if parts.path in {"", "/"} else (*well_known, agent))


GET_AGENT_CARD: Operation[CardLocation, AgentCard] = Operation(
    name="GetAgentCard",
    request=CardLocation,
    response=AgentCard,
    safety="read",
    verb="GET",
    path="",
)
"""Fetching the public card: HTTP, but no operation of a binding, so not in the table."""


class CardTransport:
    """The bottom of the stack for `GET_AGENT_CARD`."""

    def __init__(self, engine: HttpEngine, env: Env, timeouts: Timeouts) -> None:
        self._engine = engine
        self._env = env
        self._timeouts = timeouts

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Tries the addresses in order."""
        location: CardLocation = call.params
        for url in location.urls:
            reply = await self._fetch(call, url)
            if reply is not None:
                return reply
        tried = ", ".join(presentable(url) for url in location.urls)
        raise AgentCardResolutionError(
            f"there is no agent card at {tried} (HTTP 404); name the card's own URL if it is "
            "somewhere else",
            http_status=404,
            executed=False,
        )

    async def close(self) -> None:
        """Nothing to free: the engine belongs to the client."""

    async def _fetch(self, call: AnyCall, url: str) -> Reply[AgentCard] | None:
        request = HttpRequest(
            method="GET",
            url=url,
            headers={**call.headers, "accept": "application/json", **protocol_headers()},
            timeouts=self._timeouts,
            progress=call.progress,
        )
        try:
            reply = await send(self._engine, request, to_any_origin=True)
            # An address that is not a well-known one may be the agent's own, which takes no GET.
            if reply.status == 404 or (reply.status == 405 and not _is_well_known(url)):
                return None
            if reply.status != 200:
                raise status.from_http_status(reply, now=self._env.wall())
            card = _card_of(reply)
        except A2AError as error:
            error.agent = presentable(url)
            error.executed = False
            redact(error, secrets_in(call.headers))
            raise
        return Reply(value=card, headers=reply.headers, raw=reply.body)


def _is_well_known(url: str) -> bool:
    return url.endswith(WELL_KNOWN)


def _card_of(reply: HttpReply) -> AgentCard:
    try:
        return read_card(codec.parse(reply.body))
    except codec.MalformedError as error:
        wrong = InvalidAgentCardError(f"the agent card is {error}")
    except InvalidAgentCardError as error:
        wrong = error
    wrong.http_status = reply.status
    wrong.headers = harmless_headers(reply.headers)
    wrong.excerpt = excerpt(reply.body)
    raise wrong


class AgentCardResolver:
    """Knows the card of one agent, and fetches it when it must.

    Args:
        agent: An origin, an address, a card's URL, a `Path` to a card's file, a card, or its
            JSON object as a dict.
        fetch: Carries `GET_AGENT_CARD`.
        endpoints: Where what is learned about the card's server is kept.
        headers: Sent along; not those of a call, since many calls share one card.
        ttl: Seconds that a fetched card is kept.
    """

    def __init__(
        self,
        agent: str | Path | AgentCard | Mapping[str, Any],
        fetch: Transport,
        endpoints: Endpoints,
        *,
        headers: Mapping[str, str],
        ttl: float,
    ) -> None:
        self._agent = agent
        self._fetch = fetch
        self._endpoints = endpoints
        self._headers = headers
        self._ttl = ttl
        self._card: AgentCard | None = None
        self._expires: float | None = None
        self._flights = PerLoop(_Flight)

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answers `GET_AGENT_CARD`, so that a resolver can stand at the bottom of a stack."""
        return Reply(value=await self.card(call))

    async def close(self) -> None:
        """Frees what fetches."""
        await self._fetch.close()

    async def card(self, call: AnyCall) -> AgentCard:
        """The card, from memory or fetched within the deadline of the call that needs it.

        Raises:
            AgentCardResolutionError: There is no card.
            InvalidAgentCardError: It is not usable.
            LimitExceededError: It is too large.
            A2AError: It could not be fetched.
        """
        loop = asyncio.get_running_loop()
        if (card := self._fresh(loop.time())) is not None:
            return card
        flight = self._flights.here()
        async with flight.lock:
            if (card := self._fresh(loop.time())) is not None:
                return card
            if flight.card is not None:
                return flight.card  # even if it need not be kept for longer than this
            if flight.failure is not None:
                raise copy.copy(flight.failure)  # an error of their own for each who waited
            try:
                card = flight.card = await self._load(call)
            except A2AError as error:
                if not (error.gave_up or "").endswith(TOO_LATE):  # others may have more time
                    flight.failure = copy.copy(error)  # what becomes of this one is its caller's
                raise
            else:
                self.replace(card)
                return card
            finally:
                if flight.card is not None or flight.failure is not None:
                    self._flights.forget()  # who comes later tries anew

    @property
    def last(self) -> AgentCard | None:
        """The card as last seen, however long ago."""
        return self._card

    def replace(self, card: AgentCard) -> None:
        """Keeps a card in place of the present one, for a new time to live."""
        self._card = card
        if isinstance(self._agent, str | Path):
            self._expires = asyncio.get_running_loop().time() + self._ttl

    def _fresh(self, now: float) -> AgentCard | None:
        return self._card if self._expires is None or now < self._expires else None

    async def _load(self, call: AnyCall) -> AgentCard:
        match self._agent:
            case AgentCard():
                check_card(self._agent)
                return self._agent
            case str():
                server = AgentInterface(url=origin(self._agent), protocol_binding="card")
                progress = CallProgress(began=asyncio.get_running_loop().time())
                call.progress.card = progress
                reply = await self._fetch.unary(
                    Call(
                        operation=GET_AGENT_CARD,
                        params=CardLocation.of(self._agent),
                        request_id=call.request_id,
                        deadline=call.deadline,
                        headers=self._headers,
                        endpoint=self._endpoints.of(server),
                        progress=progress,
                    )
                )
                return reply.value
            case Path():
                return await asyncio.to_thread(_read_card_file, self._agent)
            case _:
                return read_card(dict(self._agent))


class _Flight:
    """Those who wait for one fetch, in one event loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.card: AgentCard | None = None
        self.failure: A2AError | None = None


def _read_card_file(path: Path) -> AgentCard:
    if path.exists() and not path.is_file():
        message = f"cannot read the agent card {path}: it is not a file"
        raise AgentCardResolutionError(message, executed=False)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_REPLY_BYTES + 1)
    except OSError as error:
        message = f"cannot read the agent card {path}: {error.strerror or error}"
        raise AgentCardResolutionError(message, executed=False) from None
    if len(content) > MAX_REPLY_BYTES:
        message = f"the agent card {path} is larger than {MAX_REPLY_BYTES} bytes"
        raise LimitExceededError(
            message, which="card bytes", bound=MAX_REPLY_BYTES, executed=False
        )
    try:
        return read_card(codec.parse(content))
    except codec.MalformedError as error:
        message = f"the agent card {path} is {error}"
        raise InvalidAgentCardError(message, executed=False, excerpt=excerpt(content)) from None
