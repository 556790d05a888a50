"""Streams: whether they begin, come as things happen, stay alive, and can be picked up again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._doctor.findings import Finding
from holdfast._wire.sse import EVENT_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import (
        Answered,
        Observed,
        SendingFacts,
        StreamFacts,
        SubscriptionFacts,
    )

__all__ = ["judge_streaming"]

_SPREAD = 1.0
"""Seconds that must lie between events so that it shows whether they are held back."""

_HELD = 2.0
"""Seconds by the agent's own clock that must lie between: some agents tell whole ones only."""

_AT_ONCE = 0.2
"""Seconds within which events came at once."""

_CUT_AFTER = 60.0
"""Seconds of silence after which common proxies and load balancers cut a stream."""

_SILENT = 15.0
"""Seconds without a byte that are a silence."""

_ENDED = frozenset({"settled", "message", "open"})
"""Ends of streams whose task was over, or waited."""

_NEEDS_MESSAGE = "no message was given to send"
_OF_STREAMS = (
    "streaming.begins",
    "streaming.flushed",
    "streaming.keep-alive",
    "subscribe.snapshot",
    "subscribe.overlap",
    "subscribe.finished",
)


def judge_streaming(observed: Observed, _now: float) -> Iterator[Finding]:
    """Judges what is declared, and the streams that were opened."""
    if observed.card is None:
        return
    declared = bool(observed.card.card.capabilities.streaming)
    saw = "the card declares " + ("streaming" if declared else "no streaming")
    means = "" if declared else "callers ask again and again how a task goes"
    yield Finding("streaming.declared", "ok" if declared else "info", saw, means)
    for interface in observed.interfaces:
        if interface.subscription is not None:
            yield _of_nothing(interface.subscription, interface.about, declared=declared)
    sending = observed.sending
    why = _why_not(observed, declared=declared)
    if why:
        for check in _OF_STREAMS:
            yield Finding(check, "not measured", why)
        return
    if sending is not None and sending.stream is not None:
        for finding in (*_stream(sending.stream, observed), *_subscription(sending, observed)):
            yield msgspec.structs.replace(finding, about=sending.about)


def _why_not(observed: Observed, *, declared: bool) -> str:
    sending = observed.sending
    if not declared:
        return "the card declares no streaming"
    if not observed.is_to_send:
        return _NEEDS_MESSAGE
    if sending is None or sending.stream is None:
        return (sending.why_not if sending is not None else "") or observed.why_unmeasured
    return ""


def _of_nothing(answered: Answered, about: str, *, declared: bool) -> Finding:
    """A subscription to a task that there is not."""
    check, saw = (
        "subscribe.unknown",
        f"a subscription to a task that there is not: {answered.in_words}",
    )
    if answered.code == -32001 or (not declared and answered.code in {-32004, -32601}):
        return Finding(check, "ok", saw, about=about)
    if declared and answered.code in {-32004, -32601}:
        return Finding(
            check,
            "problem",
            saw,
            "the card declares streaming, and the agent does not know of it",
            "offer SubscribeToTask (A2A 3.1.6), or declare no streaming",
            about,
        )
    if answered.status is None:
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
        "info" if answered.is_of_agent else "warning",
        saw,
        "a client that resumes a stream cannot see that the task is gone",
        "answer TaskNotFoundError (-32001; A2A 3.1.6)",
        about,
    )


def _stream(stream: StreamFacts, observed: Observed) -> Iterator[Finding]:
    opened = stream.opened
    if opened is None:
        yield Finding("streaming.begins", "not measured", observed.why_unmeasured)
        return
    if not stream.arrivals:
        yield Finding(
            "streaming.begins",
            "problem",
            f"no event came: {_why_no_event(stream, opened)}",
            "the card declares streaming, and callers that use it get nothing",
            "see why the stream fails, or declare no streaming",
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


def _why_no_event(stream: StreamFacts, opened: Answered) -> str:
    if not opened.is_result:
        return opened.in_words
    if stream.failure:
        return stream.failure
    return "the stream ended at once" if stream.end == "cut" else "the stream stayed silent"


def _flushed(stream: StreamFacts, observed: Observed) -> Finding:
    check = "streaming.flushed"
    came = max(stream.arrivals) - min(stream.arrivals)
    happened = max(stream.stamped) - min(stream.stamped) if stream.stamped else 0.0
    count = len(stream.arrivals)
    is_late = min(stream.arrivals) >= happened - _SPREAD
    if count > 1 and came <= _AT_ONCE and happened >= _HELD and is_late:
        return Finding(
            check,
            "problem",
            f"{count} events came at once, and happened within {happened:.1f} s",
            "a proxy or the server buffers them to the end: callers cannot follow a task, and a "
            "long one is cut",
            "turn buffering off in the proxy (nginx: proxy_buffering off, or the header "
            "X-Accel-Buffering: no), and flush each event",
        )
    if count > 1 and came >= _SPREAD:
        return Finding(check, "ok", f"{count} events over {came:.1f} s, in {stream.pieces} pieces")
    why = f"{_counted(count)} came while it was watched, too few to tell"
    if count > 1 and stream.end in _ENDED:
        why = "the task ended too quickly to tell; send one that takes some seconds"
    elif stream.end is None:
        why = observed.stopped or why
    return Finding(check, "not measured", why)


def _kept_alive(stream: StreamFacts, observed: Observed) -> Finding:
    check, silence = "streaming.keep-alive", f"{stream.silence:.0f} s"
    if stream.comments:
        saw = f"{stream.comments} comments, never silent for longer than {silence}"
        if stream.silence < _CUT_AFTER:
            return Finding(check, "ok", saw)
        return Finding(
            check,
            "warning",
            saw,
            f"proxies cut a stream that is silent for {_CUT_AFTER:.0f} s",
            "send comments more often, such as every 15 s",
        )
    if stream.silence >= _SILENT:
        return Finding(
            check,
            "warning",
            f"silent for {silence}, without a comment",
            f"proxies cut a stream whose silence reaches {_CUT_AFTER:.0f} s, and callers cannot "
            "tell a slow agent from a dead one",
            "send a comment while there are no events, such as every 15 s",
        )
    why = f"the stream was never silent for longer than {silence}"
    if stream.end in _ENDED:
        why = f"{why}; send a task that takes longer"
    elif stream.end is None:
        why = observed.stopped or why
    return Finding(check, "not measured", why)


def _end(stream: StreamFacts) -> Iterator[Finding]:
    if stream.end == "cut":
        why = f": {stream.failure}" if stream.failure else ""
        yield Finding(
            "streaming.end",
            "problem",
            f"the stream ended before the task did{why}",
            "callers that take the end of a stream for the end of the task miss the rest",
            "look for a time limit in the proxy or in the server",
        )
    elif stream.end == "open":
        yield Finding(
            "streaming.end",
            "warning",
            "the stream stayed open when the task was over",
            "callers that wait for its end wait for nothing",
            "end the stream with the task (A2A 3.1.2)",
        )
    elif stream.end is not None:
        yield Finding("streaming.end", "ok", _ENDS[stream.end])


_ENDS = {
    "settled": "the stream ended with the task, or where the task waits",
    "message": "the stream was one message",
    "left": "the stream was left while the task went on",
}


def _subscription(sending: SendingFacts, observed: Observed) -> Iterator[Finding]:
    subscription = sending.subscription
    if sending.is_message:
        for check in _OF_STREAMS[3:]:
            yield Finding(check, "not measured", "there was a message, and no task")
        return
    yield from _running(subscription, observed)
    yield _over(subscription, observed)


def _running(subscription: SubscriptionFacts, observed: Observed) -> Iterator[Finding]:
    opened = subscription.opened
    if opened is None:
        why = observed.stopped or "the task was over before a subscription could be opened"
        yield Finding("subscribe.snapshot", "not measured", why)
        yield Finding("subscribe.overlap", "not measured", why)
        return
    if not opened.is_result:
        yield Finding(
            "subscribe.snapshot",
            "problem",
            f"a subscription to a task that runs: {opened.in_words}",
            "a stream that is cut cannot be picked up again",
            "offer SubscribeToTask (A2A 3.1.6)",
        )
        yield Finding("subscribe.overlap", "not measured", "there was no subscription")
        return
    if subscription.begins_with_task is None:
        why = observed.stopped or "the subscription delivered no event before its end"
        yield Finding("subscribe.snapshot", "not measured", why)
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


def _overlap(subscription: SubscriptionFacts, observed: Observed) -> Finding:
    check = "subscribe.overlap"
    if subscription.text == "right":
        return Finding(
            check,
            "ok",
            "the events of a subscription add up to the whole task",
        )
    if subscription.text is None:
        why = "the task made no text while it was subscribed to, or did not end"
        return Finding(check, "not measured", observed.stopped or why)
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
        "take the snapshot and begin to listen as one step",
    )


def _over(subscription: SubscriptionFacts, observed: Observed) -> Finding:
    check, answered = "subscribe.finished", subscription.of_over
    if answered is None:
        return Finding(check, "not measured", observed.stopped or "the task has not ended yet")
    saw = f"a subscription to a task that has ended: {answered.in_words}"
    if answered.code in {-32004, -32001}:
        return Finding(check, "ok", saw)
    if answered.is_result:
        count = _counted(subscription.events_of_over)
        return Finding(
            check,
            "info",
            f"{saw}; {count}, then the end",
            "the protocol has an error for it; callers that look at the task are well served",
            "answer UnsupportedOperationError (-32004; A2A 3.1.6)",
        )
    return Finding(
        check,
        "info" if answered.is_of_agent else "warning",
        saw,
        "a client that resumes a stream cannot see that the task has ended",
        "answer UnsupportedOperationError (-32004; A2A 3.1.6)",
    )


def _counted(count: int) -> str:
    return f"{count} event" if count == 1 else f"{count} events"
