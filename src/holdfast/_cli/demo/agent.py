"""The demo agent: a fake agent whose messages meet the same faults, one after the other."""

from __future__ import annotations

import json
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast._cli.demo.commands import behaviour, card_of
from holdfast._integrations.recognition import recognize
from holdfast._model import codec
from holdfast._model.operations import CARD_BINDING
from holdfast.testing import FakeAgent, Respond

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._cli.demo.faults import WrittenFault
    from holdfast._server.host_check import HostRules
    from holdfast._testing.exchange import Exchange
    from holdfast._wire.http import HttpRequest

__all__ = ["DemoAgent"]

_KNOWN = 1000
_REMEMBERED = 100


class DemoAgent(FakeAgent):
    """Does what the first word of a message says.

    It keeps no tasks when it ends, so its ids are others each time: after a restart, no task has
    the id of one before.

    Args:
        faults: What each new message meets, one request after the other.
        told: Called with a line for each request.
        rules: Which hosts and origins requests may name; None for any.
    """

    def __init__(
        self,
        faults: Sequence[WrittenFault],
        *,
        told: Callable[[str], None],
        rules: HostRules | None = None,
    ) -> None:
        super().__init__(behaviour, card=card_of, id_suffix=f"-{secrets.token_hex(4)}")
        self._of_each = tuple(faults)
        self._left: deque[WrittenFault] = deque()
        self._messages: deque[str] = deque(maxlen=_KNOWN)
        self._told = told
        self._rules = rules

    def exchange(self, request: HttpRequest) -> Exchange:
        """Meets a request."""
        if refusal := self._refusal(request):
            self._told(f"refused: {json.loads(refusal.body)['detail']}")
            exchange = super().exchange(request)
            exchange.fault = refusal
            return exchange
        recognized = recognize(request.method, request.url, request.body)
        message_id = _message_id(request.body)
        if message_id is not None and message_id not in self._messages:
            self._messages.append(message_id)
            self._left = deque(self._of_each)
        del self.received[:-_REMEMBERED]
        line = recognized.operation.name if recognized.is_known else "unknown"
        if self._left and recognized.binding != CARD_BINDING:
            written = self._left.popleft()
            line = f"{line:<22} meets {written.name}"
            if written.fault is not None:
                self.inject(written.fault)
        self._told(line)
        return super().exchange(request)

    def _refusal(self, request: HttpRequest) -> Respond | None:
        """The answer to a request that names another host, or comes from another page."""
        if self._rules is None:
            return None
        named = ([request.headers[n]] if n in request.headers else [] for n in ("host", "origin"))
        refusal = self._rules.refusal(*named)
        if refusal is None:
            return None
        status, reason = refusal
        body = json.dumps({"detail": reason}).encode()
        return Respond(status=status, headers={"content-type": "application/json"}, body=body)


def _message_id(body: bytes) -> str | None:
    """The id of the message that a request sends; None if it sends none."""
    try:
        document = codec.as_object(codec.parse(body)) if body else None
    except codec.MalformedError:
        return None
    params: Any = codec.as_object((document or {}).get("params")) or document or {}
    message = codec.as_object(params.get("message")) or {}
    message_id = message.get("messageId")
    return message_id if isinstance(message_id, str) else None
