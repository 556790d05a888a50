"""The server of an agent: serves a function or an executor over every binding of A2A."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._arguments import (
    check_count,
    check_items,
    check_kind,
    check_methods,
    check_networks,
    check_not_empty,
    check_one_of,
    check_url,
    explains_unknown_options,
)
from holdfast._model.installed_telemetry import installed_telemetry
from holdfast._server.cards import interfaces, metadata_card, modified_card
from holdfast._server.executors import Executor, FunctionExecutor
from holdfast._server.extra import require_extra
from holdfast._server.sdk_options import INSTEAD, check_handler_options
from holdfast._server.settings import ServerSettings
from holdfast.extend import SystemEnv
from holdfast.protocol import BINDINGS, HTTP_BINDINGS
from holdfast.types import AgentCapabilities, AgentCard, AgentExtension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.tasks import (
        PushNotificationConfigStore,
        PushNotificationSender,
        TaskStore,
    )

    from holdfast._server.errors import ProtocolErrors
    from holdfast._server.running import Serving
    from holdfast._server.service import Service
    from holdfast._server.settings import Authenticate, CardModifier, Middleware, PushUrlValidator
    from holdfast.extend import Env, HttpEngine
    from holdfast.observe import ServerTelemetry

__all__ = ["A2AServer"]


class A2AServer:
    """Server of an agent over A2A; needs the extra ``holdfast[server]``.

    A function takes the message, or its text if its first parameter is annotated as ``str``, and
    optionally the `AgentTurn`. It may be a coroutine function, a generator or an async generator;
    other functions run in a thread. It returns text, a part, an artifact, a list of those, a dict,
    a message or None. A generator yields text and parts, which become one artifact; artifacts; and
    messages, which become status updates. The task is announced before the function is called, so
    that a client that loses the reply can fetch the task.

    Args:
        agent: A function; an `Executor`, which drives its tasks itself; or an ``AgentExecutor`` of
            the official SDK, which is used unchanged. If ``executor`` is given, the object that
            the card is made from, such as an agent of another framework.
        card: An `AgentCard`, an SDK card, its JSON object, the ``Path`` of its file, or any object
            with a ``name`` and optionally ``description`` and ``skills``; None for a card from the
            name and the docstring of the agent. Its interfaces are replaced by those served.
        executor: The function or executor to serve, if that is not ``agent``.
        extended_card: The card for authenticated clients (A2A 3.1.11); ``middleware``
            authenticates them.
        card_modifier: Called with the complete public card; the card that it returns is served.
            It runs last; sign the card there, with `sign_card` or with the SDK's
            ``create_agent_card_signer(…)``.
        task_store: An SDK ``TaskStore``; None for one in memory, whose tasks end with the process.
        push: Whether clients may register push notifications (A2A 4.3.3), or the SDK's store for
            their configurations; False by default.
        push_sender: An SDK ``PushNotificationSender`` to use instead of the server's own; the
            server does not check where it connects to.
        push_url_validator: Returns whether a URL is allowed, before its push configuration is
            stored; a coroutine function. Without ``push_networks`` it may also allow addresses of
            this machine and of private networks.
        push_networks: Networks such as ``10.0.0.0/8`` that pushes may reach besides public
            addresses, checked for each connection (SSRF protection). None allows no network, or
            with a ``push_url_validator`` what that allows, except link-local and metadata
            addresses. ``()`` keeps pushes to public addresses, whatever the validator allows.
        push_engine: The `HttpEngine` that sends pushes, such as an `AiohttpEngine` with your own
            certificate authority; the server does not close it. None for an engine that the server
            owns, without proxies.
        versions: Protocol versions to serve, the preferred one first: ``"1.0"`` and ``"0.3"``.
        streaming: Whether answers can be streamed; True by default.
        extensions: Extensions that the agent supports: URIs, or `AgentExtension` for more detail.
        authenticate: Function or coroutine function that takes the headers of a request (names in
            lower case) and returns the name of the caller, or None to refuse the request: HTTP
            401, UNAUTHENTICATED over gRPC. It is called for every binding, before the body is
            read, and has 30 s. Tasks belong to that name, which is `Requester.user`; tasks of
            other callers are not found. The public card needs no authentication. Without this
            option all callers share all tasks.
        middleware: Functions that wrap the ASGI application, the first one outermost; they run
            after ``authenticate``. If one sets ``scope["user"]`` as Starlette does, tasks belong
            to the user's ``identity``, or else to its ``display_name``. Not for gRPC.
        allowed_hosts: Hosts that the ``Host`` header of a request may name besides the host of the
            agent's address; ``*.example.com`` for all below a domain, ``*`` for all. Others get
            HTTP 421. With None, a server on a loopback address accepts only names of this machine
            (protection against DNS rebinding), and a server elsewhere accepts every host.
        allowed_origins: Origins that the ``Origin`` header of a browser may name, such as
            ``https://app.example.com``, besides those of the accepted hosts; ``*`` for all. Others
            get HTTP 403. With None, no other origin is accepted where hosts are checked, and every
            origin elsewhere.
        max_body: Bytes that the body of a request may have, 16 MiB by default; HTTP 413 beyond.
        max_body_memory: Bytes that the bodies of all requests together may take in memory, the
            first 64 KiB of each not counted; HTTP 503 with ``Retry-After`` beyond. None for four
            times ``max_body``. Over gRPC, only ``max_body`` bounds each message.
        max_parts: Parts that a message may have, 1,000 by default; an invalid params error beyond.
        max_json_values: Objects, lists, members and items that a request may hold altogether,
            100,000 by default; HTTP 413 beyond.
        max_push_configs: Push notification configurations that a task may have, 32 by default; an
            invalid params error beyond. Every event of the task is posted to each of them.
        body_timeout: Seconds in which the body of a request must arrive, 30 by default; on sockets
            also those for its head.
        keep_alive: Seconds without an event after which a stream sends a keep-alive comment, 15 by
            default.
        timeout: Seconds that a turn may take, 3,600 by default; None for no limit. It does not
            apply to an SDK executor.
        handler_options: Arguments of the SDK's ``DefaultRequestHandler`` that the server does not
            set itself: ``queue_manager``, ``request_context_builder``, ``extended_card_modifier``,
            ``validate_input_modes``, ``event_stream`` and ``interrupted_task_timeout``, as far as
            the installed SDK has them.
        telemetry: Makes a span for each request and each push notification, such as
            ``holdfast.integrations.opentelemetry.Telemetry``. The agent runs in the context of its
            request's span. By default that of ``HoldfastInstrumentor``, or none.
        env: Source of wall time and ids; None for the system's.

    Raises:
        ImportError: The extra is not installed.
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or does not go with another one.

    Example:
        Serve a function::

            from holdfast.server import A2AServer


            async def answer(message):
                return f"You said {message.text}"


            await A2AServer(answer).serve(port=9999)
    """

    @explains_unknown_options(
        INSTEAD,
        missing="A2AServer needs what it serves as its first argument: a function or an executor, "
        "such as A2AServer(MyExecutor(), card=…)",
    )
    def __init__(
        self,
        agent: object,
        *,
        card: object = None,
        executor: Executor | AgentExecutor | Callable[..., Any] | None = None,
        extended_card: object = None,
        card_modifier: CardModifier | None = None,
        task_store: TaskStore | None = None,
        push: bool | PushNotificationConfigStore = False,
        push_sender: PushNotificationSender | None = None,
        push_url_validator: PushUrlValidator | None = None,
        push_networks: Iterable[str] | None = None,
        push_engine: HttpEngine | None = None,
        versions: Sequence[str] = ("1.0",),
        streaming: bool = True,
        extensions: Iterable[str | AgentExtension] = (),
        authenticate: Authenticate | None = None,
        middleware: Iterable[Middleware] = (),
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        max_body: int = 16 * 1024 * 1024,
        max_body_memory: int | None = None,
        max_parts: int = 1_000,
        max_json_values: int = 100_000,
        max_push_configs: int = 32,
        body_timeout: float = 30.0,
        keep_alive: float = 15.0,
        timeout: float | None = 3600.0,
        handler_options: dict[str, Any] | None = None,
        telemetry: ServerTelemetry | None = None,
        env: Env | None = None,
    ) -> None:
        require_extra("server", "A2AServer")
        check_count("max_body", max_body, least=1)
        name = "agent" if executor is None else "executor"
        self._executor = _to_executor(name, agent if executor is None else executor)
        self._card = metadata_card(agent, card)
        extended = None if extended_card is None else metadata_card(agent, extended_card)
        if task_store is None:
            from a2a.server.tasks import InMemoryTaskStore

            task_store = InMemoryTaskStore()
        check_methods("task_store", task_store, "save", "get", "delete")
        self._settings = ServerSettings(
            extended_card=extended,
            card_modifier=card_modifier,
            task_store=task_store,
            push=push,
            push_sender=push_sender,
            push_url_validator=push_url_validator,
            push_networks=None
            if push_networks is None
            else check_networks("push_networks", push_networks),
            push_engine=_check_engine(push_engine),
            versions=check_items("versions", versions),
            streaming=streaming,
            extensions=tuple(
                _to_extension(extension) for extension in check_items("extensions", extensions)
            ),
            authenticate=authenticate,
            middleware=check_items("middleware", middleware),
            allowed_hosts=_optional_items("allowed_hosts", allowed_hosts),
            allowed_origins=_optional_items("allowed_origins", allowed_origins),
            max_body=max_body,
            max_body_memory=4 * max_body if max_body_memory is None else max_body_memory,
            max_parts=max_parts,
            max_json_values=max_json_values,
            max_push_configs=max_push_configs,
            body_timeout=body_timeout,
            keep_alive=keep_alive,
            timeout=timeout,
            handler_options=check_handler_options(handler_options),
            telemetry=installed_telemetry() if telemetry is None else telemetry,
        )
        self._env: Env = SystemEnv() if env is None else env
        check_methods("env", self._env, "wall", "random", "new_id")
        self._services: weakref.WeakSet[Service] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<A2AServer of {self._card.name}>"

    @explains_unknown_options()
    def agent_card(
        self,
        *,
        url: str,
        bindings: Sequence[str] = HTTP_BINDINGS,
        grpc_url: str | None = None,
    ) -> AgentCard:
        """Return the public card of the agent as served at an address.

        Args:
            url: The address of the application: JSON-RPC is at this URL, the paths of HTTP+JSON
                are below it.
            bindings: The bindings to serve, the preferred one first: ``"JSONRPC"``,
                ``"HTTP+JSON"`` and ``"GRPC"``.
            grpc_url: ``host:port`` for gRPC; None for the host and port of ``url``.

        Raises:
            ValueError: The address is not an http(s) URL, or a binding is unknown.
            TypeError: An argument has the wrong type.
        """
        check_url(url, "url")
        if grpc_url is not None:
            check_not_empty("grpc_url", grpc_url)
        names = _check_bindings(bindings)
        settings = self._settings
        declared = self._card.capabilities.extensions
        capabilities = AgentCapabilities(
            streaming=settings.streaming,
            push_notifications=bool(settings.push),
            extended_agent_card=settings.extended_card is not None,
            extensions=(
                *declared,
                *(extension for extension in settings.extensions if extension not in declared),
            ),
        )
        card = msgspec.structs.replace(
            self._card,
            capabilities=capabilities,
            supported_interfaces=interfaces(
                url, names, versions=settings.versions, grpc_url=grpc_url
            ),
        )
        if settings.card_modifier is None:
            return card
        return modified_card(card, settings.card_modifier)

    @explains_unknown_options()
    def app(self, *, url: str, bindings: Sequence[str] = HTTP_BINDINGS) -> ProtocolErrors:
        """Return an ASGI application: card at its well-known path, JSON-RPC at ``/``, REST below.

        Serve it, or mount it at the path of ``url``. The end of its ASGI lifespan closes it; a
        mounted application has no lifespan, so call `close`.

        Args:
            url: The address at which clients reach the application.
            bindings: The bindings to serve, the preferred one first: ``JSONRPC`` and ``HTTP+JSON``
                by default; not ``GRPC``.

        Raises:
            ValueError: The address is not an http(s) URL, or a binding is unknown or ``"GRPC"``.
            TypeError: An argument has the wrong type.
        """
        if "GRPC" in _check_bindings(bindings):
            raise ValueError("gRPC is not an ASGI application; use serving()")
        from holdfast._server.host_check import host_rules

        card = self.agent_card(url=url, bindings=bindings)
        rules = host_rules(
            url,
            listens_on=None,
            allowed_hosts=self._settings.allowed_hosts,
            allowed_origins=self._settings.allowed_origins,
        )
        return self._service(card).app(card, bindings, rules)

    def _service(self, card: AgentCard) -> Service:
        """Create what answers for the agent; `close` closes it."""
        from holdfast._server.service import Service
        from holdfast._server.turn_registry import SdkTurnRegistry, TurnRegistry

        executor, name = self._executor, self._card.name
        turns: TurnRegistry | SdkTurnRegistry
        if isinstance(executor, Executor):
            turns = TurnRegistry(
                executor, agent=name, timeout=self._settings.timeout, env=self._env
            )
        else:
            turns = SdkTurnRegistry(executor, agent=name, env=self._env)
        service = Service(turns, card, self._settings)
        self._services.add(service)
        return service

    @explains_unknown_options()
    def serving(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        bindings: Sequence[str] = HTTP_BINDINGS,
        url: str | None = None,
        grpc_port: int = 0,
        grace: float = 10.0,
        cert_file: str | None = None,
        key_file: str | None = None,
        grpc_interceptors: Sequence[Any] = (),
    ) -> Serving:
        """Serve the agent on sockets for the duration of an ``async with`` block.

        Serve on a free port::

            async with A2AServer(answer).serving() as running:
                print(running.url)

        At the end of the block no new turn starts. Turns in flight get ``grace`` seconds to
        finish; then they are stopped, and their tasks fail with the reason. If the block ends with
        an exception, there is no grace.

        Args:
            host: The address to listen on, 127.0.0.1 by default; if that is every address of the
                machine, ``url`` is required.
            port: The port; 0 for a free one.
            bindings: The bindings to serve, the preferred one first: ``JSONRPC`` and ``HTTP+JSON``
                by default; gRPC has its own port.
            url: The address at which clients reach the agent, if it differs from the address to
                listen on.
            grpc_port: The port for gRPC; 0 for a free one.
            grace: Seconds that turns in flight get to finish at the end of the block, 10 by
                default.
            cert_file: The TLS certificate with its chain, in PEM.
            key_file: The private key of the certificate, in PEM.
            grpc_interceptors: Interceptors of grpc.aio, called after ``authenticate``; they cannot
                change the caller's name.

        Raises:
            ImportError: The extra of a binding is not installed.
            ValueError: An argument is out of range, or does not go with another one.
            TypeError: An argument has the wrong type.
        """
        from holdfast._server.running import Serving

        return Serving(
            self.agent_card,
            self._service,
            self._settings,
            host,
            port,
            bindings=_check_bindings(bindings),
            url=url,
            grpc_port=grpc_port,
            grace=grace,
            cert_file=cert_file,
            key_file=key_file,
            grpc_interceptors=grpc_interceptors,
        )

    @explains_unknown_options()
    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        bindings: Sequence[str] = HTTP_BINDINGS,
        url: str | None = None,
        grpc_port: int = 0,
        grace: float = 10.0,
        cert_file: str | None = None,
        key_file: str | None = None,
        grpc_interceptors: Sequence[Any] = (),
    ) -> None:
        """Serve the agent until the process receives SIGINT or SIGTERM.

        If the program has not configured logging, the log of ``holdfast.server`` goes to stderr:
        the agent's address, and why turns failed. A second signal ends the grace at once. Signals
        work in the main thread only; in another thread, cancel this call.

        Args:
            host: The address to listen on, 127.0.0.1 by default; if that is every address of the
                machine, ``url`` is required.
            port: The port, 8000 by default; 0 for a free one.
            bindings: The bindings to serve, the preferred one first: ``JSONRPC`` and ``HTTP+JSON``
                by default; gRPC has its own port.
            url: The address at which clients reach the agent, if it differs from the address to
                listen on.
            grpc_port: The port for gRPC; 0 for a free one.
            grace: Seconds that turns in flight get to finish after the first signal, 10 by
                default.
            cert_file: The TLS certificate with its chain, in PEM.
            key_file: The private key of the certificate, in PEM.
            grpc_interceptors: Interceptors of grpc.aio, called after ``authenticate``; they cannot
                change the caller's name.

        Raises:
            OSError: The port is taken.
            ImportError: The extra of a binding is not installed.
            ValueError: An argument is out of range, or does not go with another one.
            TypeError: An argument has the wrong type.
        """
        from holdfast._server.running import serve

        await serve(
            self.serving(
                host,
                port,
                bindings=bindings,
                url=url,
                grpc_port=grpc_port,
                grace=grace,
                cert_file=cert_file,
                key_file=key_file,
                grpc_interceptors=grpc_interceptors,
            )
        )

    @explains_unknown_options()
    async def close(self, grace: float = 0.0) -> None:
        """Stop the turns in flight in every application of this server, and free all resources.

        Args:
            grace: Seconds that turns in flight get to finish.
        """
        await asyncio.gather(*(service.close(grace) for service in list(self._services)))


def _optional_items(name: str, names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else check_items(name, names)


def _check_engine(engine: HttpEngine | None) -> HttpEngine | None:
    if engine is not None:
        check_methods("push_engine", engine, "request", "stream", "close")
    return engine


def _to_executor(name: str, agent: object) -> Executor | AgentExecutor:
    """Return an executor of Holdfast or of the SDK as it is, and one for a function.

    Args:
        name: The argument in messages.
        agent: The caller's value.
    """
    from a2a.server.agent_execution import AgentExecutor

    if isinstance(agent, Executor | AgentExecutor):
        return agent
    if isinstance(agent, type):
        raise TypeError(
            f"{name} must be an instance, not the class {agent.__name__}; pass {agent.__name__}(…)"
        )
    if callable(agent):
        return FunctionExecutor(agent)
    hint = "; if the card is generated from it, pass executor= as well" if name == "agent" else ""
    raise TypeError(
        f"{name} must be a function, an Executor or an AgentExecutor of the SDK, not "
        f"{type(agent).__name__}{hint}"
    )


def _to_extension(extension: object) -> AgentExtension:
    if isinstance(extension, str):
        return AgentExtension(uri=extension)
    check_kind("an extension", extension, AgentExtension, or_else=" or a URI")
    return extension  # type: ignore[return-value]


def _check_bindings(bindings: Sequence[str]) -> tuple[str, ...]:
    names = check_items("bindings", bindings)
    for binding in names:
        check_one_of("bindings", binding, BINDINGS)
    if not names or len(set(names)) != len(names):
        raise ValueError("bindings must name each binding once, and at least one")
    return names
