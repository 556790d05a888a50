"""Bounds on a reply's size, and the checks that need only the reply.

Rules: a reply that would need much memory is refused before it is decoded; the error names the
field of `Limits` that raises the bound. A check is cheap for a reply far from its limits: it
counts bytes in C, and examines the structure only if that count is too high.
"""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from holdfast._model.settings import Policy, check_count
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


class Limits(Policy, frozen=True, kw_only=True):
    """Bounds on an agent's replies; a call that exceeds one fails with `LimitExceededError`.

    Decoding a reply takes at most 12 bytes of memory per byte of `body`, plus 350 per value of
    `json_values`; with the defaults a reply of ordinary text takes three times its size.

    Attributes:
        body: Maximum body of a reply, in bytes after decompression, and maximum task that the
            events of a stream add up to, in bytes of JSON, 32 MiB by default.
        headers: Maximum total of a reply's headers, in bytes of names and values, 64 KiB by
            default. One header may have an eighth of that, or 8190 bytes if that is more; at most
            128 headers are accepted.
        event: Maximum event of a stream, in bytes of its lines as sent, without line ends and
            comments, 32 MiB by default; also the maximum comment.
        card: Maximum agent card, in bytes after decompression, 1 MiB by default.
        json_depth: Maximum nesting of objects and lists, 100 by default. Members that are skipped
            unread do not count: those unknown to the protocol in a chunk of text (an artifact
            update without data or metadata) that arrives together with the event before it.
        json_values: Maximum number of objects, lists, members and items in a reply, 500,000 by
            default.
        inflation_ratio: Maximum ratio of decompressed to compressed size of a body, 100 by
            default; not checked below one megabyte.
        parts: Maximum parts of one message or artifact, 100,000 by default.
        artifacts: Maximum artifacts of one task, 10,000 by default.
        history: Maximum messages in the history of one task, 10,000 by default.

    Raises:
        ValueError: A limit is not positive.
        TypeError: A limit is not an integer.
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
    limit: str, limits: Limits, problem: str, **facts: Unpack[Facts]
) -> LimitExceededError:
    """Return the error of an exceeded limit.

    Args:
        limit: Name of the field of `Limits`.
        limits: Limits with its value.
        problem: Description of the excess: "the reply is larger than 10 bytes".
        facts: Other facts of the error, as in `A2AError`.
    """
    return LimitExceededError(
        f"{problem}; if that is right, raise the limit with Limits({limit}=…)",
        which=limit,
        bound=getattr(limits, limit),
        **facts,
    )


def harmless_size(limits: Limits) -> int:
    """Return the size in bytes that cannot exceed any count: each item takes a byte or more."""
    return min(limits.parts, limits.artifacts, limits.history, limits.json_values)


def card_limits(limits: Limits) -> Limits:
    """Return the limits of a request for a card."""
    return msgspec.structs.replace(limits, body=limits.card)


def as_card_error(error: A2AError, limits: Limits) -> A2AError:
    """Convert the error of a body that is too large to that of a card, in a request for one."""
    if not isinstance(error, LimitExceededError) or error.which != "body":
        return error
    problem = f"the agent card is larger than {limits.card} bytes"
    return limit_error("card", limits, problem, **error.facts())


_MIN_HEADER_LIMIT = 8190
EIGHT_HEADERS = 8 * 8192
"""If the total limit is at least this, eight headers always fit."""


def largest_header(limits: Limits) -> int:
    """Return the maximum size of one header in bytes."""
    return max(_MIN_HEADER_LIMIT, limits.headers // 8)


def headers_fit(headers: Sequence[tuple[bytes, bytes]], limits: Limits) -> bool:
    """Return whether the headers together are within their limit."""
    return sum(map(len, chain.from_iterable(headers))) <= limits.headers


# ── Before decoding ──────────────────────────────────────────────────────────────────────────


def check_json_size(body: bytes, limits: Limits) -> None:
    """Check a body that may be JSON before it is decoded.

    Raises:
        LimitExceededError: It is nested too deeply, or has too many values.
    """
    size = len(body)
    if size <= limits.json_values:  # no value is shorter than a byte
        # Nesting one object in another takes at least five bytes: {"":}
        room = limits.json_depth - size // 5 - 1
        if (room >= 0 and body.count(b"[") <= room) or _opens_at_most(limits.json_depth, body):
            return
    opened = body.count(b"{") + body.count(b"[")
    if opened <= limits.json_depth and opened + body.count(b",") < limits.json_values:
        return
    if not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return  # not JSON, such as a page of HTML
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
            return  # not JSON; the decoder reports it


def _opens_at_most(most: int, body: bytes) -> bool:
    """Return whether the body has at most this many opening brackets.

    Removing rare bytes is the fastest way to count them.
    """
    for bracket in (b"{", b"["):
        most -= len(body) - len(body.replace(bracket, b"", most + 1))
        if most < 0:
            return False
    return True


_WINDOW = 64 * 1024
_STEPS: Mapping[int, int] = {ord("["): 1, ord("]"): -1, ord(","): 0}
_STRUCTURE = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'{}[],"'))


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """Yield the brackets and commas of a JSON text outside strings; braces as brackets."""
    structure = (
        body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_STRUCTURE, _NOT_STRUCTURE)
    )
    is_inside_string = 0
    for start in range(0, len(structure), _WINDOW):
        pieces = structure[start : start + _WINDOW].split(b'"')
        yield b"".join(pieces[is_inside_string::2])
        is_inside_string ^= len(pieces) % 2 ^ 1


# ── After decoding ───────────────────────────────────────────────────────────────────────────


def check_value(value: object, limits: Limits) -> None:
    """Check the counts of a decoded reply.

    Args:
        value: The decoded reply.
        limits: The bounds.

    Raises:
        LimitExceededError: The value has too many parts, artifacts or messages.
    """
    check = _CHECKS.get(type(value))
    if check is not None:
        check(value, limits)


def _check_task(task: Task, limits: Limits) -> None:
    if len(task.artifacts) > limits.artifacts:
        problem = f"task {task.id} has more than {limits.artifacts} artifacts"
        raise limit_error("artifacts", limits, problem, executed=True)
    if len(task.history) > limits.history:
        problem = f"task {task.id} has more than {limits.history} messages in its history"
        raise limit_error("history", limits, problem, executed=True)
    if task.status.message is not None:
        _check_parts(task.status.message, limits)
    for message in task.history:
        if len(message.parts) > limits.parts:
            _check_parts(message, limits)
    for artifact in task.artifacts:
        if len(artifact.parts) > limits.parts:
            _check_parts(artifact, limits)


def _check_parts(container: Message | Artifact, limits: Limits) -> None:
    if len(container.parts) > limits.parts:
        owner = (
            "a message" if isinstance(container, Message) else f"artifact {container.artifact_id}"
        )
        problem = f"{owner} has more than {limits.parts} parts"
        raise limit_error("parts", limits, problem, executed=True)


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
    message = event.message if status is None else status.status.message
    for container in (message, None if update is None else update.artifact):
        if container is not None:
            _check_parts(container, limits)


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
