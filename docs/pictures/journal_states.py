"""The states of a call that is recorded in a journal, and what follows a crash in each of them."""

from __future__ import annotations

import inspect
from typing import NamedTuple, get_args

from drawing import DASHED, Kind, Picture, Style

from holdfast.errors import CallOutcome
from holdfast.extend import SqliteJournal

__all__ = ["picture"]

_TOP, _STEP, _HEIGHT = 92, 74, 50
_LEFT, _RIGHT, _WIDTH = 24, 436, 300


class _State(NamedTuple):
    """A state, what the journal has by then, and what `resume_pending` does after a crash."""

    name: str
    journal: str
    kind: Kind
    resumed: tuple[str, str]


_STATES = (
    _State(
        "ask() is called",
        "no record yet",
        "plain",
        ("nothing to resume", "nothing was sent"),
    ),
    _State(
        "recorded",
        "on disk: message id, agent, time",
        "client",
        ("searches for the message", "not sent again, even if not found"),
    ),
    _State(
        "sent",
        "the record is the same",
        "wait",
        ("searches for the message", "not found: unknown, stays pending"),
    ),
    _State(
        "task known",
        "the record has the task id and state",
        "wait",
        ("resumes the task", "subscribes to it, or polls it"),
    ),
    _State(
        "answer received",
        "the record is the same",
        "wait",
        ("fetches the task", "its answer is yielded again"),
    ),
    _State("finished", "the record has the outcome", "good", ("nothing to resume", "")),
)


def picture() -> Picture:
    """Return the picture."""
    bottom = _TOP + _STEP * len(_STATES)
    outcomes = ", ".join(get_args(CallOutcome))
    days = inspect.signature(SqliteJournal).parameters["retention"].default / 86_400
    drawing = Picture(
        "The states of a call in the journal",
        " ".join(
            f"{state.name}: {state.journal}; after a crash here, resume_pending(): "
            f"{', '.join(text for text in state.resumed if text)}."
            for state in _STATES
        )
        + f" The outcomes of a finished call are {outcomes}. A finished record is kept {days:g}"
        " days. No message is sent again in any of these cases.",
        width=760,
        height=bottom + 44,
    )
    drawing.text((_LEFT, 36), "A call with a journal", style="title")
    drawing.text((_RIGHT, 36), "After a crash here", style="title")
    drawing.text((_RIGHT, 60), "resume_pending()", style="code")
    drawing.text((_LEFT, 60), "what the journal has", style="muted")
    for number, state in enumerate(_STATES):
        y = _TOP + _STEP * number
        drawing.box(
            (_LEFT, y),
            (_WIDTH, _HEIGHT),
            (state.name, "strong"),
            (state.journal, "muted"),
            kind=state.kind,
        )
        if number + 1 < len(_STATES):
            x = _LEFT + _WIDTH / 2
            drawing.line((x, y + _HEIGHT), (x, y + _STEP), arrow=True)
        title, detail = state.resumed
        is_done = title == "nothing to resume"
        lines: list[tuple[str, Style]] = [(title, "text" if is_done else "strong")]
        lines += [(detail, "muted")] if detail else []
        drawing.line(
            (_LEFT + _WIDTH, y + 25),
            (_RIGHT, y + 25),
            kind="bad",
            dashes=DASHED,
            arrow=True,
        )
        drawing.text(
            (_LEFT + _WIDTH + 52, y + 19), "crash", style="bad", anchor="middle"
        )
        drawing.box(
            (_RIGHT, y),
            (_WIDTH, _HEIGHT),
            *lines,
            kind="plain" if is_done else "client",
        )
    drawing.text((_LEFT, bottom + 4), f"outcomes: {outcomes}", style="muted")
    drawing.text(
        (_LEFT, bottom + 24),
        f"A finished record is kept for {days:g} days; that of a key or a run, for ever.",
        style="muted",
    )
    return drawing
