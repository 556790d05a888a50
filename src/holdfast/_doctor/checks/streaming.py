"""Checks of streams: whether they start, are flushed, are kept alive, and can be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._doctor.findings import Finding
from holdfast.protocol import EVENT_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import (
        Observations,
        ReplyFacts,
        SendingFacts,
        StreamFacts,
        SubscriptionFacts,
    )

__all__ = ["check_streaming"]

_MIN_SPREAD_S = 1.0
"""Seconds between the first and last event that show that events are not buffered."""

_MIN_AGENT_SPREAD_S = 2.0
"""The same by the agent's own clock; some agents report whole seconds only."""

_BURST_S = 0.2
"""Seconds within which events count as simultaneous."""

_PROXY_IDLE_TIMEOUT_S = 60.0
"""Seconds of silence after which common proxies and load balancers cut a stream."""

_MIN_SILENCE_S = 15.0
"""Seconds without a byte that count as silence."""

_ENDED = frozenset({"settled", "message", "open"})
"""Ends of streams whose task has ended, or waits."""

_NEEDS_MESSAGE = "no test message was passed"
_STREAM_CHECKS = (
    "streaming.begins",
    "streaming.flushed",
    "streaming.keep-alive",
    "subscribe.snapshot",
    "subscribe.overlap",
    "subscribe.finished",
)


def check_streaming(observed: Observations, _now: float) -> Iterator[Finding]:
    """Check the declaration, and the streams that were opened."""
    if observed.card is None:
        return
    declared = bool(observed.card.card.capabilities.streaming)
    saw = "the card declares " + ("streaming" if declared else "no streaming")
    means = "" if declared else "clients have to poll"
    yield Finding("streaming.declared", "ok" if declared else "info", saw, means)
    for interface in observed.interfaces:
        if interface.subscription is not None:
            yield _unknown_task(interface.subscription, interface.about, declared=declared)
    sending = observed.sending
    reason = _not_observed_reason(observed, declared=declared)
    if reason:
        for check in _STREAM_CHECKS:
            yield Finding(check, "not measured", reason)
        return
    if sending is not None and sending.stream is not None:
        for finding in (*_stream(sending.stream, observed), *_subscription(sending, observed)):
            yield msgspec.structs.replace(finding, about=sending.about)


def _not_observed_reason(observed: Observations, *, declared: bool) -> str:
    sending = observed.sending
    if not declared:
        return "the card declares no streaming"
    if not observed.may_send:
        return _NEEDS_MESSAGE
    if sending is None or sending.stream is None:
        return (
            sending.not_sent_reason if sending is not None else ""
        ) or observed.unmeasured_reason
    return ""


def _unknown_task(reply: ReplyFacts, about: str, *, declared: bool) -> Finding:
    """Check the subscription to an unknown task."""
    check, saw = (
        "subscribe.unknown",
        f"a subscription to a task that does not exist: {reply.summary}",
    )
    if reply.code == -32001 or (not declared and reply.code in {-32004, -32601}):
        return Finding(check, "ok", saw, about=about)
    if declared and reply.code in {-32004, -32601}:
        return Finding(
            check,
            "problem",
            saw,
            "the card declares streaming, but the agent does not support it",
            "offer SubscribeToTask (A2A 3.1.6), or declare no streaming",
            about,
        )
    if reply.status is None:
        return Finding(
            check,
            "warning",
            saw,
            "a client that resumes the stream of such a task does not learn that it is gone",
            "answer TaskNotFoundError (-32001; A2A 3.1.6)",
            about,
        )
    return Finding(
        check,
        "info" if reply.is_protocol_reply else "warning",
        saw,
        "a client that resumes a stream cannot see that the task is gone",
        "answer TaskNotFoundError (-32001; A2A 3.1.6)",
        about,
    )


def _stream(stream: StreamFacts, observed: Observations) -> Iterator[Finding]:
    opened = stream.opened
    if opened is None:
        yield Finding("streaming.begins", "not measured", observed.unmeasured_reason)
        return
    if not stream.arrivals:
        yield Finding(
            "streaming.begins",
            "problem",
            f"no event came: {_no_event_reason(stream, opened)}",
            "the card declares streaming, but clients get no events",
            "find out why the stream fails, or declare no streaming",
        )
        return
    count, first = len(stream.arrivals), stream.arrivals[0]
    saw = f"{_counted(count)}, the first after {first:.1f} s"
    if opened.media_type != EVENT_STREAM:
        yield Finding(
            "streaming.begins",
            "warning",
            f"{saw}, as {opened.media_type or 'nothing that is said'}",
            f"callers that expect {EVENT_STREAM} do not read it as a stream",
            f"send streams as {EVENT_STREAM} (A2A 9.4.2)",
        )
    else:
        yield Finding("streaming.begins", "ok", saw)
    yield _flushed(stream, observed)
    yield _kept_alive(stream, observed)
    yield from _end(stream)


def _no_event_reason(stream: StreamFacts, opened: ReplyFacts) -> str:
    if not opened.is_result:
        return opened.summary
    if stream.failure:
        return stream.failure
    return "the stream ended at once" if stream.end == "cut" else "the stream stayed silent"


def _flushed(stream: StreamFacts, observed: Observations) -> Finding:
    check = "streaming.flushed"
    spread = max(stream.arrivals) - min(stream.arrivals)
    agent_spread = max(stream.timestamps) - min(stream.timestamps) if stream.timestamps else 0.0
    count = len(stream.arrivals)
    is_late = min(stream.arrivals) >= agent_spread - _MIN_SPREAD_S
    if count > 1 and spread <= _BURST_S and agent_spread >= _MIN_AGENT_SPREAD_S and is_late:
        return Finding(
            check,
            "problem",
            f"{count} events came at once, and happened within {agent_spread:.1f} s",
            "a proxy or the server buffers the stream: clients cannot follow a task, and long "
            "tasks are cut off",
            "turn buffering off in the proxy (nginx: proxy_buffering off, or the header "
            "X-Accel-Buffering: no), and flush each event",
        )
    if count > 1 and spread >= _MIN_SPREAD_S:
        saw = f"{count} events over {spread:.1f} s, in {stream.pieces} pieces"
        return Finding(check, "ok", saw)
    reason = f"{_counted(count)} arrived during the examination, too few to measure"
    if count > 1 and stream.end in _ENDED:
        reason = "the task ended too quickly to measure; send a message that takes some seconds"
    elif stream.end is None:
        reason = observed.stopped or reason
    return Finding(check, "not measured", reason)


def _kept_alive(stream: StreamFacts, observed: Observations) -> Finding:
    check, silence = "streaming.keep-alive", f"{stream.silence:.0f} s"
    if stream.comments:
        saw = f"{stream.comments} comments, never silent for longer than {silence}"
        if stream.silence < _PROXY_IDLE_TIMEOUT_S:
            return Finding(check, "ok", saw)
        return Finding(
            check,
            "warning",
            saw,
            f"proxies cut a stream that is silent for {_PROXY_IDLE_TIMEOUT_S:.0f} s",
            "send comments more often, such as every 15 s",
        )
    if stream.silence >= _MIN_SILENCE_S:
        return Finding(
            check,
            "warning",
            f"silent for {silence}, without a comment",
            f"proxies cut a stream whose silence reaches {_PROXY_IDLE_TIMEOUT_S:.0f} s, and "
            "clients cannot distinguish a slow agent from a crashed one",
            "send a comment while there are no events, such as every 15 s",
        )
    reason = f"the stream was never silent for longer than {silence}"
    if stream.end in _ENDED:
        reason = f"{reason}; send a task that takes longer"
    elif stream.end is None:
        reason = observed.stopped or reason
    return Finding(check, "not measured", reason)


def _end(stream: StreamFacts) -> Iterator[Finding]:
    if stream.end == "cut":
        reason = f": {stream.failure}" if stream.failure else ""
        yield Finding(
            "streaming.end",
            "problem",
            f"the stream ended before the task did{reason}",
            "clients that take the end of the stream for the end of the task miss the rest",
            "check the time limits of the proxy and the server",
        )
    elif stream.end == "open":
        yield Finding(
            "streaming.end",
            "warning",
            "the stream stayed open after the task had ended",
            "clients that wait for its end never continue",
            "end the stream with the task (A2A 3.1.2)",
        )
    elif stream.end is not None:
        yield Finding("streaming.end", "ok", _ENDS[stream.end])


_ENDS = {
    "settled": "the stream ended with the task, or where the task waits",
    "message": "the stream was one message",
    "left": "the stream was closed while the task was running",
}


def _subscription(sending: SendingFacts, observed: Observations) -> Iterator[Finding]:
    subscription = sending.subscription
    if sending.is_message:
        for check in _STREAM_CHECKS[3:]:
            yield Finding(check, "not measured", "there was a message, and no task")
        return
    yield from _running(subscription, observed)
    yield _over(subscription, observed)


def _running(subscription: SubscriptionFacts, observed: Observations) -> Iterator[Finding]:
    opened = subscription.opened
    if opened is None:
        reason = observed.stopped or "the task was over before a subscription could be opened"
        yield Finding("subscribe.snapshot", "not measured", reason)
        yield Finding("subscribe.overlap", "not measured", reason)
        return
    if not opened.is_result:
        yield Finding(
            "subscribe.snapshot",
            "problem",
            f"a subscription to a task that runs: {opened.summary}",
            "a cut stream cannot be resumed",
            "offer SubscribeToTask (A2A 3.1.6)",
        )
        yield Finding("subscribe.overlap", "not measured", "there was no subscription")
        return
    if subscription.begins_with_task is None:
        reason = observed.stopped or "the subscription delivered no event before its end"
        yield Finding("subscribe.snapshot", "not measured", reason)
    elif subscription.begins_with_task:
        yield Finding(
            "subscribe.snapshot", "ok", "a subscription begins with the task as it stands"
        )
    else:
        yield Finding(
            "subscribe.snapshot",
            "warning",
            "a subscription does not begin with the task",
            "a client that resumes a stream misses the events in between, unless it gets the task",
            "send the task first (A2A 3.1.6)",
        )
    yield _overlap(subscription, observed)


def _overlap(subscription: SubscriptionFacts, observed: Observations) -> Finding:
    check = "subscribe.overlap"
    if subscription.text == "right":
        return Finding(
            check,
            "ok",
            "the events of a subscription add up to the whole task",
        )
    if subscription.text is None:
        reason = "the task produced no text during the subscription, or did not end"
        return Finding(check, "not measured", observed.stopped or reason)
    saw, means = {
        "repeated": (
            "a subscription repeats chunks that the task at its beginning contains",
            "callers that append chunks show text twice",
        ),
        "lost": (
            "chunks are missing between the task at its beginning and what follows",
            "callers that append chunks lose text",
        ),
    }[subscription.text]
    return Finding(
        check,
        "warning",
        saw,
        means,
        "take the snapshot and subscribe to events atomically",
    )


def _over(subscription: SubscriptionFacts, observed: Observations) -> Finding:
    check, reply = "subscribe.finished", subscription.after_end
    if reply is None:
        return Finding(check, "not measured", observed.stopped or "the task has not ended yet")
    saw = f"a subscription to a task that has ended: {reply.summary}"
    if reply.code in {-32004, -32001}:
        return Finding(check, "ok", saw)
    if reply.is_result:
        count = _counted(subscription.events_after_end)
        return Finding(
            check,
            "info",
            f"{saw}; {count}, then the end",
            "the protocol defines an error for it; clients that read the task are not affected",
            "answer UnsupportedOperationError (-32004; A2A 3.1.6)",
        )
    return Finding(
        check,
        "info" if reply.is_protocol_reply else "warning",
        saw,
        "a client that resumes a stream cannot see that the task has ended",
        "answer UnsupportedOperationError (-32004; A2A 3.1.6)",
    )


def _counted(count: int) -> str:
    return f"{count} event" if count == 1 else f"{count} events"
