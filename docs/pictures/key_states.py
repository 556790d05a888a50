"""What a call with a key does, by the call that the journal has for the key.

The rows are those of the table in `holdfast._client.keyed_calls`.
"""

from __future__ import annotations

import textwrap

from drawing import Kind, Picture, Style

from holdfast._client import keyed_calls

__all__ = ["picture", "rows"]

_TOP, _STEP, _HEIGHT = 84, 62, 50
_LEFT, _LEFT_WIDTH = 24, 270
_RIGHT, _RIGHT_WIDTH = 346, 390

_KINDS: dict[str, Kind] = {
    "none": "client",
    "of": "bad",
    "open": "wait",
    "answered": "good",
    "unknown": "bad",
    "refused": "plain",
}
"""The colour of a row, by the first word of its state."""


def rows() -> list[tuple[str, str]]:
    """Return the rows of the table: the recorded call, and what happens."""
    lines = (keyed_calls.__doc__ or "").splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [
        (state.replace("`", ""), action.replace("`", "")) for state, action in table[1:]
    ]


def picture() -> Picture:
    """Return the picture."""
    table = rows()
    bottom = _TOP + _STEP * len(table)
    drawing = Picture(
        "What a call with a key does",
        "A message of a key is executed at most once. By the call that the journal has for the "
        "key: " + " ".join(f"{state}: {action}." for state, action in table),
        width=760,
        height=bottom + 20,
    )
    drawing.text((_LEFT, 36), "A call with a key", style="title")
    drawing.text((_LEFT, 64), "the call that the journal has", style="muted")
    drawing.text((_RIGHT, 64), "what the new call does", style="muted")
    for number, (state, action) in enumerate(table):
        y = _TOP + _STEP * number
        kind = _KINDS[state.replace(",", " ").split()[0]]
        states = _lines(state, 29, "strong")
        drawing.box((_LEFT, y), (_LEFT_WIDTH, _HEIGHT), *states, kind=kind)
        middle = y + _HEIGHT / 2
        drawing.line(
            (_LEFT + _LEFT_WIDTH, middle), (_RIGHT, middle), kind=kind, arrow=True
        )
        actions = _lines(action, 44, "text")
        drawing.box((_RIGHT, y), (_RIGHT_WIDTH, _HEIGHT), *actions, kind=kind)
    return drawing


def _lines(text: str, width: int, style: Style) -> list[tuple[str, Style]]:
    return [(line, style) for line in textwrap.wrap(text, width)]
