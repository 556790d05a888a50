"""A stream that is cut and resumed: what is sent, and what the caller gets.

`STEPS` is the story; tests/docs/test_pictures.py has a client and a fake agent act it out.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from drawing import DASHED, Picture, seconds

from holdfast.policies import ReconnectPolicy

__all__ = ["STEPS", "Step", "picture"]


class Step(NamedTuple):
    """One thing that happens.

    Attributes:
        what: A request of the client, a reply or a chunk of text from the agent, a cut, or a wait.
        text: The operation, or the text.
        delivered: What the caller gets because of it.
    """

    what: Literal["request", "reply", "chunk", "lost", "held", "cut", "wait"]
    text: str = ""
    delivered: str = ""


STEPS = (
    Step("request", "SendStreamingMessage"),
    Step("chunk", "The moon ", "The moon "),
    Step("chunk", "is ", "is "),
    Step("cut", "connection cut"),
    Step("lost", "384,400 "),
    Step("wait", f"wait up to {seconds(ReconnectPolicy().backoff)}, at random"),
    Step("request", "SubscribeToTask"),
    Step("request", "GetTask"),
    Step("reply", "The moon is 384,400 ", "384,400 "),
    Step("held", "km away."),
    Step("request", "GetTask"),
    Step("reply", "The moon is 384,400 km away.", "km away."),
    Step("chunk", "COMPLETED", "COMPLETED"),
)
"""What happens, in order."""

_CALLER, _CLIENT, _AGENT = 100, 380, 660
_TOP, _ROW = 92, 36


def picture() -> Picture:
    """Return the picture."""
    bottom = _TOP + _ROW * len(STEPS)
    drawing = Picture(
        "A stream that is cut and resumed",
        """Three columns: your code, Holdfast, the agent. Holdfast sends a message with
        SendStreamingMessage; the pieces “The moon ” and “is ” arrive and are delivered. The
        connection is cut, and the piece “384,400 ” is lost. After a short random wait Holdfast
        subscribes to the task and fetches it: the task shows the missed piece, which is delivered.
        The next piece, “km away.”, does not say where in the text it belongs: it is held back
        until GetTask shows it, and then delivered. COMPLETED ends the stream. Each piece was
        delivered once and in order, and the message was sent once.""",
        width=760,
        height=bottom + 40,
    )
    for x, name in ((_CALLER, "your code"), (_CLIENT, "Holdfast"), (_AGENT, "agent")):
        drawing.line((x, 52), (x, bottom - 14), dashes=DASHED)
        drawing.box((x - 70, 20), (140, 32), (name, "strong"), kind="client")
    held_from = 0.0
    for number, step in enumerate(STEPS):
        y = _TOP + _ROW * number
        match step.what:
            case "request":
                drawing.line((_CLIENT, y), (_AGENT, y), kind="client", arrow=True)
                drawing.text((520, y - 6), step.text, style="code", anchor="middle")
            case "cut":
                _cut(drawing, y, step.text)
            case "lost":
                drawing.line((_AGENT, y), (500, y), kind="bad", dashes=DASHED)
                drawing.cross((492, y))
                drawing.text(
                    (580, y - 6), _quoted(step.text), style="bad", anchor="middle"
                )
            case "wait":
                drawing.box((_CLIENT - 115, y - 22), (230, 28), step.text, kind="wait")
            case "held":
                _arrive(drawing, y, step.text)
                held_from = y
            case _:
                if step.what == "reply" and held_from:
                    _held(drawing, held_from + 4, y - 4)
                    held_from = 0.0
                _arrive(drawing, y, step.text)
                _deliver(drawing, y, step.delivered)
    drawing.text(
        (380, bottom + 16),
        "Your code gets each piece once and in order; the message was sent once.",
        style="strong",
        anchor="middle",
    )
    return drawing


def _quoted(text: str) -> str:
    return text if text.isupper() else f"“{text.strip()}”"


def _arrive(drawing: Picture, y: float, text: str) -> None:
    drawing.line((_AGENT, y), (_CLIENT, y), arrow=True)
    drawing.text((520, y - 6), _quoted(text), anchor="middle")


def _deliver(drawing: Picture, y: float, text: str) -> None:
    drawing.line((_CLIENT, y), (_CALLER, y), kind="good", arrow=True)
    drawing.text((240, y - 6), _quoted(text), style="good", anchor="middle")


def _cut(drawing: Picture, y: float, text: str) -> None:
    """Draw a zigzag across the connection."""
    drawing.line(
        *(
            (_CLIENT + 8 + 8 * step, y - 8 + (-5 if step % 2 else 5))
            for step in range(9)
        ),
        kind="bad",
    )
    drawing.line(
        *(
            (_AGENT - 8 - 8 * step, y - 8 + (-5 if step % 2 else 5))
            for step in range(9)
        ),
        kind="bad",
    )
    drawing.text((520, y - 3), text, style="bad", anchor="middle")


def _held(drawing: Picture, begin: float, end: float) -> None:
    """Draw how long a piece is held back."""
    drawing.rectangle((_CLIENT - 5, begin), (10, end - begin), kind="wait", radius=3)
    middle = (begin + end) / 2
    drawing.text(
        (_CLIENT - 14, middle - 16),
        "held back until the task",
        style="wait",
        anchor="end",
    )
    drawing.text(
        (_CLIENT - 14, middle + 2), "shows where it belongs", style="wait", anchor="end"
    )
