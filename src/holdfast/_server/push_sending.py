"""Push notifications of a served agent (A2A 4.3.3): allowed addresses, and delivery.

Rules: clients choose the address, so it must be public, or allowed by the operator. The IP address
of the connection is checked, not what the name resolved to when the configuration was created. No
redirect is followed, no proxy is used, nothing is sent twice, and only the status of a reply is
read. A failed push does not affect the task.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from a2a.server.context import ServerCallContext
from a2a.server.tasks import PushNotificationSender
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from holdfast._aio.cancel_scope import wait_until
from holdfast._model.addresses import is_http_address
from holdfast._model.error_values import one_line
from holdfast._wire.http import HttpRequest, Timeouts, check_headers, presentable
from holdfast._wire.network_scope import NetworkReach, scope_of
from holdfast.errors import NetworkPolicyError

if TYPE_CHECKING:
    from a2a.server.tasks import PushNotificationConfigStore
    from a2a.types.a2a_pb2 import TaskPushNotificationConfig

    from holdfast._net.engine import HttpEngine
    from holdfast._server.settings import PushUrlValidator
    from holdfast._wire.network_scope import Network

__all__ = ["PushSender", "PushTargets"]

logger = logging.getLogger("holdfast.server")

_PUSH_S = 10.0
"""Seconds that a push may take."""

_RESOLVE_S = 5.0
_TIMEOUTS = Timeouts(pool=10.0, connect=5.0, write=10.0, first_byte=10.0, idle=10.0)
_PORTS = {"http": 80, "https": 443}
_SHOWN = 200


class PushTargets:
    """Where a served agent may push to.

    Args:
        networks: Networks that are reached besides public addresses; None for none.
        validator: Says of each address whether it is allowed; None for all. Where it is given
            without `networks`, addresses of this machine and of private networks are left to it.

    Attributes:
        reach: Which numbers a socket may be made for. Link-local and metadata addresses are
            among them only where `networks` names them.
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
        """Whether a client may have an address pushed to; where not, the log says why.

        A name that leads elsewhere later is refused when the push is sent.
        """
        why = await self._fault(url)
        if why is not None:
            shown = one_line(presentable(url), _SHOWN)
            logger.warning("push notifications to %s are refused: %s", shown, why)
        return why is None

    async def _fault(self, url: str) -> str | None:
        if not is_http_address(url):
            return "it is not an address of http or https"
        if self._validator is not None and not await self._validator(url):
            return "push_url_validator does not allow it"
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(_RESOLVE_S):
                infos = await asyncio.get_running_loop().getaddrinfo(
                    parts.hostname, parts.port or _PORTS[parts.scheme], type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError):
            return "its host cannot be resolved"
        for number in {str(info[4][0]) for info in infos}:
            if self.reach.refuses(number):
                return f"it resolves to {number} ({scope_of(number)}); {_hint(number)}"
        return None


def _too_slow() -> TimeoutError:
    return TimeoutError(f"it took longer than {_PUSH_S:g} s")


class PushSender(PushNotificationSender):
    """Sends push notifications through an engine; best effort, as the protocol has it.

    Args:
        engine: What carries them.
        store: The configurations.
        targets: Where they may go.
    """

    def __init__(
        self, engine: HttpEngine, store: PushNotificationConfigStore, targets: PushTargets
    ) -> None:
        self._engine = engine
        self._store = store
        self._targets = targets

    async def send_notification(self, task_id: str, event: Any) -> None:
        """Sends an event of a task to all who want to hear of it; failures are logged."""
        try:
            configs = await self._configs(task_id)
        except Exception:
            logger.exception("the push configurations of task %s could not be read", task_id)
            return
        if not configs:
            return
        body = json.dumps(MessageToDict(to_stream_response(event))).encode()
        await asyncio.gather(*(self._send(task_id, config, body) for config in configs))

    async def _configs(self, task_id: str) -> list[TaskPushNotificationConfig]:
        of_all = getattr(self._store, "get_info_for_dispatch", None)
        if of_all is not None:
            return list(await of_all(task_id))
        return list(await self._store.get_info(task_id, ServerCallContext()))  # SDK 1.0

    async def _send(self, task_id: str, config: TaskPushNotificationConfig, body: bytes) -> None:
        shown = one_line(presentable(config.url), _SHOWN)
        try:
            at = asyncio.get_running_loop().time() + _PUSH_S
            status = await wait_until(at, self._status_of(config, body), _too_slow)
        except NetworkPolicyError as refused:
            number = refused.address or "an unknown address"
            why = f"it resolves to {number}, which is not a public address; {_hint(number)}"
        except Exception as error:  # noqa: BLE001  what fails here is no affair of the task
            why = one_line(str(error), _SHOWN) or type(error).__name__
        else:
            if status < 300:
                return
            why = f"it was answered by HTTP {status}"
        logger.warning("a push of task %s to %s failed: %s", task_id, shown, why)

    async def _status_of(self, config: TaskPushNotificationConfig, body: bytes) -> int:
        headers = {"content-type": "application/json"}
        if config.token:
            headers["x-a2a-notification-token"] = config.token
        scheme, credentials = config.authentication.scheme, config.authentication.credentials
        if scheme and credentials:
            headers["authorization"] = f"{scheme} {credentials}"
        if not is_http_address(config.url):  # stores may be filled by others
            raise ValueError("it is not an address of http or https")
        request = HttpRequest(
            method="POST",
            url=config.url,
            headers=check_headers(headers),
            body=body,
            timeouts=_TIMEOUTS,
            max_idle=1.0,  # as for messages: a push is not sent twice
            reach=self._targets.reach,
        )
        async with self._engine.stream(request) as reply:
            return reply.status


def _hint(number: str) -> str:
    return f'to allow it, pass push_networks=("{number}",) to A2AServer'
