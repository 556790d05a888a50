"""The timeouts of a call on a time axis, with their defaults."""

from __future__ import annotations

from drawing import Kind, Picture, seconds

from holdfast._client.options import CALL_TIMEOUT
from holdfast.policies import ReconcilePolicy, ReconnectPolicy, RetryPolicy, Timeouts

__all__ = ["picture"]

_LEFT, _RIGHT = 24, 736


def picture() -> Picture:
    """Return the picture."""
    limits, reconnect = Timeouts(), ReconnectPolicy()
    call, search = seconds(CALL_TIMEOUT), seconds(ReconcilePolicy().timeout)
    idle, quiet = seconds(limits.idle), seconds(reconnect.max_quiet)
    drawing = Picture(
        "Which timeout bounds what",
        f"""The timeout of a call, {call} by default, bounds all of it: queueing, attempts, waits
        between them, and the search after a lost reply. Within an attempt, Timeouts has one limit
        each for pool ({seconds(limits.pool)}: a free connection), connect
        ({seconds(limits.connect)}: name resolution, TCP and TLS), write ({seconds(limits.write)}:
        each wait to send), first_byte ({seconds(limits.first_byte)}: the wait for the reply) and
        idle ({idle}: between two pieces of the reply). The search after a lost reply takes
        at most {search} (ReconcilePolicy.timeout). A stream has no timeout in total unless the
        call names one: each connection is bounded by idle, and a polled stream fails after
        {quiet} without a change (ReconnectPolicy.max_quiet).""",
        width=760,
        height=420,
    )
    drawing.text((_LEFT, 32), "A call", style="title")
    drawing.box(
        (_LEFT, 46),
        (_RIGHT - _LEFT, 30),
        f"timeout={CALL_TIMEOUT:g}: everything below, in all",
        kind="client",
    )
    parts: tuple[tuple[str, str, int, Kind], ...] = (
        ("queue", "for a slot", 88, "wait"),
        ("pool", seconds(limits.pool), 58, "plain"),
        ("connect", seconds(limits.connect), 72, "plain"),
        ("write", seconds(limits.write), 58, "plain"),
        ("first_byte", seconds(limits.first_byte), 92, "plain"),
        ("idle", idle, 76, "plain"),
        ("retry wait", f"≤ {seconds(RetryPolicy().max_retry_after)}", 96, "wait"),
        ("attempt 2", "the same", 106, "plain"),
    )
    x = float(_LEFT)
    for name, bound, width, kind in parts:
        drawing.box((x, 110), (width, 48), name, (bound, "muted"), kind=kind)
        x += width + (_RIGHT - _LEFT - sum(part[2] for part in parts)) / (
            len(parts) - 1
        )
    drawing.line((122, 104), (122, 98), (514, 98), (514, 104), kind="client")
    drawing.text((318, 94), "attempt 1: Timeouts(…)", style="muted", anchor="middle")
    drawing.text((_LEFT, 180), "idle: between two pieces of the reply.", style="muted")
    drawing.text(
        (_RIGHT, 180),
        "retry wait: random, at least Retry-After.",
        style="muted",
        anchor="end",
    )
    drawing.box(
        (_LEFT, 196),
        (_RIGHT - _LEFT, 30),
        f"after a lost reply: the search for the message, ReconcilePolicy.timeout: {search}",
        kind="wait",
    )
    drawing.text((_LEFT, 268), "A stream", style="title")
    drawing.text(
        (122, 268), "no timeout in total, unless you pass timeout=", style="muted"
    )
    drawing.box(
        (_LEFT, 284), (216, 48), "connection", (f"idle: {idle} without a byte", "muted")
    )
    drawing.box(
        (252, 284),
        (150, 48),
        "reconnect wait",
        (f"≤ {reconnect.backoff:g}, 1, 2 … {seconds(reconnect.max_backoff)}", "muted"),
        kind="wait",
    )
    drawing.box((414, 284), (110, 48), "connection", ("the same", "muted"))
    drawing.box(
        (536, 284),
        (200, 48),
        "polling",
        (f"{quiet} without a change", "muted"),
    )
    drawing.line((_LEFT, 352), (_RIGHT, 352), arrow=True)
    drawing.text((_RIGHT, 374), "time", style="muted", anchor="end")
    drawing.text(
        (_LEFT, 374),
        f"A stream polls after {reconnect.max_reconnects} reconnects without a new event.",
    )
    drawing.text(
        (_LEFT, 396),
        "The error names the timeout that expired: error.phase, error.deadline.",
    )
    return drawing
