"""The share of calls that succeed during and after an outage, by the policies of the clients.

`benchmarks/outage.py --curves docs/pictures/outage_curves.json` makes the numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

from drawing import Kind, Picture

__all__ = ["CURVES", "picture"]

CURVES = Path(__file__).parent / "outage_curves.json"
"""By outage and policies: the percentage of successful calls, for each second of their start."""

_BEFORE, _SECONDS = 10, 100
"""Seconds before the outage, and in all."""

_LINES: dict[str, tuple[Kind, str, float]] = {
    "no retry": ("plain", "2 3", 2),
    "3 retries": ("bad", "8 3 2 3", 1.5),
    "3 retries, budget": ("client", "6 5", 1.5),
    "3 retries, budget, breaker": ("good", "", 2.5),
}
_LEFT, _RIGHT, _TOP, _STEP, _HEIGHT = 62, 736, 84, 158, 100


def picture() -> Picture:
    """Return the picture."""
    curves: dict[str, dict[str, list[float]]] = json.loads(
        CURVES.read_text(encoding="utf-8")
    )
    bottom = _TOP + _STEP * len(curves)
    drawing = Picture(
        "What an outage costs",
        f"""The percentage of calls that succeed, second by second, for clients with
        {"; ".join(_LINES)}. {" ".join(_summary(*curve) for curve in curves.items())}""",
        width=760,
        height=bottom + 8,
    )
    for x, (name, (kind, dashes, width)) in zip(
        (24, 160, 298, 484), _LINES.items(), strict=True
    ):
        drawing.line((x, 26), (x + 34, 26), kind=kind, dashes=dashes, width=width)
        drawing.text((x + 42, 31), name)
    drawing.text(
        (24, 56), "% of the calls that began in a second and succeeded", style="muted"
    )
    for number, (name, lines) in enumerate(curves.items()):
        _panel(drawing, _TOP + _STEP * number, name, lines)
    drawing.text(
        (_RIGHT, bottom - 6),
        "seconds since the outage began",
        style="muted",
        anchor="end",
    )
    return drawing


def _panel(
    drawing: Picture, top: float, name: str, lines: dict[str, list[float]]
) -> None:
    """Draw the curves of one outage."""
    drawing.text((_LEFT, top), name, style="strong")
    top, low = top + 12, top + 12 + _HEIGHT
    outage = int(name.split(maxsplit=1)[0])
    drawing.rectangle((_x(0), top), (_x(outage) - _x(0), _HEIGHT), radius=0)
    drawing.text(
        (_x(outage / 2), top + _HEIGHT / 2), "outage", style="muted", anchor="middle"
    )
    drawing.line((_LEFT, top), (_LEFT, low), (_RIGHT, low), width=1)
    for percent in (0, 50, 100):
        y = low - _HEIGHT * percent / 100
        drawing.text((_LEFT - 8, y + 5), str(percent), style="muted", anchor="end")
    for second in range(0, _SECONDS - _BEFORE, 20):
        drawing.line((_x(second), low), (_x(second), low + 4), width=1)
        drawing.text(
            (_x(second), low + 20), str(second), style="muted", anchor="middle"
        )
    for policies, percents in lines.items():
        kind, dashes, width = _LINES[policies]
        points = [
            (_x(second + 0.5 - _BEFORE), low - _HEIGHT * percent / 100)
            for second, percent in enumerate(percents)
        ]
        drawing.line(*points, kind=kind, dashes=dashes, width=width)


def _x(second: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * (second + _BEFORE) / _SECONDS


def _summary(name: str, lines: dict[str, list[float]]) -> str:
    """Return when the calls succeed again, in words."""
    ends = int(name.split(maxsplit=1)[0])
    seconds = {
        policies: next(
            (
                second - _BEFORE - ends
                for second in range(_BEFORE + ends, len(percents))
                if min(percents[second:]) >= 95
            ),
            None,
        )
        for policies, percents in lines.items()
    }
    recovered = [
        f"with {policies} "
        + ("not within the plot" if after is None else f"{after} s after the outage")
        for policies, after in seconds.items()
    ]
    return f"{name}: at least 95 % succeed again {', '.join(recovered)}."
