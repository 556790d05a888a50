"""Push notifications of a served agent (A2A 4.3.3): configurations, allowed addresses, delivery.

Rules: clients choose the address, so it must be public, or allowed by the operator. The IP address
of the connection is checked, not what the name resolved to when the configuration was created. No
redirect is followed, no proxy is used, nothing is sent twice, and only the status of a reply is
read. A failed push does not affect the task. Every event of a task is posted to each of its
configurations, so their number is bounded: one client must not cause any number of requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.tasks import PushNotificationConfigStore, PushNotificationSender
from a2a.utils import errors as sdk
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from holdfast._aio.cancel_scope import wait_until
from holdfast._arguments import check_headers
from holdfast._model.addresses import is_http_address
from holdfast._model.error_values import one_line
from holdfast._wire.network_scope import scope_of
from holdfast.errors import NetworkPolicyError
from holdfast.extend import HttpRequest, NetworkReach, presentable
from holdfast.policies import Timeouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from a2a.types.a2a_pb2 import TaskPushNotificationConfig

    from holdfast._server.settings import PushUrlValidator
    from holdfast._server.tracing import TurnSpans
    from holdfast._wire.network_scope import Network
    from holdfast.extend import HttpEngine

__all__ = ["BoundedPushConfigs", "PushSender", "PushTargets"]

logger = logging.getLogger("holdfast.server")

_PUSH_TIMEOUT_S = 10.0
_RESOLVE_TIMEOUT_S = 5.0
_TIMEOUTS = Timeouts(pool=10.0, connect=5.0, write=10.0, first_byte=10.0, idle=10.0)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_SHOWN_CHARS = 200


class PushTargets:
    """The addresses that a served agent may push to.

    Args:
        networks: Networks that are allowed besides public addresses; None for none.
        validator: Returns whether a URL is allowed; None to allow all. If it is given without
            `networks`, it also decides on addresses of this machine and of private networks.

    Attributes:
        reach: The IP addresses that may be connected to. Link-local and metadata addresses are
            among them only if `networks` contains them.
    """

    def __init__(
        self, networks: tuple[Network, ...] | None, validator: PushUrlValidator | None
    ) -> None:
        trusting = validator is not None and networks is None
        self.reach = NetworkReach(
            inward="loopback" if trusting else "public", allowed=networks or ()
        )
        self._validator = validator

    async def accepts(self, url: str) -> bool:
        """Whether a client may register a URL; the reason of a refusal is logged.

        A name that resolves to another address later is refused when the push is sent.
        """
        reason = await self._refusal(url)
        if reason is not None:
            shown = one_line(presentable(url), _MAX_SHOWN_CHARS)
            logger.warning("push notifications to %s are refused: %s", shown, reason)
        return reason is None

    async def _refusal(self, url: str) -> str | None:
        if not is_http_address(url):
            return "it is not an address of http or https"
        if self._validator is not None and not await self._validator(url):
            return "push_url_validator does not allow it"
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
                infos = await asyncio.get_running_loop().getaddrinfo(
                    parts.hostname,
                    parts.port or _DEFAULT_PORTS[parts.scheme],
                    type=socket.SOCK_STREAM,
                )
        except (OSError, UnicodeError):
            return "its host cannot be resolved"
        for address in {str(info[4][0]) for info in infos}:
            if self.reach.refuses(address):
                return f"it resolves to {address} ({scope_of(address)}); {_hint(address)}"
        return None


class BoundedPushConfigs(PushNotificationConfigStore):
    """A store with a bound on the configurations of each task.

    Args:
        store: The store that keeps the configurations.
        max_per_task: Configurations that a task may have.
    """

    def __init__(self, store: PushNotificationConfigStore, max_per_task: int) -> None:
        self._store = store
        self._max_per_task = max_per_task
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def set_info(
        self,
        task_id: str,
        notification_config: TaskPushNotificationConfig,
        context: ServerCallContext,
    ) -> TaskPushNotificationConfig | None:
        """Store a configuration, or replace the one with the same id.

        Raises:
            InvalidParamsError: The task has as many configurations as it may have.
        """
        lock = self._locks.setdefault(task_id, asyncio.Lock())
        async with lock:  # counting and storing is one step
            stored = {config.id for config in await self._store.get_info(task_id, context)}
            config_id = notification_config.id or task_id  # the SDK's default
            if config_id not in stored and len(stored) >= self._max_per_task:
                text = (
                    f"task {task_id} has {len(stored)} push notification configurations, and may "
                    f"have {self._max_per_task}: delete one first"
                )
                raise sdk.InvalidParamsError(text)
            return await self._store.set_info(task_id, notification_config, context)

    async def get_info(
        self, task_id: str, context: ServerCallContext
    ) -> list[TaskPushNotificationConfig]:
        """Return the caller's configurations of a task."""
        return await self._store.get_info(task_id, context)

    async def delete_info(
        self, task_id: str, context: ServerCallContext, config_id: str | None = None
    ) -> None:
        """Delete one configuration of a task, or all of the caller's."""
        await self._store.delete_info(task_id, context, config_id)


class PushSender(PushNotificationSender):
    """Sends push notifications through an HTTP engine, without retries (best effort).

    Args:
        engine: The engine.
        store: The configurations.
        targets: The addresses that may be pushed to.
        spans: Starts the span of each push; None for no spans.
    """

    def __init__(
        self,
        engine: HttpEngine,
        store: PushNotificationConfigStore,
        targets: PushTargets,
        spans: TurnSpans | None = None,
    ) -> None:
        self._spans = spans
        self._engine = engine
        self._store = store
        self._targets = targets

    async def send_notification(self, task_id: str, event: Any) -> None:
        """Post an event of a task to each of its configurations; failures are logged."""
        try:
            await self._send_to_all(task_id, event)
        finally:
            if self._spans is not None:
                self._spans.forget(task_id, event)

    async def _send_to_all(self, task_id: str, event: Any) -> None:
        try:
            configs = await self._configs(task_id)
        except Exception:
            logger.exception("the push configurations of task %s could not be read", task_id)
            return
        if not configs:
            return
        body = json.dumps(MessageToDict(to_stream_response(event))).encode()
        await asyncio.gather(*(self._send(task_id, event, config, body) for config in configs))

    async def _configs(self, task_id: str) -> list[TaskPushNotificationConfig]:
        get_all = getattr(self._store, "get_info_for_dispatch", None)
        if get_all is not None:
            return list(await get_all(task_id))
        return list(await self._store.get_info(task_id, ServerCallContext()))  # SDK 1.0

    async def _send(
        self, task_id: str, event: Any, config: TaskPushNotificationConfig, body: bytes
    ) -> None:
        shown = one_line(presentable(config.url), _MAX_SHOWN_CHARS)
        try:
            if not is_http_address(config.url):  # a store may contain URLs that were not checked
                raise ValueError("it is not an address of http or https")  # noqa: TRY301
            status = await self._post_in_span(task_id, event, config, body)
        except NetworkPolicyError as error:
            address = error.address or "an unknown address"
            reason = f"it resolves to {address}, which is not a public address; {_hint(address)}"
        except Exception as error:  # noqa: BLE001  a failed push must not affect the task
            reason = one_line(str(error), _MAX_SHOWN_CHARS) or type(error).__name__
        else:
            if status < 300:
                return
            reason = f"its server answered with HTTP {status}"
        logger.warning("a push of task %s to %s failed: %s", task_id, shown, reason)

    async def _post_in_span(
        self, task_id: str, event: Any, config: TaskPushNotificationConfig, body: bytes
    ) -> int:
        """Post an event in time, in a span if there are any; return the HTTP status."""
        if self._spans is None:
            return await self._post_in_time(config, body, {})
        activity, span = self._spans.start_push(task_id, event, config.url)
        error: BaseException | None = None
        try:
            with span.attached():
                status = await self._post_in_time(config, body, span.headers())
            activity = msgspec.structs.replace(activity, http_status=status)
        except BaseException as failure:
            error = failure
            raise
        else:
            return status
        finally:
            span.end(activity, error)

    async def _post_in_time(
        self, config: TaskPushNotificationConfig, body: bytes, trace: Mapping[str, str]
    ) -> int:
        deadline_at = asyncio.get_running_loop().time() + _PUSH_TIMEOUT_S
        return await wait_until(deadline_at, self._post(config, body, trace), _too_slow)

    async def _post(
        self, config: TaskPushNotificationConfig, body: bytes, trace: Mapping[str, str]
    ) -> int:
        """Post an event, and return the HTTP status of the reply."""
        headers = {**trace, "content-type": "application/json"}
        if config.token:
            headers["x-a2a-notification-token"] = config.token
        scheme, credentials = config.authentication.scheme, config.authentication.credentials
        if scheme and credentials:
            headers["authorization"] = f"{scheme} {credentials}"
        request = HttpRequest(
            method="POST",
            url=config.url,
            headers=check_headers(headers),
            body=body,
            timeouts=_TIMEOUTS,
            max_idle=1.0,  # a reused connection that is closed would make a push fail
            reach=self._targets.reach,
        )
        async with self._engine.stream(request) as reply:
            return reply.status


def _too_slow() -> TimeoutError:
    return TimeoutError(f"it took longer than {_PUSH_TIMEOUT_S:g} s")


def _hint(address: str) -> str:
    return f'to allow it, pass push_networks=("{address}",) to A2AServer'
