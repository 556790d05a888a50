"""What comes to a receiver: who sends it, whether it is a delivery, and of which task.

Rules: a request is proven before its body is read; a body is read up to its limit and for a while;
what was read is judged and taken at once, with nothing else in between; before that, the use of a
signed token is recorded where there is a journal.

A delivery may be quicker than the reply that tells the caller of its task. Where the configuration
is plain from its secrets, it is kept there until the caller names the task; where it is not, it is
put off, so that an agent that tries again loses nothing.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from holdfast._model.codec import MalformedError
from holdfast._net.asgi import (
    ASGIReceive,
    ASGIScope,
    BodyRejected,
    ShortReply,
    header_map,
    read_body,
)
from holdfast._push.refusals import Refusal, Refused
from holdfast._push.watches import Watch, Watches, credentials_of
from holdfast._wire.http import media_type
from holdfast._wire.limits import check_json_size
from holdfast._wire.notifications import read_notification
from holdfast.errors import LimitExceededError
from holdfast.types import Message, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._push.replay_cache import ReplayCache
    from holdfast._push.signatures import SignatureCheck, VerifiedJwt
    from holdfast._wire.limits import Limits
    from holdfast.types import Event

__all__ = ["DeliveryValidator"]

_TOKEN_HEADER = "x-a2a-notification-token"  # noqa: S105  its name
_READING = 30.0
"""Seconds that a body has to come."""

_UNKNOWN = "no such task is expected here"


class DeliveryValidator:
    """Takes deliveries.

    Args:
        watches: Who is expected to deliver, and where it goes.
        signatures: How deliveries are signed; None if they need not be.
        used: The signed tokens that came before.
        limits: How large one delivery may be.
    """

    def __init__(
        self,
        watches: Watches,
        signatures: SignatureCheck | None,
        used: ReplayCache,
        limits: Limits,
    ) -> None:
        self._watches = watches
        self._signatures = signatures
        self._used = used
        self._limits = limits
        self._largest = min(limits.event, watches.most_bytes)

    async def answer(self, scope: ASGIScope, receive: ASGIReceive) -> ShortReply:
        """Takes one request.

        Raises:
            Refused: It is no delivery, or not taken.
            ClientGone: Its sender has left.
        """
        self._check_open()
        if scope["method"] != "POST":
            raise Refused(Refusal.NOT_POSTED, "push notifications are posted")
        headers = header_map(scope.get("headers") or ())
        proven = self._proven(headers)
        voucher = None
        if self._signatures is not None:
            voucher = await self._signatures.verify(headers.get("authorization"))
        elif proven is None:
            raise Refused(Refusal.UNPROVEN, "the token is missing")
        _check_content(headers)
        _check_length(headers, self._largest)
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            taken += size
            self._watches.hold(size)

        try:
            body = await read_body(receive, limit=self._largest, seconds=_READING, reserve=take)
            await self._take(body, proven, voucher)
        except BodyRejected as rejected:
            is_large = rejected.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            refusal = Refusal.TOO_LARGE if is_large else Refusal.TOO_SLOW
            raise Refused(refusal, rejected.text) from None
        finally:
            self._watches.release(taken)
        return ShortReply(200, "taken")

    def _proven(self, headers: Mapping[str, str]) -> tuple[Watch, ...] | None:
        """What the secrets of a request are of; None if it has none."""
        token = headers.get(_TOKEN_HEADER)
        if token is not None:
            proven = self._watches.proven_by(token)
            if not proven:
                raise Refused(Refusal.UNPROVEN, "the token is wrong")
            return proven
        authorization = headers.get("authorization")
        if authorization is None or self._signatures is not None:
            return None
        scheme, _, credentials = authorization.partition(" ")
        proven = self._watches.proven_by(credentials_of(scheme, credentials))
        if not proven:
            raise Refused(Refusal.UNPROVEN, "the credentials are wrong")
        return proven

    async def _take(
        self, body: bytes, proven: tuple[Watch, ...] | None, voucher: VerifiedJwt | None
    ) -> None:
        """Takes a body that was read; nothing else happens once its token is recorded."""
        self._check_open()
        if voucher is not None:
            body = self._vouched(body, voucher)
        event = self._read(body)
        if voucher is not None and self._used.has_journal:
            self._meant(event, proven, voucher)  # what is not expected here uses no token
            if not await self._used.record(voucher, body):
                return
            self._check_open()
        watch, event = self._meant(event, proven, voucher)
        if voucher is not None and self._used.has(voucher, body):
            return
        try:
            self._watches.deliver(watch, event, body)
        except LimitExceededError:
            raise Refused(Refusal.TOO_LARGE, "the task has become too large") from None
        if voucher is not None:
            self._used.add(voucher, body)

    def _meant(
        self, event: Event, proven: tuple[Watch, ...] | None, voucher: VerifiedJwt | None
    ) -> tuple[Watch, Event]:
        """The task that an event is of, and the event with the task's id."""
        named = event.id if isinstance(event, Task) else event.task_id
        watch = self._watches.of_task(named or "")
        if proven is not None and len(proven) == 1:
            watch = proven[0]
        if watch is None and named and self._watches.lack_task(proven):
            raise Refused(Refusal.EARLY, "no such task is expected here yet")
        if watch is None or watch.end is not None or (proven is not None and watch not in proven):
            raise Refused(Refusal.UNEXPECTED, _UNKNOWN)
        if watch.task_id is None and not isinstance(event, Message) and not named:
            raise Refused(Refusal.UNREADABLE, "the event names no task")
        known = watch.task_id or named or None
        vouched = None if voucher is None else voucher.task_id
        if any(name and name != known for name in (named, vouched)):
            raise Refused(Refusal.UNEXPECTED, _UNKNOWN)
        watch.task_id = known
        if not named and not isinstance(event, Message):
            name = "id" if isinstance(event, Task) else "task_id"
            event = msgspec.structs.replace(event, **{name: watch.task_id})
        return watch, event

    def _check_open(self) -> None:
        if self._watches.is_closed:
            raise Refused(Refusal.NOT_NOW, "this receiver is closed")

    def _vouched(self, body: bytes, voucher: VerifiedJwt) -> bytes:
        """The body that a token vouches for, which may have to be parsed to find out."""
        try:
            check_json_size(body, self._limits)
        except LimitExceededError:
            raise Refused(Refusal.TOO_LARGE, "the event is too large") from None
        return voucher.vouched(body)

    def _read(self, body: bytes) -> Event:
        try:
            event = read_notification(body, self._limits).event
        except LimitExceededError:
            raise Refused(Refusal.TOO_LARGE, "the event is too large") from None
        except MalformedError:
            text = "the body is not an A2A event: it cannot be read"
            raise Refused(Refusal.UNREADABLE, text) from None
        if event is None:
            text = "the body is not an A2A event: it has none of its members"
            raise Refused(Refusal.UNREADABLE, text)
        return event


def _check_content(headers: Mapping[str, str]) -> None:
    kind = media_type(headers)
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refused(Refusal.NOT_JSON, "the body must be JSON")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(Refusal.NOT_JSON, "the body must not be compressed")


def _check_length(headers: Mapping[str, str], limit: int) -> None:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise Refused(Refusal.UNREADABLE, "the length of the body cannot be read")
    if len(length) > 20 or int(length) > limit:
        raise Refused(Refusal.TOO_LARGE, f"the body is larger than {limit} bytes")
