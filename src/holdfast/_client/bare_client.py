"""A client without policies: each call is one request, whose reply is reported as it is.

This is the seam for tools that examine an agent, such as `holdfast.doctor`. There are no retries,
circuit breakers, queues, caches or observers; the engine, the bindings and the credentials are
those of a client. Credentials and the caller's headers are sent with calls that are marked as
trusted, and to the origin of the card; every secret that is sent is hidden by `redact`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._auth.providers import to_provider
from holdfast._model import codec
from holdfast._model.operations import CARD_BINDING, CARD_PATHS, GET_TASK
from holdfast._pipeline.cards.fetch import CardLocation
from holdfast._pipeline.cards.files import read_card_file
from holdfast._pipeline.cards.resolver import FETCH_CARD
from holdfast._pipeline.cards.trust import ReceivedCard
from holdfast._pipeline.credentials import CredentialsLayer, with_credentials
from holdfast._pipeline.endpoints import Endpoints
from holdfast._pipeline.http_binding import HttpBinding
from holdfast._pipeline.interfaces import Route, choose_interfaces
from holdfast._pipeline.listeners import Observers
from holdfast._pipeline.order import card_source
from holdfast._pipeline.transport import Call, CallGroup, CallProgress, compose
from holdfast._policy.deadline import Deadline
from holdfast._policy.resilience import Resilience
from holdfast._signatures.verifier import card_checker
from holdfast._wire.bindings import PROTOCOL_VERSION, codec_for, protocol_headers
from holdfast._wire.credentials import check_credentials, with_query
from holdfast._wire.http import HttpRequest, check_caller_headers, presentable
from holdfast._wire.limits import card_limits
from holdfast._wire.network_scope import NetworkReach, NetworkScope, innermost, scope_of_host
from holdfast._wire.origins import origin, origin_and_aliases
from holdfast._wire.redaction import Secrets, secrets_in
from holdfast.errors import A2AError
from holdfast.types import AgentCard, AgentInterface

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast._aio.env import Env
    from holdfast._auth.providers import AuthProvider, CredentialService
    from holdfast._model.operations import Operation
    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._pipeline.transport import AnyCall, Reply, Stream, Transport
    from holdfast._signatures.verifier import CardVerifier, CardVerifierCallable
    from holdfast._wire.http import HttpReply, Timeouts
    from holdfast._wire.limits import Limits

__all__ = ["BareClient", "ServedCard"]

P = TypeVar("P")
R = TypeVar("R")

_UNBOUNDED_S = 86_400.0
"""Seconds of a timeout that never expires before that of the caller."""


class ServedCard(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's card, and how its server serves it.

    Attributes:
        card: The card.
        document: The JSON object that it was read from.
        url: The address that was asked for, as it may be shown; a path for a file.
        moved_to: The address after redirects, as it may be shown.
        scope: The network of the host that serves the card, or of its address if that is more
            private; for a file, of the first interface.
        headers: The headers of the reply; names in lower case. Empty for a file.
        is_at_legacy_path: Whether the card is only at the well-known path of agents before 0.3.
        revalidation: The request that asks whether the card is unchanged; None if the server
            sent no ETag and no Last-Modified.
    """

    card: AgentCard
    document: Mapping[str, Any]
    url: str
    moved_to: str
    scope: NetworkScope
    headers: Mapping[str, str] = {}
    is_at_legacy_path: bool = False
    revalidation: HttpRequest | None = None


class BareClient:
    """Makes single requests to an agent.

    Args:
        engine: The HTTP engine; it is not closed.
        env: Wall time and ids.
        timeouts: Timeouts of each request.
        limits: Bounds on the size of replies.
        auth: Credentials, as for `connect`; None for none.
        headers: The caller's headers.

    Attributes:
        engine: As given.
        env: As given.
        limits: As given.
    """

    def __init__(
        self,
        engine: HttpEngine,
        env: Env,
        *,
        timeouts: Timeouts,
        limits: Limits,
        auth: str | Mapping[str, str] | AuthProvider | CredentialService | None,
        headers: Mapping[str, str],
    ) -> None:
        self.engine = engine
        self.env = env
        self.limits = limits
        self._resilience = msgspec.structs.replace(Resilience.off(), timeouts=timeouts)
        self._auth = to_provider(auth)
        self._headers = check_caller_headers(headers)
        self._endpoints = Endpoints()
        self._secrets = Secrets()
        self._transport = self._make_transport(engine, self._resilience)

    # ── The card ─────────────────────────────────────────────────────────────────────────────

    async def fetch_card(self, agent: str, *, timeout: float) -> ServedCard:
        """Fetch the card of an agent.

        Args:
            agent: The agent's origin, an address below it, or the card's own URL.
            timeout: Seconds for all requests together.

        Raises:
            A2AError: There is no card, or it is not valid.
        """
        location, now = CardLocation.of(agent), asyncio.get_running_loop().time()
        source = card_source(
            self.engine,
            self._resilience,
            self.env,
            Observers(()),
            limits=self.limits,
            networks=(),
        )
        server = AgentInterface(url=origin(agent), protocol_binding=CARD_BINDING)
        reply = await source.unary(
            Call(
                operation=FETCH_CARD,
                params=location,
                request_id=self.env.new_id(),
                deadline=Deadline(name="call", timeout=timeout, at=now + timeout),
                headers=self._headers,
                endpoint=self._endpoints.of(server),
                auth=self._auth,
                progress=CallProgress(began=now, call_group=CallGroup(self._secrets)),
            )
        )
        fetched = reply.value
        conditions = fetched.caching.conditions()
        scope = innermost((fetched.scope, scope_of_host(fetched.url)))
        revalidation = HttpRequest(
            method="GET",
            url=fetched.moved_to,
            headers={
                "accept": "application/json",
                **protocol_headers(PROTOCOL_VERSION),
                **conditions,
            },
            timeouts=self._resilience.timeouts,
            limits=card_limits(self.limits),
            reach=NetworkReach(inward=scope),
        )
        return ServedCard(
            card=fetched.card,
            document=codec.as_object(codec.parse(reply.raw)) or {},
            url=presentable(fetched.url),
            moved_to=presentable(fetched.moved_to),
            scope=scope,
            headers={name.lower(): value for name, value in reply.headers.items()},
            is_at_legacy_path=fetched.url.endswith(CARD_PATHS[1]) and len(location.urls) > 1,
            revalidation=revalidation if conditions else None,
        )

    def read_card(self, path: Path) -> ServedCard:
        """Read a card from a file; this blocks.

        Raises:
            A2AError: There is no such file, or the card is not valid.
        """
        card, document = read_card_file(path, self.limits)
        return ServedCard(
            card=card,
            document=codec.as_object(document) or {},
            url=str(path),
            moved_to=str(path),
            scope=scope_of_host(card.supported_interfaces[0].url),
        )

    async def is_unchanged(self, card: ServedCard) -> bool | None:
        """Ask the card's server, without credentials, whether the card is unchanged.

        Returns:
            Whether the server answers 304; None if it cannot be asked, or answers with an error.
        """
        if card.revalidation is None:
            return None
        try:
            reply = await self.engine.request(card.revalidation)
        except A2AError:
            return None
        return reply.status == 304 if reply.status < 400 else None

    async def verify_card(
        self,
        verifier: CardVerifier | CardVerifierCallable | None,
        card: AgentCard,
        document: Mapping[str, Any],
    ) -> CardVerification | None:
        """Verify the signatures of a card; None without a verifier or without signatures."""
        checker = card_checker(verifier, self.engine, self.env)
        if checker is None or not document.get("signatures"):
            return None
        try:
            return (await checker.check(ReceivedCard(card, document))).verification
        finally:
            await checker.close()

    def preferred_interface(self, card: AgentCard, bindings: Sequence[str]) -> AgentInterface:
        """Return the interface that a client calls first.

        Args:
            card: The card.
            bindings: Preferred bindings, the best one first; empty for the order of the card.
        """
        return choose_interfaces(card, Route(bindings=tuple(bindings))).first

    def may_have_credentials(self, agent: str, url: str) -> bool:
        """Return whether the credentials for an agent may go to another address.

        Args:
            agent: The address that the caller named.
            url: The other address, which must be of the same origin.
        """
        return origin(url) in origin_and_aliases(agent)

    # ── Calls ────────────────────────────────────────────────────────────────────────────────

    def endpoint(self, interface: AgentInterface) -> Endpoint:
        """Return the endpoint of an interface, whose version must be one that is supported."""
        return self._endpoints.of(interface)

    def make_call(
        self,
        operation: Operation[P, R],
        params: P,
        endpoint: Endpoint,
        *,
        timeout: float,
        card: AgentCard,
        reach: NetworkReach | None = None,
        is_trusted: bool = True,
    ) -> Call[P, R]:
        """Create a call, to be passed to `unary` or `open_stream`.

        Args:
            operation: The operation.
            params: Its parameters.
            endpoint: The endpoint to call.
            timeout: Seconds of its deadline.
            card: The card that names the endpoint.
            reach: The networks in which the endpoint may be; None if the caller named it.
            is_trusted: Whether to send credentials and the caller's headers.
        """
        now = asyncio.get_running_loop().time()
        return Call(
            operation=operation,
            params=params,
            request_id=self.env.new_id(),
            deadline=Deadline(name="call", timeout=timeout, at=now + timeout),
            headers=self._headers if is_trusted else {},
            endpoint=endpoint,
            reach=reach,
            card=card,
            auth=self._auth if is_trusted else None,
            progress=CallProgress(began=now, call_group=CallGroup(self._secrets)),
        )

    async def unary(self, call: Call[P, R], *, waits_for_task: bool = False) -> Reply[R]:
        """Make a call with one request.

        Args:
            call: The call.
            waits_for_task: Whether the reply may take as long as a task; the caller then sets
                the timeout.

        Raises:
            A2AError: The call failed.
        """
        transport = self._patient_transport(self.engine) if waits_for_task else self._transport
        return await transport.unary(call)

    async def open_stream(
        self, call: Call[P, R], engine: HttpEngine | None = None
    ) -> Reply[Stream[R]]:
        """Open a stream with one request; the caller sets the timeout.

        Args:
            call: The call.
            engine: The engine for this request; None for that of the client.

        Raises:
            A2AError: The call failed.
        """
        return await self._patient_transport(engine or self.engine).stream(call)

    async def send_raw(
        self, call: AnyCall, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> HttpReply:
        """Send a request that is not one of a binding, with the credentials of a call.

        Args:
            call: The call whose credentials, headers and bounds are used.
            method: HTTP method.
            url: The address.
            headers: More headers; names in lower case.
            body: The body.

        Raises:
            A2AError: There is no reply.
        """
        if call.auth is not None:
            credentials = check_credentials(await call.auth.credentials(call))
            self._secrets.note_values(credentials.values)
            call = with_credentials(call, credentials)
        self._secrets.note(call.headers, call.query, url)
        version = PROTOCOL_VERSION if call.endpoint is None else call.endpoint.version
        request = HttpRequest(
            method=method,
            url=with_query(url, call.query),
            headers={**call.headers, **protocol_headers(version), **headers},
            body=body,
            timeouts=self._resilience.timeouts,
            limits=self.limits,
            reach=call.reach,
        )
        return await self.engine.request(request)

    def raise_for_jsonrpc_error(self, request_id: str, reply: HttpReply) -> None:
        """Raise the error of a JSON-RPC reply to GetTask.

        Raises:
            A2AError: The reply is an error, or not valid.
        """
        wire_codec = codec_for("JSONRPC", PROTOCOL_VERSION)
        wire_codec.decode(GET_TASK, request_id, reply, now=0.0, refusals=frozenset())

    def _patient_transport(self, engine: HttpEngine) -> Transport:
        timeouts = msgspec.structs.replace(
            self._resilience.timeouts, first_byte=_UNBOUNDED_S, idle=_UNBOUNDED_S
        )
        resilience = msgspec.structs.replace(self._resilience, timeouts=timeouts)
        return self._make_transport(engine, resilience)

    def _make_transport(self, engine: HttpEngine, resilience: Resilience) -> Transport:
        binding = HttpBinding(engine, self.env, resilience, self.limits)
        return compose((CredentialsLayer,), binding)

    # ── Secrets ──────────────────────────────────────────────────────────────────────────────

    @property
    def has_credentials(self) -> bool:
        """Whether there are credentials, or a header that looks like one."""
        return self._auth is not None or bool(secrets_in(self._headers))

    def redact(self, error: A2AError) -> None:
        """Replace every secret that was sent by ``***`` in an error."""
        self._secrets.hide_in(error)

    def redacted(self, text: str) -> str:
        """Return a text with every secret that was sent replaced by ``***``."""
        error = A2AError(text)
        self.redact(error)
        return error.message
