"""Checks of errors: the replies to an unknown task, and to requests that are not valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import InterfaceFacts, Observations, ReplyFacts

__all__ = ["check_errors"]


class _Row(NamedTuple):
    """An invalid request, and its correct replies.

    Attributes:
        check: The name of the check, and of the fact.
        request: The request in words.
        codes: The correct codes.
        expected: The first of them by name, with its source.
    """

    check: str
    request: str
    codes: frozenset[int]
    expected: str


_ROWS = (
    _Row(
        "task",
        "a task that does not exist",
        frozenset({-32001}),
        "TaskNotFoundError (-32001; A2A 3.3.2)",
    ),
    _Row(
        "method",
        "an unknown method",
        frozenset({-32601}),
        "method not found (-32601; JSON-RPC 5.1)",
    ),
    _Row(
        "params",
        "invalid parameters",
        frozenset({-32602, -32600}),
        "invalid params (-32602; JSON-RPC 5.1)",
    ),
    _Row(
        "broken",
        "a body that is not JSON",
        frozenset({-32700, -32602, -32600}),
        "parse error (-32700; JSON-RPC 5.1)",
    ),
)


def check_errors(observed: Observations, _now: float) -> Iterator[Finding]:
    """Check the errors of each interface."""
    for interface in observed.interfaces:
        if not interface.is_usable:
            continue  # no agent answers, or it requires other credentials
        for row in _ROWS:
            reply: ReplyFacts | None = getattr(interface, row.check)
            if reply is not None:
                yield _check_row(row, reply, interface)
        if interface.path is not None:
            yield _path(interface.path, interface.about)


def _check_row(row: _Row, reply: ReplyFacts, interface: InterfaceFacts) -> Finding:
    check, about = f"errors.{row.check}", interface.about
    saw = f"{row.request}: {reply.summary}"
    if reply.code in row.codes:
        return Finding(check, "ok", saw, about=about)
    # HTTP+JSON has a status for it, and requires no reason (A2A 11.6).
    is_rest = interface.interface.protocol_binding.upper() != "JSONRPC"
    if row.check == "params" and is_rest and reply.status == 400:
        return Finding(check, "ok", saw, about=about)
    if reply.status is None:
        return Finding(
            check,
            "warning",
            saw,
            "a faulty client does not learn about its fault, and retries requests that cannot "
            "succeed",
            f"answer {row.expected}",
            about,
        )
    if reply.is_result:
        return Finding(
            check,
            "problem" if row.check == "task" else "warning",
            saw,
            "an invalid request is answered as if it were valid",
            f"answer {row.expected}",
            about,
        )
    if reply.code is not None:
        return Finding(
            check,
            "info" if row.check != "task" else "warning",
            saw,
            "clients take it for another failure" + _retry_note(reply),
            f"answer {row.expected}",
            about,
        )
    return Finding(
        check,
        "warning",
        saw,
        "clients see an HTTP failure instead of the cause" + _retry_note(reply),
        f"answer {row.expected} in the form of the binding",
        about,
    )


def _retry_note(reply: ReplyFacts) -> str:
    is_transient = reply.code == -32603 or (reply.status or 0) >= 500
    return ", and retry requests that cannot succeed" if is_transient else ""


def _path(reply: ReplyFacts, about: str) -> Finding:
    saw = f"an unknown path: {reply.summary}"
    if reply.status is not None and reply.status < 300:
        return Finding(
            "errors.path",
            "warning",
            saw,
            "a wrong address in a card looks correct",
            "answer 404 to unknown paths",
            about,
        )
    return Finding("errors.path", "ok", saw, about=about)
