"""Checks of the list of tasks, in which a client searches for a task whose reply was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import InterfaceFacts, ListingFacts, Observations

__all__ = ["check_listing"]

_UNKNOWN = frozenset({-32601, -32004})
_LOST = "clients cannot find a task by it after a lost reply"


def check_listing(observed: Observations, _now: float) -> Iterator[Finding]:
    """Check the list of each interface."""
    for interface in observed.interfaces:
        if interface.listing is not None:
            yield from _list(interface.listing, interface, observed)


def _list(
    listing: ListingFacts, interface: InterfaceFacts, observed: Observations
) -> Iterator[Finding]:
    about, reply = interface.about, listing.reply
    is_v03 = not interface.versions.get("1.0")
    if not reply.is_result:
        is_missing = reply.code in _UNKNOWN or (
            reply.code is None and reply.status in {404, 405, 501}
        )
        yield Finding(
            "list.there",
            "info" if is_v03 else "warning",
            f"ListTasks: {reply.summary}",
            f"{_LOST}; protocol 1.0 has it (A2A 3.1.4)" + (", 0.3 need not" if is_v03 else ""),
            "offer ListTasks" if is_missing or is_v03 else "find out why it fails: it only reads",
            about,
        )
        return
    yield Finding(
        "list.there",
        "ok",
        f"ListTasks: {reply.summary}, {_counted(listing.tasks)} on a small page",
        about=about,
    )
    if not listing.tasks:
        reason = "no listed task can show it"
        if observed.stopped and observed.may_send:  # after the message, the list is probed again
            reason = observed.stopped
        for check in ("list.history", "list.context", *(() if is_v03 else ("list.time",))):
            yield Finding(check, "not measured", reason, about=about)
        return
    if listing.with_history:
        yield Finding(
            "list.history",
            "ok",
            f"messages are listed with {listing.with_history} of {_counted(listing.tasks)}",
            about=about,
        )
    else:
        yield Finding(
            "list.history",
            "info",
            "no listed task has messages in its history, although they were requested",
            _LOST,
            "keep the messages of callers in the history of tasks, and list them",
            about,
        )
    yield _filter("context", "a context that does not exist", listing.in_unknown_context, about)
    if not is_v03:
        yield _filter("time", "a time in the future", listing.after_future, about)


def _filter(name: str, value: str, count: int | None, about: str) -> Finding:
    check = f"list.{name}"
    if count is None:
        return Finding(check, "not measured", f"the list for {value} gave an error", about=about)
    if count == 0:
        return Finding(check, "ok", f"the list for {value} is empty, as it should be", about=about)
    return Finding(
        check,
        "warning",
        f"the list for {value} has {_counted(count)}",
        f"the {name} filter is ignored, so clients must page through all tasks",
        f"filter by {'contextId' if name == 'context' else 'statusTimestampAfter'} (A2A 3.1.4)",
        about,
    )


def _counted(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"
