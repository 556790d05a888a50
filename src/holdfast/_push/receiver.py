"""The receiver of push notifications: an ASGI application, and the tasks that it expects.

Rules: a configuration is for one task, and has its own secrets. The number and size of stored
tasks are bounded. Only digests of secrets are stored, and secrets are never shown.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from holdfast._aio.closing import ClosingContext, close_in_turn
from holdfast._aio.env import SystemEnv
from holdfast._aio.guarded_telemetry import guarded
from holdfast._arguments import (
    check_count,
    check_hook,
    check_kind,
    check_methods,
    check_not_empty,
    check_seconds,
    check_url,
    explains_unknown_options,
)
from holdfast._asgi import (
    ASGIReceive,
    ASGIScope,
    ASGISend,
    ClientGone,
    ShortReply,
    lifespan,
    refuse_websocket,
    reply,
)
from holdfast._journal.resolve import open_journal
from holdfast._model.hosts import is_loopback
from holdfast._model.installed_telemetry import installed_telemetry
from holdfast._net.resolve_engine import resolve_engine
from holdfast._pipeline.cards.keys import FetchedKeys, FixedKeys
from holdfast._push.refusals import Refused, reply_to
from holdfast._push.replay_cache import ReplayCache
from holdfast._push.signatures import JwtPolicy, SignatureCheck
from holdfast._push.tracing import DeliverySpan
from holdfast._push.validation import DeliveryValidator
from holdfast._push.waits import TaskWait
from holdfast._push.watches import Watch, Watches
from holdfast._signatures.jws import check_library
from holdfast._wire.http import presentable
from holdfast._wire.limits import Limits
from holdfast.errors import A2AConnectionError
from holdfast.types import AuthenticationInfo, Message, Task, TaskPushNotificationConfig

if TYPE_CHECKING:
    import aiohttp

    from holdfast._aio.env import Env
    from holdfast._client.client import Client
    from holdfast._journal.protocol import TokenJournal
    from holdfast._model.server_spans import ServerTelemetry
    from holdfast._net.engine import HttpEngine

__all__ = ["PushReceiver"]

logger = logging.getLogger("holdfast.push")

_CLOSE_TIMEOUT_S = 10.0
"""Seconds in which each object of a receiver has to close."""


class PushReceiver(ClosingContext):
    """Receiver of push notifications (A2A 4.3.3), with which callers wait for their tasks.

    An instance is an ASGI 3 application: serve it at ``url``, or mount it there in your own (in
    Starlette or FastAPI ``url`` then ends with a slash), on the event loop on which you wait for
    tasks. The path of a request is ignored. Status codes: 200 for an accepted delivery, also a
    repeated one; 401 without valid authentication; 404 for an unexpected task; 413 if it is too
    large; 400, 405, 408 and 415 if it is not a delivery; and 503 if the agent may retry, because
    the receiver is full or does not expect the task yet.

    Each configuration has its own token, which the agent sends as ``X-A2A-Notification-Token``,
    and credentials for ``Authorization``; either authenticates a delivery. With ``keys`` it must
    be signed as well. The size of its storage is bounded; limit the rate of requests (A2A 13.2) in
    the server in front.

    Args:
        url: URL at which agents reach the receiver. Use https (A2A 13.2): otherwise anyone on the
            network path can read results, and the tokens to forge them. http is accepted for
            networks without TLS, with a warning in the log unless the host is this machine.
        keys: Public keys of agents that sign deliveries: a JWK set (RFC 7517) or its URL. Needs
            the extra ``push``. A signed delivery needs no token.
        jwt: Policy for signed tokens. By default their audience must be ``url``.
        journal: Records the use of signed tokens, so that none is accepted twice after a restart,
            or by another receiver with the same journal: a SQLite file, which may be the journal
            of calls too, or a `SqliteJournal`, which is not closed. None keeps uses in memory
            only. A delivery is deferred (HTTP 503) if its use cannot be recorded within 10 s; a
            delivery that was recorded before a crash is answered by 200, and not accepted again.
        limits: Bounds of one delivery (`Limits.event`) and of a task.
        max_tasks: Maximum number of stored tasks, 10,000 by default. Beyond it the tasks that
            ended first are dropped, then configurations without a task.
        max_bytes: Maximum size of all deliveries and tasks in bytes, 256 MiB by default. Beyond it
            the same are dropped, and then deliveries are deferred (HTTP 503). A single larger one
            is refused (HTTP 413).
        engine: Fetches keys from their URL: an `HttpEngine` or an ``aiohttp.ClientSession``, which
            is not closed; an own `AiohttpEngine` by default.
        telemetry: Makes a span for each request, such as
            ``holdfast.integrations.opentelemetry.Telemetry``. By default that of
            ``HoldfastInstrumentor``, or none.
        env: Wall time and ids, for tests.

    Raises:
        ValueError: A URL, number or key set is invalid, or an argument would have no effect.
        TypeError: An argument has another type.
        ImportError: The extra is not installed.

    Example:
        Let an agent report the end of a task::

            from holdfast.push import PushReceiver

            receiver = PushReceiver("https://me.example.com/push")  # an ASGI application
            config = receiver.config()
            async with holdfast.connect("http://localhost:9999") as agent:
                task = await agent.send_message(
                    "Write the report.", push_notification_config=config, return_immediately=True
                )
                receiver.expect(task, config)
                task = await receiver.wait(task.id, client=agent, timeout=600)
                print(task.text)
    """

    @explains_unknown_options()
    def __init__(
        self,
        url: str,
        *,
        keys: str | Mapping[str, Any] | None = None,
        jwt: JwtPolicy | None = None,
        journal: str | os.PathLike[str] | TokenJournal | None = None,
        limits: Limits | None = None,
        max_tasks: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
        engine: HttpEngine | aiohttp.ClientSession | None = None,
        telemetry: ServerTelemetry | None = None,
        env: Env | None = None,
    ) -> None:
        self.url = _address(url, "push address", no_user="pass config() an authentication instead")
        self._limits = Limits() if limits is None else limits
        check_kind("limits", self._limits, Limits)
        self._env: Env = SystemEnv() if env is None else env
        check_methods("env", self._env, "wall", "random", "new_id")
        if telemetry is not None:
            check_methods("telemetry", telemetry, "start_span")
        self._telemetry = guarded(installed_telemetry() if telemetry is None else telemetry)
        check_count("max_tasks", max_tasks, least=1)
        check_count("max_bytes", max_bytes, least=1)
        self._owned: HttpEngine | None = None
        self._signatures = self._signature_check(keys, jwt, engine)
        self._watches = Watches(self._limits, most=max_tasks, most_bytes=max_bytes)
        if journal is not None and keys is None:
            text = "journal needs keys=, because it records used signed tokens"
            raise ValueError(text)
        self._journal = None if journal is None else _journal(journal)
        self._owns_journal = self._journal is not journal
        most = JwtPolicy().max_tokens if jwt is None else jwt.max_tokens
        used = ReplayCache(most, self._env, self._journal)
        self._validator = DeliveryValidator(self._watches, self._signatures, used, self._limits)

    def __repr__(self) -> str:
        return f"PushReceiver({presentable(self.url)!r}, {len(self._watches)} tasks)"

    async def close(self) -> None:
        """End every wait with an `A2AConnectionError`, and answer 503 from now on.

        `get_task` still returns tasks. Everything is closed even if an error is raised meanwhile,
        or this call is cancelled.

        Raises:
            TimeoutError: The journal, or the connections, took longer than 10 s to close.
        """
        self._watches.close()
        journal = self._journal if self._owns_journal else None
        owned = (self._signatures, journal, self._owned)
        closables = [each for each in owned if each is not None]
        await close_in_turn(closables, seconds=_CLOSE_TIMEOUT_S)

    # ── Expected tasks ───────────────────────────────────────────────────────────────────────

    @explains_unknown_options()
    def config(
        self, task_id: str | None = None, *, authentication: AuthenticationInfo | None = None
    ) -> TaskPushNotificationConfig:
        """Make a configuration for one task, to send with a message or to create for a task.

        Deliveries before `expect` are stored. Only those that do not identify their configuration
        (a signature without a token, or credentials of several configurations) are deferred by 503
        while one of these has no task.

        Args:
            task_id: The task, if it exists already.
            authentication: Credentials that the agent sends as ``Authorization``, such as
                credentials for a gateway in front of the receiver; random by default. If several
                configurations share the same credentials, an agent that sends nothing else may use
                any of them. With ``keys``, it is the signed token.

        Raises:
            QueueFullError: ``max_tasks`` tasks are expected already.
            A2AConnectionError: The receiver is closed.
            ValueError: The credentials are missing.
        """
        self._check_open("it creates no new config", executed=False)
        if authentication is not None:
            check_kind("authentication", authentication, AuthenticationInfo)
        if authentication is not None and self._signatures is not None:
            text = (
                "authentication must be omitted if keys are given: Authorization then holds the "
                "signed token"
            )
            raise ValueError(text)
        if authentication is None:
            credentials = None if self._signatures else secrets.token_urlsafe(32)
            authentication = AuthenticationInfo(scheme="Bearer", credentials=credentials)
        elif not (authentication.scheme and authentication.credentials):
            text = "authentication needs a scheme and credentials"
            raise ValueError(text)
        config = TaskPushNotificationConfig(
            id=self._env.new_id(),
            task_id=task_id,
            url=self.url,
            token=secrets.token_urlsafe(32),  # not from Env, which may be deterministic
            authentication=authentication,
        )
        existing = (
            None if task_id is None else self._watches.of_task(check_not_empty("task_id", task_id))
        )
        watch = existing or self._watches.add()
        self._watches.add_config(watch, config)
        if task_id is not None:
            self._watches.claim(watch, task_id)
        return config

    @explains_unknown_options()
    def expect(
        self, task: Task | Message | str, config: TaskPushNotificationConfig | None = None
    ) -> Task | None:
        """Assign a task to its configuration; from now on you can wait for it.

        Call it again with the agent's response to another message of the task, so that an answered
        request for input does not count as open.

        Args:
            task: The task from the agent's response, or its id.
            config: The result of `config`; optional for a task that is expected already.

        Returns:
            The task with its deliveries so far; None before the first one.

        Raises:
            ValueError: The configuration is from another receiver, or for another task; the task
                has another one; or it is omitted for a task that is not expected.
            TypeError: The agent answered with a message, so there is no task; or an argument has
                another type.
            LimitExceededError: The task is too large.
            A2AConnectionError: The receiver is closed.
        """
        if isinstance(task, Message):
            text = "the agent answered with a message: there is no task to expect"
            raise TypeError(text)
        if isinstance(cast("object", task), TaskPushNotificationConfig):
            text = "the arguments are in the wrong order: expect(task, config)"
            raise TypeError(text)
        task_id = check_not_empty("task", task.id if isinstance(task, Task) else task)
        executed = True if isinstance(task, Task) else None
        self._check_open(f"task {task_id} cannot be expected", executed=executed)
        watch = current = self._watches.of_task(task_id)
        if config is not None:
            check_kind("config", config, TaskPushNotificationConfig)
            watch = next(iter(self._watches.by_secret(config.token or "")), None)
        if watch is None:
            fault = "missing" if config is None else "of another receiver, or forgotten"
            text = f"task {task_id} cannot be expected: the config that was sent is {fault}"
            raise ValueError(text)
        if current not in {None, watch} or (watch.is_claimed and watch.task_id != task_id):
            text = (
                f"task {task_id} already has another config; for an additional one, call "
                "config(task_id)"
            )
            raise ValueError(text)
        self._watches.claim(watch, task_id)
        if isinstance(task, Task):
            self._watches.add_polled(watch, task)
        return watch.deliveries.task

    def get_task(self, task_id: str) -> Task | None:
        """Return an expected task in its latest state; None before the first delivery.

        Args:
            task_id: Id of the task.
        """
        return self._expected(task_id).deliveries.task

    def forget(self, task_id: str) -> None:
        """Accept no more deliveries of a task; do nothing if it is not expected.

        Args:
            task_id: Id of the task.
        """
        watch = self._watches.of_task(task_id)
        if watch is not None:
            self._watches.forget(watch)

    @explains_unknown_options()
    async def wait(
        self,
        task_id: str,
        *,
        client: Client | None = None,
        until: Callable[[Task], bool] | None = None,
        timeout: float = 900.0,
        poll_interval: float = 60.0,
    ) -> Task:
        """Wait until an expected task is terminal or needs input, and return it.

        Deliveries may get lost, also single chunks of an artifact. With a client, the task is
        fetched from the agent at the end, and polled meanwhile; without one, it consists of the
        deliveries. The wait continues while the task waits for an authorization.

        Args:
            task_id: Id of the task.
            client: Client of the agent, to fetch the task; None to use the deliveries alone.
            until: Condition on the task that ends the wait, instead of the rule above. A terminal
                task always ends it.
            timeout: Largest wait in seconds; more than 0, 900 by default.
            poll_interval: Seconds without a delivery after which the task is polled, 60 by
                default; earlier if half of the time that is left is shorter.

        Raises:
            DeadlineExceededError: The timeout has expired; the error's ``task`` is the latest
                state. Its message counts the deliveries that the receiver refused meanwhile.
            TaskAuthRequiredError: The timeout has expired while the task waits for an
                authorization.
            LimitExceededError: The task has become too large.
            A2AConnectionError: The receiver was closed, or the task forgotten.
            A2AError: The agent refused to return the task.
            ValueError: The task is not expected.
        """
        check_seconds("timeout", timeout)
        check_seconds("poll_interval", poll_interval)
        if client is not None:
            check_methods("client", client, "get_task", "wait")
        if until is not None:
            check_hook("until", until)
        watch = self._expected(task_id)
        executed = None if watch.deliveries.task is None else True
        self._check_open(f"task {task_id} cannot be waited for", executed=executed)
        wait = TaskWait(
            self._watches, watch, until=until, timeout=timeout, poll_interval=poll_interval
        )
        return await wait.task(client)

    # ── Requests ─────────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Handle a request, or the start and stop of the server (ASGI 3).

        Args:
            scope: The scope of the request.
            receive: The server's function to receive events.
            send: The server's function to send events.

        Raises:
            ValueError: The scope is of another kind than HTTP, WebSocket or lifespan.
        """
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await lifespan(receive, send)
            case "websocket":
                await refuse_websocket(receive, send)
            case other:
                text = f"a push receiver does not serve {other!r}"
                raise ValueError(text)

    async def _serve(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        traced = DeliverySpan(self._telemetry, self.url, scope)
        try:
            with traced.attached():
                event = await self._validator.accept(scope, receive)
        except Refused as refusal:
            self._watches.note_refusal(refusal)
            answer = reply_to(refusal)
            logger.debug("a delivery was answered by %d: %s", answer.status, answer.text)
            traced.end(answer.status)
        except ClientGone:
            traced.end()
            return
        except BaseException as error:
            traced.end(error=error)
            raise
        else:
            answer = ShortReply(200, "taken")
            traced.end(answer.status, event)
        await reply(send, answer)

    # ── Helpers ──────────────────────────────────────────────────────────────────────────────

    def _signature_check(
        self,
        keys: str | Mapping[str, Any] | None,
        jwt: JwtPolicy | None,
        engine: HttpEngine | aiohttp.ClientSession | None,
    ) -> SignatureCheck | None:
        if keys is None:
            if jwt is not None:
                text = "jwt needs keys=, because it selects the accepted signatures"
                raise ValueError(text)
            _check_no_engine(engine)
            return None
        policy = JwtPolicy() if jwt is None else jwt
        check_kind("jwt", policy, JwtPolicy)
        check_library("push", "a receiver of signed deliveries")
        if isinstance(keys, str):
            url = _address(keys, "address of the keys", no_user="keys are public, and need none")
            used, self._owned = resolve_engine(engine)
            return SignatureCheck(policy, self.url, FetchedKeys(url, used, self._env), self._env)
        check_kind("keys", keys, Mapping)
        _check_no_engine(engine)
        return SignatureCheck(policy, self.url, FixedKeys(keys), self._env)

    def _expected(self, task_id: str) -> Watch:
        watch = self._watches.of_task(check_not_empty("task_id", task_id))
        if watch is None:
            text = f"task {task_id} is not expected, or forgotten: call expect(task, config) first"
            raise ValueError(text)
        return watch

    def _check_open(self, effect: str, *, executed: bool | None) -> None:
        if self._watches.is_closed:
            text = f"the receiver is closed: {effect}"
            raise A2AConnectionError(text, failure="closed", executed=executed)


def _address(url: str, subject: str, *, no_user: str) -> str:
    """Check a URL, and warn if it is not secure."""
    check_url(url, subject, no_user=no_user)
    shown, parts = presentable(url), urlsplit(url)
    if "#" in url:
        text = f"the {subject} {shown} has a fragment, which is never sent"
        raise ValueError(text)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        logger.warning(
            "the %s %s is not https: anyone on the network path can read and forge its requests",
            subject,
            shown,
        )
    return url


def _journal(journal: str | os.PathLike[str] | TokenJournal) -> TokenJournal:
    """Return the journal for used tokens."""
    if isinstance(journal, str | os.PathLike):
        return open_journal("journal", journal)
    check_methods("journal", journal, "use_token", "close")
    return journal


def _check_no_engine(engine: object) -> None:
    if engine is not None:
        text = "engine needs keys= with an address to fetch them from"
        raise ValueError(text)
