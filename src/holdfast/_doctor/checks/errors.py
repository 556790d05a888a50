"""How the agent says no: to a task that there is not, and to what makes no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import Answered, InterfaceFacts, Observed

__all__ = ["judge_errors"]


class _Row(NamedTuple):
    """What a request that cannot be right is to be answered by.

    Attributes:
        check: The check.
        asked: What was asked, in words.
        codes: The protocol's codes that are right.
        right: The first of them by its name, and where that is written.
    """

    check: str
    asked: str
    codes: frozenset[int]
    right: str


_ROWS = (
    _Row(
        "task",
        "a task that there is not",
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
        "impossible parameters",
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


def judge_errors(observed: Observed, _now: float) -> Iterator[Finding]:
    """Judges the errors of each interface."""
    for interface in observed.interfaces:
        if not interface.is_usable:
            continue  # what answers there is no agent, or says nothing without credentials
        for row in _ROWS:
            answered: Answered | None = getattr(interface, row.check)
            if answered is not None:
                yield _judged(row, answered, interface)
        if interface.path is not None:
            yield _path(interface.path, interface.about)


def _judged(row: _Row, answered: Answered, interface: InterfaceFacts) -> Finding:
    check, about = f"errors.{row.check}", interface.about
    saw = f"{row.asked}: {answered.in_words}"
    if answered.code in row.codes:
        return Finding(check, "ok", saw, about=about)
    # HTTP+JSON has a status for it, and no name that must be told (A2A 11.6).
    is_rest = interface.interface.protocol_binding.upper() != "JSONRPC"
    if row.check == "params" and is_rest and answered.status == 400:
        return Finding(check, "ok", saw, about=about)
    if answered.status is None:
        return Finding(
            check,
            "warning",
            saw,
            "a client with a mistake in it does not learn that, and tries again what cannot work",
            f"answer {row.right}",
            about,
        )
    if answered.is_result:
        return Finding(
            check,
            "problem" if row.check == "task" else "warning",
            saw,
            "what makes no sense is answered as if it did",
            f"answer {row.right}",
            about,
        )
    if answered.code is not None:
        return Finding(
            check,
            "info" if row.check != "task" else "warning",
            saw,
            "callers take it for another failure" + _tried_again(answered),
            f"answer {row.right}",
            about,
        )
    return Finding(
        check,
        "warning",
        saw,
        "callers see a failure of HTTP, and not what is wrong" + _tried_again(answered),
        f"answer {row.right} in the form of the binding",
        about,
    )


def _tried_again(answered: Answered) -> str:
    is_transient = answered.code == -32603 or (answered.status or 0) >= 500
    return ", and try again what cannot work" if is_transient else ""


def _path(answered: Answered, about: str) -> Finding:
    saw = f"an unknown path: {answered.in_words}"
    if answered.status is not None and answered.status < 300:
        return Finding(
            "errors.path",
            "warning",
            saw,
            "a wrong address in a card looks as if it were right",
            "answer 404 to paths that there are not",
            about,
        )
    return Finding("errors.path", "ok", saw, about=about)
