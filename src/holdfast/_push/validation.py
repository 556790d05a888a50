"""Validation of a push request: its sender, its body, and its task.

Rules: a request is authenticated before its body is read; reading is bounded in size and time.
With a journal, the use of a signed token is recorded first. Then a body is validated and accepted
in one step without suspension.

A delivery may arrive before the reply that gives the caller the task id. If its secrets identify
the configuration, it is stored there until the caller names the task; otherwise it is deferred, so
that an agent that retries loses nothing.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from holdfast._asgi import (
    ASGIReceive,
    ASGIScope,
    BodyRejected,
    header_map,
    read_body,
)
from holdfast._model.codec import MalformedError
from holdfast._push.refusals import Refusal, Refused
from holdfast._push.watches import Watch, Watches, authorization_secret
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
_READING_TIMEOUT_S = 30.0
"""Time in which a body must arrive."""

_UNKNOWN = "no such task is expected here"


class DeliveryValidator:
    """Validator of deliveries.

    Args:
        watches: The expected tasks.
        signatures: Verifier of signed deliveries; None if they are not signed.
        used: The signed tokens that were used.
        limits: Bounds of one delivery.
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

    async def accept(self, scope: ASGIScope, receive: ASGIReceive) -> Event:
        """Accept the delivery of one request, and return its event; once if it is repeated.

        Raises:
            Refused: The request is not a delivery, or is refused.
            ClientGone: The sender has disconnected.
        """
        self._check_open()
        if scope["method"] != "POST":
            raise Refused(Refusal.WRONG_METHOD, "push notifications must be sent with POST")
        headers = header_map(scope.get("headers") or ())
        candidates = self._authenticated(headers)
        verified_jwt = None
        if self._signatures is not None:
            verified_jwt = await self._signatures.verify(headers.get("authorization"))
        elif candidates is None:
            raise Refused(Refusal.UNAUTHENTICATED, "the token is missing")
        _check_content(headers)
        _check_length(headers, self._largest)
        reserved = 0

        def reserve(size: int) -> None:
            nonlocal reserved
            reserved += size
            self._watches.reserve(size)

        try:
            body = await read_body(
                receive, limit=self._largest, seconds=_READING_TIMEOUT_S, reserve=reserve
            )
            return await self._accept(body, candidates, verified_jwt)
        except BodyRejected as rejected:
            is_large = rejected.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            refusal = Refusal.TOO_LARGE if is_large else Refusal.TOO_SLOW
            raise Refused(refusal, rejected.text) from None
        finally:
            self._watches.release(reserved)

    def _authenticated(self, headers: Mapping[str, str]) -> tuple[Watch, ...] | None:
        """Return the watches that the secrets of a request belong to; None without secrets."""
        token = headers.get(_TOKEN_HEADER)
        if token is not None:
            candidates = self._watches.by_secret(token)
            if not candidates:
                raise Refused(Refusal.UNAUTHENTICATED, "the token is wrong")
            return candidates
        authorization = headers.get("authorization")
        if authorization is None or self._signatures is not None:
            return None
        scheme, _, credentials = authorization.partition(" ")
        candidates = self._watches.by_secret(authorization_secret(scheme, credentials))
        if not candidates:
            raise Refused(Refusal.UNAUTHENTICATED, "the credentials are wrong")
        return candidates

    async def _accept(
        self, body: bytes, candidates: tuple[Watch, ...] | None, verified_jwt: VerifiedJwt | None
    ) -> Event:
        """Accept a body, and return its event; nothing suspends after its token was recorded."""
        self._check_open()
        if verified_jwt is not None:
            body = self._signed_body(body, verified_jwt)
        event = self._read(body)
        if verified_jwt is not None and self._used.has_journal:
            self._resolve(
                event, candidates, verified_jwt
            )  # an unexpected delivery must not use up the token
            if not await self._used.record(verified_jwt, body):
                return event
            self._check_open()
        watch, event = self._resolve(event, candidates, verified_jwt)
        if verified_jwt is not None and self._used.has(verified_jwt, body):
            return event
        try:
            self._watches.deliver(watch, event, body)
        except LimitExceededError:
            raise Refused(Refusal.TOO_LARGE, "the task has become too large") from None
        if verified_jwt is not None:
            self._used.add(verified_jwt, body)
        return event

    def _resolve(
        self, event: Event, candidates: tuple[Watch, ...] | None, verified_jwt: VerifiedJwt | None
    ) -> tuple[Watch, Event]:
        """Return the watch of an event, and the event with its task id."""
        named = event.id if isinstance(event, Task) else event.task_id
        watch = self._watches.of_task(named or "")
        if candidates is not None and len(candidates) == 1:
            watch = candidates[0]
        if watch is None and named and self._watches.has_unnamed_task(candidates):
            raise Refused(Refusal.TOO_EARLY, "no such task is expected here yet")
        if (
            watch is None
            or watch.ended_because is not None
            or (candidates is not None and watch not in candidates)
        ):
            raise Refused(Refusal.UNKNOWN_TASK, _UNKNOWN)
        if watch.task_id is None and not isinstance(event, Message) and not named:
            raise Refused(Refusal.MALFORMED, "the event names no task")
        task_id = watch.task_id or named or None
        signed = None if verified_jwt is None else verified_jwt.task_id
        if any(other and other != task_id for other in (named, signed)):
            raise Refused(Refusal.UNKNOWN_TASK, _UNKNOWN)
        watch.task_id = task_id
        if not named and not isinstance(event, Message):
            name = "id" if isinstance(event, Task) else "task_id"
            event = msgspec.structs.replace(event, **{name: watch.task_id})
        return watch, event

    def _check_open(self) -> None:
        if self._watches.is_closed:
            raise Refused(Refusal.UNAVAILABLE, "this receiver is closed")

    def _signed_body(self, body: bytes, verified_jwt: VerifiedJwt) -> bytes:
        """Return the body that a token covers, which may have to be parsed for it."""
        try:
            check_json_size(body, self._limits)
        except LimitExceededError:
            raise Refused(Refusal.TOO_LARGE, "the event is too large") from None
        return verified_jwt.signed_body(body)

    def _read(self, body: bytes) -> Event:
        try:
            event = read_notification(body, self._limits).event
        except LimitExceededError:
            raise Refused(Refusal.TOO_LARGE, "the event is too large") from None
        except MalformedError:
            text = "the body is not an A2A event: it cannot be read"
            raise Refused(Refusal.MALFORMED, text) from None
        if event is None:
            text = "the body is not an A2A event: it has none of its members"
            raise Refused(Refusal.MALFORMED, text)
        return event


def _check_content(headers: Mapping[str, str]) -> None:
    kind = media_type(headers)
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refused(Refusal.WRONG_CONTENT, "the body must be JSON")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(Refusal.WRONG_CONTENT, "the body must not be compressed")


def _check_length(headers: Mapping[str, str], limit: int) -> None:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise Refused(Refusal.MALFORMED, "the length of the body cannot be read")
    if len(length) > 20 or int(length) > limit:
        raise Refused(Refusal.TOO_LARGE, f"the body is larger than {limit} bytes")
