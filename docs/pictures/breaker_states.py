"""The states of a circuit breaker, with the default numbers of `BreakerPolicy`."""

from __future__ import annotations

from drawing import Picture, seconds

from holdfast._policy.breaker import _JITTER_SHARE
from holdfast.policies import BreakerPolicy

__all__ = ["picture"]


def picture() -> Picture:
    """Return the picture."""
    policy = BreakerPolicy()
    spread = f"± {_JITTER_SHARE:.0%}".replace("%", " %")
    opens = (
        f"{policy.failures} consecutive failures, or",
        f"{policy.failure_rate:.0%} of {policy.min_calls} or more".replace("%", " %"),
        f"calls within {seconds(policy.window)} failed",
    )
    waits = f"after {seconds(policy.open_for)} {spread}"
    longer = (
        "the probe fails:",
        f"open {policy.backoff_factor:g} times as long",
        f"as before, at most {seconds(policy.max_open_for)}",
    )
    drawing = Picture(
        "The states of a circuit breaker",
        f"""Closed: calls pass, failures are counted. After {" ".join(opens)}, the circuit is open:
        calls are refused with CircuitOpenError, and nothing is sent. Half-open, {waits}: one call
        passes, the probe; all others are refused. If the agent answers the probe, the circuit
        closes, unless the answer is 429, or 503 with Retry-After: then the next call is the
        probe. If {" ".join(longer)}.""",
        width=760,
        height=372,
    )
    drawing.box(
        (24, 40),
        (220, 84),
        ("closed", "strong"),
        "calls pass,",
        "failures are counted",
        kind="good",
    )
    drawing.box(
        (516, 40),
        (220, 84),
        ("open", "strong"),
        ("CircuitOpenError", "code"),
        "nothing is sent",
        kind="bad",
    )
    drawing.box(
        (270, 264),
        (220, 84),
        ("half-open", "strong"),
        "one call passes, the probe;",
        "others are refused",
        kind="wait",
    )
    drawing.line((244, 82), (516, 82), kind="bad", arrow=True)
    for line, y in zip(opens, (72, 102, 120), strict=True):
        drawing.text((380, y), line, anchor="middle", width=268)
    drawing.line((676, 124), (676, 320), (490, 320), kind="wait", arrow=True)
    drawing.text((584, 340), waits, anchor="middle")
    drawing.line((420, 264), (420, 196), (570, 196), (570, 124), kind="bad", arrow=True)
    for number, line in enumerate(longer):
        drawing.text((432, 216 + 18 * number), line)
    drawing.line((270, 306), (134, 306), (134, 124), kind="good", arrow=True)
    drawing.text((146, 216), "the agent answers", style="good")
    drawing.text((146, 234), "the probe", style="good")
    drawing.text((24, 340), "429, 503 with Retry-After:", style="muted")
    drawing.text((24, 358), "the next call is the probe", style="muted")
    return drawing
