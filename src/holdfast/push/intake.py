"""What comes to a receiver: who sends it, whether it is a delivery, and of which task.

Rules: a request is proven before its body is read; a body is read up to its limit and for a while;
what was read is judged and taken at once, with nothing else in between.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import LimitExceededError
from holdfast.model.codec import MalformedError
from holdfast.model.types import Message, Task
from holdfast.push.asgi import (
    ASGIReceive,
    ASGIScope,
    Refused,
    ShortReply,
    headers_of,
    read_body,
)
from holdfast.push.watches import Watch, Watches, credentials_of
from holdfast.wire.http import media_type
from holdfast.wire.notifications import read_notification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.model.types import Event
    from holdfast.push.signatures import SignatureCheck, Voucher
    from holdfast.wire.limits import Limits

__all__ = ["Intake"]

_TOKEN_HEADER = "x-a2a-notification-token"  # noqa: S105  its name
_READING = 30.0
_UNKNOWN = "no such task is expected here"
_CHALLENGE = {"www_authenticate": "Bearer"}


class Intake:
    """Takes deliveries.

    Args:
        watches: Who is expected to deliver, and where it goes.
        signatures: How deliveries are signed; None if they need not be.
        limits: How large one of them may be.
    """

    def __init__(
        self, watches: Watches, signatures: SignatureCheck | None, limits: Limits
    ) -> None:
        self._watches = watches
        self._signatures = signatures
        self._limits = limits

    async def answer(self, scope: ASGIScope, receive: ASGIReceive) -> ShortReply:
        """Takes one request.

        Raises:
            Refused: It is no delivery, or not taken.
            Gone: Its sender has left.
        """
        if scope["method"] != "POST":
            raise Refused(405, "push notifications are posted", allow="POST")
        headers = headers_of(scope)
        proven = self._proven(headers)
        voucher = None
        if self._signatures is not None:
            voucher = await self._signatures.verify(headers.get("authorization"))
        elif proven is None:
            raise Refused(401, "the token is missing", **_CHALLENGE)
        _check_content(headers)
        _check_length(headers, self._limits.event)
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            taken += size
            self._watches.hold(size)

        try:
            body = await read_body(receive, limit=self._limits.event, seconds=_READING, take=take)
            self._take(body, proven, voucher)
        finally:
            self._watches.release(taken)
        return ShortReply(200, "taken")

    def _proven(self, headers: Mapping[str, str]) -> tuple[Watch, ...] | None:
        """What the secrets of a request are of; None if it has none."""
        token = headers.get(_TOKEN_HEADER)
        if token is not None:
            proven = self._watches.proven_by(token)
            if not proven:
                raise Refused(401, "the token is wrong", **_CHALLENGE)
            return proven
        authorization = headers.get("authorization")
        if authorization is None or self._signatures is not None:
            return None
        scheme, _, credentials = authorization.partition(" ")
        proven = self._watches.proven_by(credentials_of(scheme, credentials))
        if not proven:
            raise Refused(401, "the credentials are wrong", **_CHALLENGE)
        return proven

    def _take(
        self, body: bytes, proven: tuple[Watch, ...] | None, voucher: Voucher | None
    ) -> None:
        """Takes a body that was read; nothing else happens meanwhile."""
        if voucher is not None:
            body = voucher.vouched(body)
        event = self._read(body)
        watch, event = self._meant(event, proven, voucher)
        if voucher is not None and voucher.was_used(body):
            return
        try:
            is_news = watch.deliveries.add(event, hashlib.sha256(body).digest())
        except LimitExceededError as error:
            watch.failure = error
            watch.wake()
            raise Refused(413, "the task has become too large") from None
        if voucher is not None:
            voucher.use(body)
        if is_news:
            self._watches.grown(watch, len(body))

    def _meant(
        self, event: Event, proven: tuple[Watch, ...] | None, voucher: Voucher | None
    ) -> tuple[Watch, Event]:
        """The task that an event is of, and the event with the task's id."""
        named = event.id if isinstance(event, Task) else event.task_id
        watch = self._watches.of_task(named or "")
        if proven is not None and len(proven) == 1:
            watch = proven[0]
        if watch is None or watch.is_forgotten or (proven is not None and watch not in proven):
            raise Refused(404, _UNKNOWN)
        if watch.task_id is None and not isinstance(event, Message):
            if not named:
                raise Refused(400, "the event names no task")
            watch.task_id = named
        vouched = None if voucher is None else voucher.task_id
        if any(name and name != watch.task_id for name in (named, vouched)):
            raise Refused(404, _UNKNOWN)
        if not named and not isinstance(event, Message):
            name = "id" if isinstance(event, Task) else "task_id"
            event = msgspec.structs.replace(event, **{name: watch.task_id})
        return watch, event

    def _read(self, body: bytes) -> Event:
        try:
            event = read_notification(body, self._limits).event
        except LimitExceededError:
            raise Refused(413, "the event is too large") from None
        except MalformedError:
            raise Refused(400, "the body is no event of A2A: it cannot be read") from None
        if event is None:
            raise Refused(400, "the body is no event of A2A: it has none of its members")
        return event


def _check_content(headers: Mapping[str, str]) -> None:
    kind = media_type(headers)
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refused(415, "the body must be JSON")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "the body must not be compressed")


def _check_length(headers: Mapping[str, str], limit: int) -> None:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise Refused(400, "the length of the body cannot be read")
    if len(length) > 20 or int(length) > limit:
        raise Refused(413, f"the body is larger than {limit} bytes")
