"""The receiver of push notifications: an ASGI application, and what is expected to come to it.

Rules: a configuration is for one task, and has secrets of its own; what is kept is bounded in
number and bytes; nothing secret is kept but its digest, and nothing secret is said.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from holdfast._aio.closing import ClosingContext
from holdfast._aio.env import SystemEnv
from holdfast._arguments import check_able, check_hook, check_seconds, check_url, not_empty
from holdfast._client.resolve import journal_file, resolve_engine
from holdfast._model.hosts import is_loopback
from holdfast._model.settings import check_count, check_kind
from holdfast._net.asgi import (
    ASGIReceive,
    ASGIScope,
    ASGISend,
    ClientGone,
    lifespan,
    refuse_websocket,
    reply,
)
from holdfast._pipeline.cards.keys import FetchedKeys, FixedKeys
from holdfast._push.refusals import Refused, answer_to
from holdfast._push.replay_cache import ReplayCache
from holdfast._push.signatures import JwtPolicy, SignatureCheck
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
    from holdfast._net.engine import HttpEngine

__all__ = ["PushReceiver"]

logger = logging.getLogger("holdfast.push")


class PushReceiver(ClosingContext):
    """Takes what agents push (A2A 4.3.3), and tells those who wait how their tasks go.

    An instance is an ASGI 3 application: serve it at `url`, or mount it there in one of your own
    (below Starlette or FastAPI `url` ends with a slash then), on the event loop on which its tasks
    are waited for. The path of a request does not matter. What is taken is answered by 200, also
    when it came before; 401 is for who proves nothing, 404 for other tasks than the expected one,
    413 for what is too large, 400, 405, 408 and 415 for what is no delivery, and 503 for what may
    be delivered again: there is too much already, or nobody can say yet whose task it is.

    Each configuration has a token of its own, which the agent sends along as
    ``X-A2A-Notification-Token``, and credentials for ``Authorization``; a delivery with either is
    taken for the agent's. Given keys, it has to be signed as well. What is kept is bounded here;
    how often anybody may deliver (A2A 13.2) is for the server in front to bound.

    Args:
        url: Where agents reach it. It should be https (A2A 13.2): whoever is in between reads the
            results otherwise, and the tokens with which to forge them. Any http address is taken,
            since some networks do without TLS; one beyond this machine is warned of in the log.
        keys: For agents that sign what they push: their public keys as a JWK set (RFC 7517), or
            its address. Needs the extra ``push``. A delivery without token may be signed alone.
        jwt: Which signed tokens count; see `JwtPolicy`. They must be for `url`, unless it says
            otherwise.
        journal: Where the use of signed tokens is recorded, so that none counts twice after a
            restart, or at another receiver with the same journal: a file of SQLite, which may be
            that of calls, or a `SqliteJournal`, which is used and not closed. In memory if left
            out. A delivery is put off (HTTP 503) where that cannot be recorded within 10 s; one
            that was recorded before a crash is answered by 200, and not taken again.
        limits: How large one delivery (`Limits.event`) and a task may become.
        max_tasks: How many tasks are known at once. Beyond it those that have been over for the
            longest are forgotten, then configurations that never got a task.
        max_bytes: How many bytes all deliveries and tasks may have together. Beyond it the same
            are forgotten, and then deliveries are put off (HTTP 503). A single one that has more
            is refused (HTTP 413).
        engine: What fetches keys from their address: an `HttpEngine` or an
            `aiohttp.ClientSession`, which are used and not closed; an `AiohttpEngine` of its own
            if left out.
        env: Wall time and ids; for tests.

    Raises:
        ValueError: An address, a number or a key set that cannot be right; or an argument that
            would change nothing.
        TypeError: An argument of another type.
        ImportError: The extra is not installed.
    """

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
        env: Env | None = None,
    ) -> None:
        self.url = _address(url, "push address", no_user="pass config() an authentication instead")
        self._limits = Limits() if limits is None else limits
        check_kind("limits", self._limits, Limits)
        self._env: Env = SystemEnv() if env is None else env
        check_able("env", self._env, "wall", "random", "new_id")
        check_count("max_tasks", max_tasks, least=1)
        check_count("max_bytes", max_bytes, least=1)
        self._owned: HttpEngine | None = None
        self._signatures = self._checks(keys, jwt, engine)
        self._watches = Watches(self._limits, most=max_tasks, most_bytes=max_bytes)
        if journal is not None and keys is None:
            text = "journal records which signed tokens were used, but there are no keys"
            raise ValueError(text)
        self._journal = None if journal is None else _journal(journal)
        self._owns_journal = self._journal is not journal
        most = JwtPolicy().max_tokens if jwt is None else jwt.max_tokens
        used = ReplayCache(most, self._env, self._journal)
        self._intake = DeliveryValidator(self._watches, self._signatures, used, self._limits)

    def __repr__(self) -> str:
        return f"PushReceiver({presentable(self.url)!r}, {len(self._watches)} tasks)"

    async def close(self) -> None:
        """Ends every wait with an `A2AConnectionError`, and answers 503 from now on.

        What was delivered can still be read by `get_task`.
        """
        self._watches.close()
        if self._signatures is not None:
            await self._signatures.close()
        if self._journal is not None and self._owns_journal:
            await self._journal.close()
        if self._owned is not None:
            await self._owned.close()

    # ── What is expected ─────────────────────────────────────────────────────────────────────

    def config(
        self, task_id: str | None = None, *, authentication: AuthenticationInfo | None = None
    ) -> TaskPushNotificationConfig:
        """A configuration for one task, to send along with a message or to create for a task.

        What is delivered before `expect` is kept until then. Only what does not tell of which
        configuration it is, a signature without a token or credentials that several have, is put
        off by 503 as long as one of them waits for its task.

        Args:
            task_id: The task, if there is one already.
            authentication: What the agent sends as ``Authorization``, such as credentials that a
                gateway in front of the receiver asks for; made up if left out. Of several
                configurations with the same ones, an agent that sends nothing else may use each.
                Given keys, it is the signed token.

        Raises:
            QueueFullError: Too many tasks are expected already.
            A2AConnectionError: The receiver is closed.
            ValueError: The credentials are missing.
        """
        self._check_open("it makes no config any more", executed=False)
        if authentication is not None:
            check_kind("authentication", authentication, AuthenticationInfo)
        if authentication is not None and self._signatures is not None:
            text = (
                "given keys, Authorization has the signed token: there are no credentials for it"
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
            token=secrets.token_urlsafe(32),  # not of Env: its dice may be loaded
            authentication=authentication,
        )
        known = None if task_id is None else self._watches.of_task(not_empty("task_id", task_id))
        watch = known or self._watches.add()
        self._watches.admit(watch, config)
        if task_id is not None:
            self._watches.claim(watch, task_id)
        return config

    def expect(
        self, task: Task | Message | str, config: TaskPushNotificationConfig | None = None
    ) -> Task | None:
        """Names the task that a configuration was sent for; from now on it can be waited for.

        Call it again with what the agent answers to another message on the task, so that a
        question that was answered is not taken for an open one.

        Args:
            task: The task as the agent answered, or its id.
            config: What `config` gave; may be left out for a task that is expected already.

        Returns:
            The task as it stands, with what was delivered so far.

        Raises:
            ValueError: The configuration is not of this receiver, or of another task; the task
                has another one; or it is left out for a task that is not expected.
            TypeError: The agent answered with a message, so that there is no task; or an argument
                is of another type.
            LimitExceededError: The task is too large.
            A2AConnectionError: The receiver is closed.
        """
        if isinstance(task, Message):
            text = "the agent answered with a message: there is no task to expect"
            raise TypeError(text)
        if isinstance(cast("object", task), TaskPushNotificationConfig):
            text = "the task comes first, and then the config: expect(task, config)"
            raise TypeError(text)
        task_id = not_empty("task", task.id if isinstance(task, Task) else task)
        executed = True if isinstance(task, Task) else None
        self._check_open(f"task {task_id} cannot be expected", executed=executed)
        watch = known = self._watches.of_task(task_id)
        if config is not None:
            check_kind("config", config, TaskPushNotificationConfig)
            watch = next(iter(self._watches.proven_by(config.token or "")), None)
        if watch is None:
            which = "missing" if config is None else "of another receiver, or forgotten"
            text = f"task {task_id} cannot be expected: the config that was sent is {which}"
            raise ValueError(text)
        if known not in {None, watch} or (watch.is_claimed and watch.task_id != task_id):
            text = (
                f"task {task_id} has another config than this; for a further one of the same task "
                "call config(task_id)"
            )
            raise ValueError(text)
        self._watches.claim(watch, task_id)
        if isinstance(task, Task):
            self._watches.learn(watch, task)
        return watch.deliveries.task

    def get_task(self, task_id: str) -> Task | None:
        """An expected task as it stands; None before the first news of it."""
        return self._expected(task_id).deliveries.task

    def forget(self, task_id: str) -> None:
        """Takes no more news of a task; one that is not expected is forgotten already."""
        watch = self._watches.of_task(task_id)
        if watch is not None:
            self._watches.forget(watch)

    async def wait(
        self,
        task_id: str,
        *,
        client: Client | None = None,
        until: Callable[[Task], bool] | None = None,
        timeout: float = 900.0,
        poll_interval: float = 60.0,
    ) -> Task:
        """Waits until an expected task is over or needs input, and gives it as it is then.

        Deliveries may get lost, and nothing tells when a piece of an artifact has. With a client,
        the agent is asked for the task at the end, and now and then meanwhile; without one, the
        task is what was delivered. A task that waits for an authorization is waited for.

        Args:
            task_id: The task.
            client: Of the agent, to ask for the task.
            until: Says of the task whether the wait is over, in place of the rule above. A task
                that is over ends it in any case.
            timeout: Seconds.
            poll_interval: Seconds without news after which the agent is asked.

        Raises:
            DeadlineExceededError: The time is over; `task` is the task as last seen.
            TaskAuthRequiredError: The time is over while the task waits for an authorization.
            LimitExceededError: The task has become too large.
            A2AConnectionError: The receiver is closed, or the task was forgotten.
            A2AError: The agent was asked, and refused.
            ValueError: The task is not expected.
        """
        check_seconds("timeout", timeout)
        check_seconds("poll_interval", poll_interval)
        if client is not None:
            check_able("client", client, "get_task", "wait")
        if until is not None:
            check_hook("until", until)
        watch = self._expected(task_id)
        executed = None if watch.deliveries.task is None else True
        self._check_open(f"task {task_id} cannot be waited for", executed=executed)
        wait = TaskWait(
            self._watches, watch, until=until, timeout=timeout, poll_interval=poll_interval
        )
        return await wait.task(client)

    # ── What comes ───────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Answers one request, or a server that starts and stops (ASGI 3)."""
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
        try:
            answer = await self._intake.answer(scope, receive)
        except Refused as refused:
            answer = answer_to(refused)
            logger.debug("a delivery was answered by %d: %s", answer.status, answer.text)
        except ClientGone:
            return
        await reply(send, answer)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _checks(
        self,
        keys: str | Mapping[str, Any] | None,
        jwt: JwtPolicy | None,
        engine: HttpEngine | aiohttp.ClientSession | None,
    ) -> SignatureCheck | None:
        if keys is None:
            if jwt is not None:
                text = "jwt says which signatures count, but there are no keys"
                raise ValueError(text)
            _check_needless(engine)
            return None
        policy = JwtPolicy() if jwt is None else jwt
        check_kind("jwt", policy, JwtPolicy)
        check_library("push", "a receiver of signed deliveries")
        if isinstance(keys, str):
            url = _address(keys, "address of the keys", no_user="keys are public, and need none")
            used, self._owned = resolve_engine(engine)
            return SignatureCheck(policy, self.url, FetchedKeys(url, used, self._env), self._env)
        check_kind("keys", keys, Mapping)
        _check_needless(engine)
        return SignatureCheck(policy, self.url, FixedKeys(keys), self._env)

    def _expected(self, task_id: str) -> Watch:
        watch = self._watches.of_task(not_empty("task_id", task_id))
        if watch is None:
            text = f"task {task_id} is not expected, or forgotten: call expect(task, config) first"
            raise ValueError(text)
        return watch

    def _check_open(self, what: str, *, executed: bool | None) -> None:
        if self._watches.is_closed:
            text = f"the receiver is closed: {what}"
            raise A2AConnectionError(text, failure="closed", executed=executed)


def _address(url: str, what: str, *, no_user: str) -> str:
    """Checks an address, and warns of one that others can listen to."""
    check_url(url, what, no_user=no_user)
    shown, parts = presentable(url), urlsplit(url)
    if "#" in url:
        text = f"the {what} {shown} has a fragment, which is never sent"
        raise ValueError(text)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        logger.warning("the %s %s is not https: it can be listened to, and forged", what, shown)
    return url


def _journal(journal: str | os.PathLike[str] | TokenJournal) -> TokenJournal:
    """The journal to record used tokens in."""
    if isinstance(journal, str | os.PathLike):
        from holdfast._journal.sqlite import SqliteJournal  # sqlite3 is not for everybody

        return SqliteJournal(journal_file("journal", journal))
    check_able("journal", journal, "use_token", "close")
    return journal


def _check_needless(engine: object) -> None:
    if engine is not None:
        text = "engine is for fetching keys from an address, and there is none"
        raise ValueError(text)
