"""The decision whether a failed attempt is retried, with the reason that an error then gives.

The reasons come from `holdfast._policy.retry.decide`, which is asked in each case.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

from drawing import Picture, seconds

from holdfast._policy.retry import GiveUp, backoff, decide
from holdfast.errors import A2AError
from holdfast.policies import BudgetPolicy, RetryPolicy

if TYPE_CHECKING:
    from holdfast._model.operations import Safety

__all__ = ["picture"]

_POLICY = RetryPolicy()
_WIDTH, _LEFT, _TOP, _STEP = 760, 24, 84, 66
_QUESTION = (372, 46)
_REASON_CHARACTERS = 36


class _Question(NamedTuple):
    """One question, and the reason for no retry if the answer is no."""

    lines: tuple[str, str]
    reason: str


def picture() -> Picture:
    """Return the picture."""
    questions = _questions()
    bottom = _TOP + _STEP * len(questions)
    drawing = Picture(
        "When a failed attempt is retried",
        f"""Questions are asked in this order; the first no ends the call with the error, whose
        retry_stopped_reason is given. {_as_text(questions)} If all answers are yes, the client
        waits and makes another attempt. The wait is random, up to {_waits()}, and never shorter
        than Retry-After. If the circuit of the endpoint is open, another endpoint is called, or
        the call waits for the circuit.""",
        width=_WIDTH,
        height=bottom + 122,
    )
    drawing.box(
        (_LEFT + 96, 20), (180, 36), ("an attempt failed", "strong"), kind="bad"
    )
    drawing.text((450, 43), "error.retry_stopped_reason", style="code")
    middle = _LEFT + _QUESTION[0] / 2
    drawing.line((middle, 56), (middle, _TOP), arrow=True)
    for number, question in enumerate(questions):
        y = _TOP + _STEP * number
        first, second = question.lines
        drawing.box(
            (_LEFT, y), _QUESTION, (first, "strong"), (second, "muted"), kind="client"
        )
        right = _LEFT + _QUESTION[0]
        drawing.line((right, y + 23), (430, y + 23), kind="bad", arrow=True)
        drawing.text((right + 16, y + 18), "no", style="bad", anchor="middle")
        drawing.box(
            (430, y + 2),
            (314, 42),
            *textwrap.wrap(question.reason, _REASON_CHARACTERS),
            kind="bad",
            anchor="start",
        )
        below = y + _STEP
        drawing.line(
            (middle, y + _QUESTION[1]), (middle, below), kind="good", arrow=True
        )
        drawing.text((middle + 10, below - 6), "yes", style="good")
    drawing.box(
        (_LEFT, bottom),
        _QUESTION,
        ("wait", "strong"),
        (f"random, up to {_waits()}; ≥ Retry-After", "muted"),
        kind="wait",
    )
    drawing.line((middle, bottom + 46), (middle, bottom + 66), kind="good", arrow=True)
    drawing.box(
        (_LEFT + 96, bottom + 66), (180, 36), ("next attempt", "strong"), kind="good"
    )
    drawing.text((430, bottom + 18), "Circuit open by then: another endpoint,")
    drawing.text((430, bottom + 36), "or wait until it lets a call pass.")
    return drawing


def _as_text(questions: tuple[_Question, ...]) -> str:
    return " ".join(
        f"{' '.join(each.lines)}. If not: {each.reason}." for each in questions
    )


def _questions() -> tuple[_Question, ...]:
    """Return the questions in the order of `decide`."""
    passing, longest = (
        A2AError("x", transient=True, executed=False),
        _POLICY.max_retry_after,
    )
    half = BudgetPolicy().tokens / 2
    return (
        _Question(
            ("Is the failure transient?", "error.transient: it may pass by itself"),
            _reason(A2AError("x", transient=False)),
        ),
        _Question(
            (
                "May the operation run again?",
                "a read: yes; a message: executed is False",
            ),
            _reason(A2AError("x", transient=True)),
        ),
        _Question(
            ("Are retries left?", f"max_retries={_POLICY.max_retries}"),
            _reason(passing, attempt=_POLICY.max_retries + 1),
        ),
        _Question(
            (
                "Does retry_predicate return True?",
                "not set by default; it can only prevent a retry",
            ),
            _reason(passing, policy=RetryPolicy(retry_predicate=lambda _: False)),
        ),
        _Question(
            ("Is Retry-After short enough?", f"at most max_retry_after={longest:g} s"),
            _reason(
                A2AError("x", transient=True, executed=False, retry_after=2 * longest)
            ),
        ),
        _Question(
            ("Does the wait end before the deadline?", "timeout= of the call"),
            _reason(passing, time_left=0.5),
        ),
        _Question(
            (
                "Are tokens left in the retry budget?",
                f"more than {half:g}, or another endpoint",
            ),
            _reason(passing, within_budget=False),
        ),
    )


def _reason(
    error: A2AError,
    *,
    policy: RetryPolicy = _POLICY,
    attempt: int = 1,
    time_left: float = 100.0,
    within_budget: bool = True,
) -> str:
    """Return the reason for no retry of a message."""
    safety: Safety = "conditional"
    decision = decide(
        policy,
        error,
        safety=safety,
        attempt=attempt,
        time_left=time_left,
        draw=1.0,
        within_budget=within_budget,
    )
    assert isinstance(decision, GiveUp)  # noqa: S101  else the picture would show a retry as none
    return decision.reason


def _waits() -> str:
    """Return the longest wait before each retry."""
    *first, last = (
        backoff(_POLICY, number, 1.0) for number in range(1, _POLICY.max_retries + 1)
    )
    return f"{', '.join(f'{wait:g}' for wait in first)} and {seconds(last)}"
