"""The list of tasks, where a client looks for a task whose reply was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import InterfaceFacts, ListingFacts, Observed

__all__ = ["judge_listing"]

_UNKNOWN = frozenset({-32601, -32004})
_LOST = "a task whose reply was lost cannot be found again by it"


def judge_listing(observed: Observed, _now: float) -> Iterator[Finding]:
    """Judges the list of each interface."""
    for interface in observed.interfaces:
        if interface.listing is not None:
            yield from _list(interface.listing, interface, observed)


def _list(
    listing: ListingFacts, interface: InterfaceFacts, observed: Observed
) -> Iterator[Finding]:
    about, answered = interface.about, listing.answered
    is_older = not interface.versions.get("1.0")
    if not answered.is_result:
        is_missing = answered.code in _UNKNOWN or (
            answered.code is None and answered.status in {404, 405, 501}
        )
        yield Finding(
            "list.there",
            "info" if is_older else "warning",
            f"ListTasks: {answered.in_words}",
            f"{_LOST}; protocol 1.0 has it (A2A 3.1.4)" + (", 0.3 need not" if is_older else ""),
            "offer ListTasks" if is_missing or is_older else "see why it fails: it only reads",
            about,
        )
        return
    yield Finding(
        "list.there",
        "ok",
        f"ListTasks: {answered.in_words}, {_counted(listing.tasks)} on a small page",
        about=about,
    )
    if not listing.tasks:
        why = "there are no tasks in the list that could show it"
        if observed.stopped and observed.is_to_send:  # it would have been looked at again
            why = observed.stopped
        for check in ("list.history", "list.context", *(() if is_older else ("list.time",))):
            yield Finding(check, "not measured", why, about=about)
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
            "no listed task has messages in its history, though they were asked for",
            _LOST,
            "keep the messages of callers in the history of tasks, and list them",
            about,
        )
    yield _filter("context", "a context that there is not", listing.of_no_context, about)
    if not is_older:
        yield _filter("time", "a time to come", listing.of_the_future, about)


def _filter(name: str, of: str, count: int | None, about: str) -> Finding:
    check = f"list.{name}"
    if count is None:
        return Finding(check, "not measured", f"the list for {of} gave an error", about=about)
    if count == 0:
        return Finding(check, "ok", f"the list for {of} is empty, as it should be", about=about)
    return Finding(
        check,
        "warning",
        f"the list for {of} has {_counted(count)}",
        f"the {name} that is asked for counts for nothing; callers page through all tasks to find "
        "their own",
        f"filter by {'contextId' if name == 'context' else 'statusTimestampAfter'} (A2A 3.1.4)",
        about,
    )


def _counted(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"
