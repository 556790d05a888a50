"""What agents post to receivers of push notifications (A2A 4.3.3), whatever they speak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model import codec
from holdfast._wire import v03
from holdfast._wire.limits import check_json_size, check_value
from holdfast.types import StreamResponse

if TYPE_CHECKING:
    from holdfast._wire.limits import Limits

__all__ = ["read_notification"]


def read_notification(body: bytes, limits: Limits) -> StreamResponse:
    """Reads the body of a push notification; nothing else says which version it is of.

    Args:
        body: What was posted.
        limits: How large an event may be, and what is in it.

    Returns:
        The event; an empty one where nobody knows here what it is.

    Raises:
        MalformedError: It is not JSON, or not of the shape that it must be.
        LimitExceededError: It is nested too deeply, or holds too much.
    """
    check_json_size(body, limits)
    response = v03.read_event(body) or codec.decode(body, StreamResponse)
    check_value(response, limits)
    return response
