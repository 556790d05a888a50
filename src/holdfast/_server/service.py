"""One agent at work: the official SDK's request handler and what is around it, until it is closed.

The same service answers over every binding, so that a task that came by one of them can be asked
for by another.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import json
import logging
from typing import TYPE_CHECKING, Any, cast

import msgspec
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore
from a2a.types import a2a_pb2
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from holdfast._aio.cancel_scope import CancelScope
from holdfast._integrations.a2a_sdk.messages import to_proto
from holdfast._server.bodies import BoundedBodies
from holdfast._server.errors import ProtocolErrors
from holdfast._server.host_check import HostCheck
from holdfast._server.identity import Authentication, HttpContextBuilder
from holdfast._server.push_configs import BoundedPushConfigs
from holdfast._server.push_sending import PushSender, PushTargets
from holdfast._server.safe_handler import SafeRequestHandler
from holdfast._server.streams import with_own_streams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import RequestHandler
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from holdfast._net.engine import HttpEngine
    from holdfast._server.host_check import HostRules
    from holdfast._server.sdk_executors import ForeignRuns
    from holdfast._server.settings import ServerSettings
    from holdfast._server.turn_registry import TurnRegistry
    from holdfast.types import AgentCard

__all__ = ["Service"]

logger = logging.getLogger("holdfast.server")

_CARD_PATH = "/.well-known/agent-card.json"
_CLOSING = 10.0
"""Seconds that the SDK's handler has to end what it left running."""

_ANSWERING = 1.0
"""Seconds in which those who wait hear how the turns ended."""

_OLDER = "0.3"


class Service:
    """Answers for an agent, over any binding, in one event loop.

    Args:
        runs: What does the work, as the SDK takes it.
        card: Of the agent; what it declares is offered.
        settings: The server's.

    Attributes:
        handler: The SDK's, which tells no failure that is not meant.
    """

    def __init__(
        self, runs: TurnRegistry | ForeignRuns, card: AgentCard, settings: ServerSettings
    ) -> None:
        self._runs = runs
        self._name = card.name
        self._settings = settings
        self._engine: HttpEngine | None = None
        self._closing: asyncio.Task[int] | None = None
        self._inner = self._handler(runs, card)
        self._guarded = SafeRequestHandler(
            self._inner,
            card.name,
            required=frozenset(e.uri for e in card.capabilities.extensions if e.required),
            max_parts=settings.max_parts,
            max_values=settings.max_json_values,
        )
        self.handler = cast("RequestHandler", self._guarded)

    def app(self, card: AgentCard, bindings: Sequence[str], rules: HostRules) -> ProtocolErrors:
        """The ASGI application for the bindings that are HTTP.

        Args:
            card: As it is served.
            bindings: What is served.
            rules: Which hosts and origins requests may name.
        """
        settings = self._settings
        is_older = _OLDER in settings.versions
        routes: list[BaseRoute] = [_card_route(card)]
        if "JSONRPC" in bindings:
            routes += create_jsonrpc_routes(
                self.handler, "/", HttpContextBuilder(), enable_v0_3_compat=is_older
            )
        if "HTTP+JSON" in bindings:
            routes += create_rest_routes(
                self.handler, HttpContextBuilder(), enable_v0_3_compat=is_older
            )
        routes = with_own_streams(
            routes, keep_alive=settings.keep_alive, json_values=settings.max_json_values
        )
        inner: Any = Starlette(routes=routes, lifespan=self._lifespan)
        for wrap in reversed(settings.middleware):
            inner = wrap(inner)
        if settings.authenticate is not None:
            inner = Authentication(inner, settings.authenticate, public=frozenset({_CARD_PATH}))
        self._log_who_may_call(is_local=rules.is_loopback)
        bounded = BoundedBodies(
            inner,
            limit=settings.max_body,
            seconds=settings.body_timeout,
            memory=settings.max_body_memory,
        )
        return ProtocolErrors(HostCheck(bounded, rules), agent=self._name)

    def _log_who_may_call(self, *, is_local: bool) -> None:
        """Says it where callers are not told apart."""
        if self._settings.authenticate is None and not self._settings.middleware:
            logger.log(
                logging.INFO if is_local else logging.WARNING,
                "%s is served without authentication: every caller can read and cancel all tasks; "
                "pass authenticate= to keep callers apart",
                self._name,
            )

    async def close(self, grace: float = 0.0) -> int:
        """Lets what runs end, ends what does not, and frees everything; a second call waits too.

        Args:
            grace: Seconds that turns under way have to end.

        Returns:
            How many turns were ended.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace), name="closing the agent")
        return await asyncio.shield(self._closing)

    def hurry(self) -> None:
        """Takes away what is left of the grace."""
        self._runs.hurry()

    async def _close(self, grace: float) -> int:
        ended = await self._runs.stop(grace)
        if ended:
            logger.warning("%s was stopped: %d turns were ended", self._name, ended)
        await self._guarded.idle(_ANSWERING)
        aclose = getattr(self._inner, "aclose", None)
        if aclose is not None:
            async with CancelScope.within(_CLOSING) as scope:
                await aclose()
            if scope.expired:
                logger.warning("the tasks of %s did not end within %g s", self._name, _CLOSING)
        if self._engine is not None:
            await self._engine.close()
        return ended

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self.close()

    def _handler(self, executor: AgentExecutor, card: AgentCard) -> DefaultRequestHandler:
        settings = self._settings
        options: dict[str, Any] = dict(settings.handler_options)
        if settings.push:
            options |= self._pushing()
        if settings.extended_card is not None:
            extended = msgspec.structs.replace(
                settings.extended_card,
                capabilities=card.capabilities,
                supported_interfaces=card.supported_interfaces,
            )
            options["extended_agent_card"] = to_proto(extended, a2a_pb2.AgentCard)
        known = inspect.signature(DefaultRequestHandler.__init__).parameters
        for name in options.keys() - known.keys():
            raise ValueError(f"the a2a-sdk that is installed has no {name}: a newer one may")
        return DefaultRequestHandler(
            agent_executor=executor,
            task_store=settings.task_store,
            agent_card=to_proto(card, a2a_pb2.AgentCard),
            **options,
        )

    def _pushing(self) -> dict[str, Any]:
        """What the SDK needs to push: a store, a sender, and which addresses it may take."""
        settings = self._settings
        store = InMemoryPushNotificationConfigStore() if settings.push is True else settings.push
        targets = PushTargets(settings.push_networks, settings.push_url_validator)
        sender = settings.push_sender
        if sender is None:
            engine = settings.push_engine
            if engine is None:
                from holdfast._net.aiohttp import AiohttpEngine  # heavy; serving is not

                engine = self._engine = AiohttpEngine(proxies=False)
            sender = PushSender(engine, store, targets)
        return {
            "push_config_store": BoundedPushConfigs(store, settings.max_push_configs),
            "push_sender": sender,
            "push_url_validator": targets.accepts,
        }


def _card_route(card: AgentCard) -> Route:
    """Where the public card is, with an entity tag (A2A 8.6)."""
    document = agent_card_to_dict(to_proto(card, a2a_pb2.AgentCard))
    body = json.dumps(document, ensure_ascii=False).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "public, max-age=60"}

    async def serve(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if tag in {one.strip().removeprefix("W/") for one in known.split(",")}:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    return Route(_CARD_PATH, serve, methods=["GET"])
