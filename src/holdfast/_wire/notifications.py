"""Push notifications as agents post them (A2A 4.3.3), in either protocol version."""

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
    """Decode the body of a push notification; its version is detected from the body.

    Args:
        body: The body of the POST request.
        limits: Bounds of the event's size and contents.

    Returns:
        The event; an empty one if its kind is unknown.

    Raises:
        MalformedError: The body is not JSON, or does not have the required shape.
        LimitExceededError: The body is nested too deeply, or has too many values.
    """
    check_json_size(body, limits)
    response = v03.read_event(body) or codec.decode(body, StreamResponse)
    check_value(response, limits)
    return response
