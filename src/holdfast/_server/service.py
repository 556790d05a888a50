"""A served agent: the official SDK's request handler, its ASGI application, and their shutdown.

One service answers over every binding, so that a task created over one binding can be fetched over
another.
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
from a2a.utils import errors as sdk
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from holdfast._aio.cancel_scope import CancelScope
from holdfast._aio.guarded_telemetry import guarded
from holdfast._server.bodies import BoundedBodies
from holdfast._server.errors import ProtocolErrors
from holdfast._server.host_check import HostCheck
from holdfast._server.identity import Authentication, HttpContextBuilder
from holdfast._server.push import BoundedPushConfigs, PushSender, PushTargets
from holdfast._server.safe_handler import SafeRequestHandler
from holdfast._server.streams import with_safe_requests
from holdfast._server.tracing import TracedRequestHandler, TurnSpans
from holdfast.integrations.a2a_sdk import to_proto

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.request_handlers import RequestHandler
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from holdfast._server.host_check import HostRules
    from holdfast._server.settings import ServerSettings
    from holdfast._server.turn_registry import SdkTurnRegistry, TurnRegistry
    from holdfast.extend import HttpEngine
    from holdfast.types import AgentCard

__all__ = ["Service"]

logger = logging.getLogger("holdfast.server")

_CARD_PATH = "/.well-known/agent-card.json"
_HANDLER_CLOSE_TIMEOUT_S = 10.0
"""Seconds that the SDK's handler has to end its tasks."""

_REPLY_GRACE_S = 1.0
"""Seconds for requests in flight to get the outcome of stopped turns."""

_STORE_TIMEOUT_S = 5.0
"""Seconds that the task store and push receivers have to take the outcome of stopped turns."""

_V03 = "0.3"


class Service:
    """Answers for an agent, over any binding, in one event loop.

    Args:
        turns: The executor, as the SDK takes it.
        card: The agent's card; its capabilities are offered.
        settings: The server's settings.

    Attributes:
        handler: The SDK's request handler, with safe errors.
    """

    def __init__(
        self, turns: TurnRegistry | SdkTurnRegistry, card: AgentCard, settings: ServerSettings
    ) -> None:
        self._turns = turns
        self._name = card.name
        self._settings = settings
        self._engine: HttpEngine | None = None
        self._closing: asyncio.Task[int] | None = None
        telemetry = self._telemetry = guarded(settings.telemetry)
        self._sdk_handler = self._make_handler(turns, card)
        self._safe_handler = SafeRequestHandler(
            self._sdk_handler,
            card.name,
            required=frozenset(e.uri for e in card.capabilities.extensions if e.required),
            max_parts=settings.max_parts,
            max_values=settings.max_json_values,
        )
        self.handler = cast(
            "RequestHandler",
            self._safe_handler
            if telemetry is None
            else TracedRequestHandler(self._safe_handler, telemetry, card),
        )

    def app(self, card: AgentCard, bindings: Sequence[str], rules: HostRules) -> ProtocolErrors:
        """Return the ASGI application for the HTTP bindings.

        Args:
            card: The public card.
            bindings: The bindings to serve.
            rules: The hosts and origins that requests may name.
        """
        settings = self._settings
        with_v03 = _V03 in settings.versions
        contexts = HttpContextBuilder(traced=settings.telemetry is not None)
        routes: list[BaseRoute] = [_card_route(card)]
        if "JSONRPC" in bindings:
            routes += create_jsonrpc_routes(
                self.handler, "/", contexts, enable_v0_3_compat=with_v03
            )
        if "HTTP+JSON" in bindings:
            routes += create_rest_routes(self.handler, contexts, enable_v0_3_compat=with_v03)
        routes = with_safe_requests(
            routes, keep_alive=settings.keep_alive, max_values=settings.max_json_values
        )
        app: Any = Starlette(routes=routes, lifespan=self._lifespan)
        for wrap in reversed(settings.middleware):
            app = wrap(app)
        if settings.authenticate is not None:
            app = Authentication(app, settings.authenticate, public=frozenset({_CARD_PATH}))
        self._warn_if_open(is_local=rules.is_loopback)
        bounded = BoundedBodies(
            app,
            limit=settings.max_body,
            seconds=settings.body_timeout,
            memory=settings.max_body_memory,
        )
        return ProtocolErrors(HostCheck(bounded, rules), agent=self._name)

    def _warn_if_open(self, *, is_local: bool) -> None:
        """Log that all callers share all tasks, if there is no authentication."""
        if self._settings.authenticate is None and not self._settings.middleware:
            logger.log(
                logging.INFO if is_local else logging.WARNING,
                "%s is served without authentication: every caller can read and cancel all tasks; "
                "pass authenticate= to keep callers apart",
                self._name,
            )

    async def close(self, grace: float = 0.0) -> int:
        """Stop the turns in flight after a grace, and free all resources; may be called twice.

        Args:
            grace: Seconds that turns in flight get to finish.

        Returns:
            The number of turns that were stopped.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace), name="closing the agent")
        return await asyncio.shield(self._closing)

    def end_grace(self) -> None:
        """End the grace of a `close` in progress at once."""
        self._turns.end_grace()

    async def _close(self, grace: float) -> int:
        stopped = await self._turns.stop(grace)
        if stopped.number:
            logger.warning("%s was stopped: %d turns were ended", self._name, stopped.number)
        async with CancelScope.within(_STORE_TIMEOUT_S):
            await asyncio.gather(*map(self._wait_until_stored, stopped.emitted))
        await self._safe_handler.wait_idle(_REPLY_GRACE_S)
        aclose = getattr(self._sdk_handler, "aclose", None)
        if aclose is not None:
            seconds = _HANDLER_CLOSE_TIMEOUT_S
            async with CancelScope.within(seconds) as scope:
                await aclose()
            if scope.expired:
                logger.warning("the tasks of %s did not end within %g s", self._name, seconds)
        if self._engine is not None:
            await self._engine.close()
        return stopped.number

    async def _wait_until_stored(self, turn: RequestContext) -> None:
        """Wait until the outcome of a stopped turn is stored and pushed.

        The SDK passes an event to subscribers after it has stored and pushed it, and has no
        subscribers for a task whose end it has processed.
        """
        handler = cast("Any", self._sdk_handler)
        request = a2a_pb2.SubscribeToTaskRequest(id=turn.task_id)
        with contextlib.suppress(sdk.A2AError):
            events = handler.on_subscribe_to_task(request, turn.call_context)
            async with contextlib.aclosing(events):
                async for _ in events:
                    pass

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self.close()

    def _make_handler(self, executor: AgentExecutor, card: AgentCard) -> DefaultRequestHandler:
        settings = self._settings
        options: dict[str, Any] = dict(settings.handler_options)
        if settings.push:
            options |= self._push_options()
        if settings.extended_card is not None:
            extended = msgspec.structs.replace(
                settings.extended_card,
                capabilities=card.capabilities,
                supported_interfaces=card.supported_interfaces,
            )
            options["extended_agent_card"] = to_proto(extended, a2a_pb2.AgentCard)
        parameters = inspect.signature(DefaultRequestHandler.__init__).parameters
        for name in options.keys() - parameters.keys():
            raise ValueError(f"the installed a2a-sdk has no {name}; upgrade it")
        return DefaultRequestHandler(
            agent_executor=executor,
            task_store=settings.task_store,
            agent_card=to_proto(card, a2a_pb2.AgentCard),
            **options,
        )

    def _push_options(self) -> dict[str, Any]:
        """Return the SDK handler's arguments for push: a store, a sender, and a URL validator."""
        settings = self._settings
        store = InMemoryPushNotificationConfigStore() if settings.push is True else settings.push
        targets = PushTargets(settings.push_networks, settings.push_url_validator)
        sender = settings.push_sender
        if sender is None:
            engine = settings.push_engine
            if engine is None:
                from holdfast.extend import AiohttpEngine

                engine = self._engine = AiohttpEngine(proxies=False)
            spans = None if self._telemetry is None else TurnSpans(self._telemetry)
            self._turns.spans = spans
            sender = PushSender(engine, store, targets, spans)
        return {
            "push_config_store": BoundedPushConfigs(store, settings.max_push_configs),
            "push_sender": sender,
            "push_url_validator": targets.accepts,
        }


def _card_route(card: AgentCard) -> Route:
    """Return the route of the public card, with an entity tag (A2A 8.6)."""
    document = agent_card_to_dict(to_proto(card, a2a_pb2.AgentCard))
    body = json.dumps(document, ensure_ascii=False).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "public, max-age=60"}

    async def serve(request: Request) -> Response:
        cached = request.headers.get("if-none-match", "").split(",")
        if tag in {cached_tag.strip().removeprefix("W/") for cached_tag in cached}:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    return Route(_CARD_PATH, serve, methods=["GET"])
