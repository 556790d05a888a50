"""An agent's server: a function or an executor, and everything the protocol wants around it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._aio.env import SystemEnv
from holdfast._arguments import (
    check_able,
    check_kind,
    check_networks,
    check_one_of,
    check_url,
    items,
    not_empty,
)
from holdfast._model.settings import check_count
from holdfast._server.cards import interfaces, metadata_card
from holdfast._server.executors import Executor, FunctionExecutor
from holdfast._server.extra import need
from holdfast._server.settings import ServerSettings
from holdfast._wire.bindings import BINDINGS, HTTP_BINDINGS
from holdfast.types import AgentCapabilities, AgentCard, AgentExtension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.tasks import (
        PushNotificationConfigStore,
        PushNotificationSender,
        TaskStore,
    )

    from holdfast._aio.env import Env
    from holdfast._net.engine import HttpEngine
    from holdfast._server.errors import ProtocolErrors
    from holdfast._server.identity import Authenticate
    from holdfast._server.running import Serving
    from holdfast._server.service import Service
    from holdfast._server.settings import CardModifier, Middleware, PushUrlValidator

__all__ = ["A2AServer"]


class A2AServer:
    """Serves an agent over A2A; needs the extra ``holdfast[server]``.

        async def answer(message):
            return f"You said {message.text}"

        asyncio.run(A2AServer(answer).serve(port=9999))

    A function takes the message, or its text where its first parameter is declared as `str`, and
    perhaps the `AgentTurn`; it may be a coroutine function, a generator of either kind, or a plain
    one, which runs in a thread. It gives text, a part, an artifact, a list of those, a dict, a
    message or nothing; a generator yields text and parts, which become one artifact, artifacts,
    and messages, which tell how it goes. Its task is announced before it is called, so that a
    client that loses the reply can ask for it.

    Args:
        agent: A function; an `Executor`, which leads its tasks itself; or an ``AgentExecutor`` of
            the official SDK, which is taken as it is. With ``executor`` whatever the card is
            made of, such as an agent of another framework.
        card: An `AgentCard`, one of the SDK's, its JSON object, the `Path` of its file, or any
            object with a ``name``, and perhaps ``description`` and ``skills``; None for the name
            and the docstring of the agent. Its interfaces are those that are served.
        executor: What does the work, in place of ``agent``.
        extended_card: What clients get that are authenticated (A2A 3.1.11); who that is, is said
            by the middleware.
        card_modifier: Called with the public card when all is known of it; what it returns is
            served. The place to sign it.
        task_store: The SDK's; None for one in memory, which forgets everything at its end.
        push: Whether clients may have themselves be told of their tasks (A2A 4.3.3), or the
            SDK's store of what they want.
        push_sender: An SDK ``PushNotificationSender`` to use instead of the server's own; the
            server does not check where it connects to.
        push_url_validator: Returns whether a URL is allowed, before its push configuration is
            stored; a coroutine function. Without `push_networks` it may also allow addresses of
            this machine and of private networks.
        push_networks: Networks such as ``10.0.0.0/8`` that pushes may reach besides public
            addresses, checked for each connection (SSRF protection). None allows no network, or
            with a `push_url_validator` what that allows, except link-local and metadata
            addresses. ``()`` keeps pushes to public addresses, whatever the validator allows.
        push_engine: The `HttpEngine` that sends pushes, such as an `AiohttpEngine` with a
            certificate authority of your own; the server does not close it. None for an engine of
            the server's own, without proxies.
        versions: Of the protocol, the preferred one first: ``"1.0"`` and ``"0.3"``.
        streaming: Whether answers can be streamed.
        extensions: That the agent supports: URIs, or with more to say `AgentExtension`.
        authenticate: Function or coroutine function that takes the headers of a request (names in
            lower case) and returns the name of the caller, or None to refuse the request: HTTP
            401, UNAUTHENTICATED over gRPC. It is called for every binding, before the body is
            read, and has 30 s. Tasks belong to that name, which is `Requester.user`; tasks of
            other callers are not found. The public card needs no authentication. Without this
            option all callers share all tasks.
        middleware: Functions that wrap the ASGI application, the first one outermost; they run
            after `authenticate`. If one sets ``scope["user"]`` as Starlette does, tasks belong to
            the user's ``identity``, or else to its ``display_name``. Not for gRPC.
        allowed_hosts: Hosts that the ``Host`` header of a request may name besides the host of the
            agent's address; ``*.example.com`` for all below a domain, ``*`` for all. Others get
            HTTP 421. With None, a server on a loopback address accepts only names of this machine
            (protection against DNS rebinding), and a server elsewhere accepts every host.
        allowed_origins: Origins that the ``Origin`` header of a browser may name, such as
            ``https://app.example.com``, besides those of the accepted hosts; ``*`` for all. Others
            get HTTP 403. With None, no other origin is accepted where hosts are checked, and every
            origin elsewhere.
        max_body: Bytes that the body of a request may have; HTTP 413 beyond.
        max_body_memory: Bytes that the bodies of all requests together may take in memory, the
            first 64 KiB of each not counted; HTTP 503 with ``Retry-After`` beyond. None for four
            times `max_body`. Over gRPC, only `max_body` bounds each message.
        max_parts: Parts that a message may have; an invalid params error beyond.
        max_json_values: Objects, lists, members and items that a request may hold altogether;
            HTTP 413 beyond.
        max_push_configs: Push notification configurations that a task may have; an invalid params
            error beyond. Every event of the task is posted to each of them.
        body_timeout: Seconds in which it has to come; on sockets its head, and then its body.
        keep_alive: Seconds without an event after which a stream says that it is alive.
        timeout: Seconds that a turn may take; None for no limit. Those of an SDK's executor are
            its own affair.
        handler_options: More arguments of the SDK's ``DefaultRequestHandler``.
        env: Where wall time and ids come from; None for the system's.

    Raises:
        ImportError: The extra is not installed.
        TypeError: An argument of another type.
        ValueError: One that cannot be right.
    """

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
        env: Env | None = None,
    ) -> None:
        need("server", "A2AServer")
        check_count("max_body", max_body, least=1)
        self._executor = _executor(agent if executor is None else executor)
        self._card = metadata_card(agent, card)
        extended = None if extended_card is None else metadata_card(agent, extended_card)
        if task_store is None:
            from a2a.server.tasks import InMemoryTaskStore

            task_store = InMemoryTaskStore()
        check_able("task_store", task_store, "save", "get", "delete")
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
            push_engine=_engine(push_engine),
            versions=items("versions", versions),
            streaming=streaming,
            extensions=tuple(
                _extension(extension) for extension in items("extensions", extensions)
            ),
            authenticate=authenticate,
            middleware=items("middleware", middleware),
            allowed_hosts=_named("allowed_hosts", allowed_hosts),
            allowed_origins=_named("allowed_origins", allowed_origins),
            max_body=max_body,
            max_body_memory=4 * max_body if max_body_memory is None else max_body_memory,
            max_parts=max_parts,
            max_json_values=max_json_values,
            max_push_configs=max_push_configs,
            body_timeout=body_timeout,
            keep_alive=keep_alive,
            timeout=timeout,
            handler_options=_options(handler_options),
        )
        self._env: Env = SystemEnv() if env is None else env
        check_able("env", self._env, "wall", "random", "new_id")
        self._services: weakref.WeakSet[Service] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<A2AServer of {self._card.name}>"

    def agent_card(
        self,
        *,
        url: str,
        bindings: Sequence[str] = HTTP_BINDINGS,
        grpc_url: str | None = None,
    ) -> AgentCard:
        """The public card of the agent at an address.

        Args:
            url: Where its application is: JSON-RPC there, the paths of HTTP+JSON below.
            bindings: What is served, the preferred one first: ``"JSONRPC"``, ``"HTTP+JSON"`` and
                ``"GRPC"``.
            grpc_url: ``host:port`` for gRPC; None for those of `url`.

        Raises:
            ValueError: The address or a binding is none.
            TypeError: An argument of another type.
        """
        check_url(url, "url")
        if grpc_url is not None:
            not_empty("grpc_url", grpc_url)
        found = _bindings(bindings)
        settings = self._settings
        own = self._card.capabilities
        capabilities = AgentCapabilities(
            streaming=settings.streaming,
            push_notifications=bool(settings.push),
            extended_agent_card=settings.extended_card is not None,
            extensions=(
                *own.extensions,
                *(e for e in settings.extensions if e not in own.extensions),
            ),
        )
        places = interfaces(url, found, versions=settings.versions, grpc_url=grpc_url)
        card = msgspec.structs.replace(
            self._card, capabilities=capabilities, supported_interfaces=places
        )
        if settings.card_modifier is None:
            return card
        changed: AgentCard = settings.card_modifier(card)
        check_kind("what card_modifier returns", changed, AgentCard)
        return changed

    def app(self, *, url: str, bindings: Sequence[str] = HTTP_BINDINGS) -> ProtocolErrors:
        """An ASGI application: the card at its well-known path, JSON-RPC at ``/``, REST below.

        Serve it, or mount it where `url` says. The end of its ASGI lifespan closes it; a mounted
        application has none, so close the server.

        Args:
            url: Where it can be reached.
            bindings: What is served, the preferred one first.

        Raises:
            ValueError: The address or a binding is none.
            TypeError: An argument of another type.
        """
        if "GRPC" in _bindings(bindings):
            raise ValueError("gRPC is not an ASGI application: see serving()")
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
        """The agent at work."""
        from holdfast._server.sdk_executors import ForeignRuns
        from holdfast._server.service import Service
        from holdfast._server.turn_registry import TurnRegistry

        executor, name = self._executor, self._card.name
        runs: TurnRegistry | ForeignRuns
        if isinstance(executor, Executor):
            runs = TurnRegistry(
                executor, agent=name, timeout=self._settings.timeout, env=self._env
            )
        else:
            runs = ForeignRuns(executor)
        service = Service(runs, card, self._settings)
        self._services.add(service)
        return service

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
        """Serves the agent while a block runs.

            async with A2AServer(answer).serving() as running:
                print(running.url)

        At the end of the block no new turn begins; those under way have their time, and are ended
        then: their tasks fail, and say why. Where the block ends in an exception they have none.

        Args:
            host: Where to listen; `url` is needed where that is every address of the machine.
            port: The port; 0 for any that is free.
            bindings: What is served, the preferred one first; gRPC has a port of its own.
            url: Where callers find it, if that is not where it listens.
            grpc_port: The port for gRPC; 0 for any that is free.
            grace: Seconds that turns under way have at the end.
            cert_file: The certificate for TLS in PEM, with its chain.
            key_file: The key that goes with it.
            grpc_interceptors: Of grpc.aio, behind `authenticate`; they cannot say who calls.

        Raises:
            ImportError: The extra of a binding is not installed.
            ValueError: An argument that cannot be right.
            TypeError: One of another type.
        """
        from holdfast._server.running import Serving

        return Serving(
            self.agent_card,
            self._service,
            self._settings,
            host,
            port,
            bindings=_bindings(bindings),
            url=url,
            grpc_port=grpc_port,
            grace=grace,
            cert_file=cert_file,
            key_file=key_file,
            grpc_interceptors=grpc_interceptors,
        )

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
        """Serves the agent until the process gets SIGINT or SIGTERM; see `serving`.

        Where the program has not set up logging, what ``holdfast.server`` says goes to stderr:
        where the agent is, and why turns failed. A second signal takes away what is left of the
        grace. Outside the main thread there are no
        signals: cancel it.

        Raises:
            OSError: The port is taken.
            ImportError: The extra of a binding is not installed.
            ValueError: An argument that cannot be right.
            TypeError: One of another type.
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

    async def close(self, grace: float = 0.0) -> None:
        """Ends what runs in the applications that this server made, and frees everything.

        Args:
            grace: Seconds that turns under way have to end by themselves.
        """
        await asyncio.gather(*(service.close(grace) for service in list(self._services)))


def _named(name: str, given: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names that may be left out."""
    return None if given is None else items(name, given)


def _options(given: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments of the SDK's handler, which may be left out."""
    if given is not None:
        check_kind("handler_options", given, Mapping)
    return dict(given or {})


def _engine(engine: HttpEngine | None) -> HttpEngine | None:
    """An engine that may be left out."""
    if engine is not None:
        check_able("push_engine", engine, "request", "stream", "close")
    return engine


def _executor(agent: object) -> Executor | AgentExecutor:
    """What does the work: Holdfast's or the SDK's executor."""
    from a2a.server.agent_execution import AgentExecutor

    if isinstance(agent, Executor | AgentExecutor):
        return agent
    if isinstance(agent, type):
        raise TypeError(f"agent must be an instance, not the class {agent.__name__}")
    if callable(agent):
        return FunctionExecutor(agent)
    raise TypeError(
        "agent must be a function, an Executor or an AgentExecutor of the SDK, not "
        f"{type(agent).__name__}; if it is what the card is made of, pass executor= as well"
    )


def _extension(extension: object) -> AgentExtension:
    if isinstance(extension, str):
        return AgentExtension(uri=extension)
    check_kind("an extension", extension, AgentExtension, or_else=" or a URI")
    return extension  # type: ignore[return-value]


def _bindings(bindings: Sequence[str]) -> tuple[str, ...]:
    names = items("bindings", bindings)
    for binding in names:
        check_one_of("bindings", binding, BINDINGS)
    if not names or len(set(names)) != len(names):
        raise ValueError("bindings must name each binding once, and at least one")
    return names
