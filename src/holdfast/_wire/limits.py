"""How much of a reply is accepted, and the checks that need nothing but the reply.

Rules: what would need much memory is refused before it is decoded; a limit that is exceeded is
named as the field of `Limits` that raises it. A check costs next to nothing for a reply that is
far from its limits: it is counted in C, and looked at closely only where the count is too high.
"""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from holdfast._model.settings import check_count
from holdfast.errors import A2AError, Facts, LimitExceededError
from holdfast.types import (
    Artifact,
    ListTasksResponse,
    Message,
    SendMessageResponse,
    StreamResponse,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "EIGHT_HEADERS",
    "Limits",
    "as_card_error",
    "card_limits",
    "check_json_size",
    "check_value",
    "harmless_size",
    "headers_fit",
    "largest_header",
    "limit_error",
]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client accepts of an agent; beyond it a call fails with `LimitExceededError`.

    Decoding a reply takes at most 12 bytes for each byte of `body`, and 350 more for each of
    `json_values`; with the defaults a reply of ordinary text takes three times its own size.

    Attributes:
        body: Largest body of a reply, in bytes after decompression, and largest task that the
            events of a stream add up to, in bytes of JSON.
        headers: Largest sum of the headers of a reply, in bytes of names and values. One header
            may have an eighth of that, or 8190 bytes if that is more; there may be 128 of them.
        event: Largest event of a stream, in bytes of its lines as they are sent, without line ends
            and comments; no comment may be larger, either.
        card: Largest agent card, in bytes after decompression.
        json_depth: How deeply objects and lists may be nested. Not counted is what is passed over
            unread: members unknown to the protocol in a chunk of text (an artifact update without
            data or metadata) that arrives together with the event before it.
        json_values: How many objects, lists, members and items a reply may hold altogether.
        inflation_ratio: How many times larger a body may become by decompression; below a
            megabyte any ratio is accepted.
        parts: Most parts of one message or artifact.
        artifacts: Most artifacts of one task.
        history: Most messages in the history of one task.

    Raises:
        ValueError: A limit is not positive.
        TypeError: A limit is no whole number.
    """

    body: int = 32 * 1024 * 1024
    headers: int = 64 * 1024
    event: int = 32 * 1024 * 1024
    card: int = 1024 * 1024
    json_depth: int = 100
    json_values: int = 500_000
    inflation_ratio: int = 100
    parts: int = 100_000
    artifacts: int = 10_000
    history: int = 10_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_count(f"the limit {name}", getattr(self, name), least=1)


def limit_error(
    which: str, limits: Limits, what: str, **facts: Unpack[Facts]
) -> LimitExceededError:
    """The error of a limit.

    Args:
        which: A field of `Limits`.
        limits: Where its value is.
        what: What is too large, as in "the reply is larger than 10 bytes".
        facts: What else the error tells.
    """
    return LimitExceededError(
        f"{what}; if that is right, raise the limit with Limits({which}=…)",
        which=which,
        bound=getattr(limits, which),
        **facts,
    )


def harmless_size(limits: Limits) -> int:
    """Bytes that cannot hold too much of anything, since each thing takes one."""
    return min(limits.parts, limits.artifacts, limits.history, limits.json_values)


def card_limits(limits: Limits) -> Limits:
    """The limits of a request for a card."""
    return msgspec.structs.replace(limits, body=limits.card)


def as_card_error(error: A2AError, limits: Limits) -> A2AError:
    """The error of a request for a card: a body that is too large is a card that is."""
    if not isinstance(error, LimitExceededError) or error.which != "body":
        return error
    what = f"the agent card is larger than {limits.card} bytes"
    return limit_error("card", limits, what, **error.facts())


_LARGEST_HEADER = 8190
EIGHT_HEADERS = 8 * 8192
"""Where the limit is no smaller, eight headers are within it."""


def largest_header(limits: Limits) -> int:
    """How many bytes one header may have."""
    return max(_LARGEST_HEADER, limits.headers // 8)


def headers_fit(headers: Sequence[tuple[bytes, bytes]], limits: Limits) -> bool:
    """Whether headers together are within their limit."""
    return sum(map(len, chain.from_iterable(headers))) <= limits.headers


# ── Before decoding ──────────────────────────────────────────────────────────────────────────


def check_json_size(body: bytes, limits: Limits) -> None:
    """Checks a body that may be JSON before it is decoded.

    Raises:
        LimitExceededError: It is nested too deeply, or holds too many values.
    """
    size = len(body)
    if size <= limits.json_values:  # no value is shorter than a byte
        # An object around another takes five bytes at least: {"":}
        room = limits.json_depth - size // 5 - 1
        if (room >= 0 and body.count(b"[") <= room) or _opens_at_most(limits.json_depth, body):
            return
    opened = body.count(b"{") + body.count(b"[")
    if opened <= limits.json_depth and opened + body.count(b",") < limits.json_values:
        return
    if not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return  # a page of HTML, say
    depth, values = 0, 1
    for structure in _outside_strings(body):
        values += len(structure) - structure.count(b"]")
        if values > limits.json_values:
            raise limit_error(
                "json_values", limits, f"the reply holds more than {limits.json_values} values"
            )
        steps = list(accumulate(map(_STEPS.__getitem__, structure), initial=depth))
        if max(steps) > limits.json_depth:
            raise limit_error(
                "json_depth", limits, f"the reply is nested deeper than {limits.json_depth} levels"
            )
        depth = steps[-1]
        if depth < 0:
            return  # no JSON, as whoever reads it will say


def _opens_at_most(most: int, body: bytes) -> bool:
    """Whether there are so few brackets.

    To take them away is the fastest way to count what there is little of.
    """
    for bracket in (b"{", b"["):
        most -= len(body) - len(body.replace(bracket, b"", most + 1))
        if most < 0:
            return False
    return True


_WINDOW = 64 * 1024
_STEPS: Mapping[int, int] = {ord("["): 1, ord("]"): -1, ord(","): 0}
_STRUCTURE = bytes.maketrans(b"{}", b"[]")
_REST = bytes(set(range(256)) - set(b'{}[],"'))


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """The brackets and commas of a JSON text, piece by piece; braces as brackets."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_STRUCTURE, _REST)
    within = 0
    for start in range(0, len(plain), _WINDOW):
        pieces = plain[start : start + _WINDOW].split(b'"')
        yield b"".join(pieces[within::2])
        within ^= len(pieces) % 2 ^ 1


# ── After decoding ───────────────────────────────────────────────────────────────────────────


def check_value(value: object, limits: Limits) -> None:
    """Checks what a reply was decoded to.

    Args:
        value: What it was decoded to.
        limits: The bounds.

    Raises:
        LimitExceededError: It has too many parts, artifacts or messages.
    """
    check = _CHECKS.get(type(value))
    if check is not None:
        check(value, limits)


def _check_task(task: Task, limits: Limits) -> None:
    if len(task.artifacts) > limits.artifacts:
        what = f"task {task.id} has more than {limits.artifacts} artifacts"
        raise limit_error("artifacts", limits, what, executed=True)
    if len(task.history) > limits.history:
        what = f"task {task.id} has more than {limits.history} messages in its history"
        raise limit_error("history", limits, what, executed=True)
    if task.status.message is not None:
        _check_parts(task.status.message, limits)
    for message in task.history:
        if len(message.parts) > limits.parts:
            _check_parts(message, limits)
    for artifact in task.artifacts:
        if len(artifact.parts) > limits.parts:
            _check_parts(artifact, limits)


def _check_parts(whole: Message | Artifact, limits: Limits) -> None:
    if len(whole.parts) > limits.parts:
        what = "a message" if isinstance(whole, Message) else f"artifact {whole.artifact_id}"
        what = f"{what} has more than {limits.parts} parts"
        raise limit_error("parts", limits, what, executed=True)


def _check_response(response: SendMessageResponse, limits: Limits) -> None:
    if response.task is not None:
        _check_task(response.task, limits)
    if response.message is not None:
        _check_parts(response.message, limits)


def _check_event(event: StreamResponse, limits: Limits) -> None:
    if event.task is not None:
        _check_task(event.task, limits)
    status = event.status_update
    update = event.artifact_update
    spoken = event.message if status is None else status.status.message
    for whole in (spoken, None if update is None else update.artifact):
        if whole is not None:
            _check_parts(whole, limits)


def _check_page(page: ListTasksResponse, limits: Limits) -> None:
    for task in page.tasks:
        _check_task(task, limits)


_CHECKS: Mapping[type, Callable[[Any, Limits], None]] = cast(
    "Mapping[type, Callable[[Any, Limits], None]]",
    {
        Task: _check_task,
        Message: _check_parts,
        Artifact: _check_parts,
        SendMessageResponse: _check_response,
        StreamResponse: _check_event,
        ListTasksResponse: _check_page,
    },
)
