"""Draw a picture as SVG that is readable in light and dark, without anything from outside.

A picture has its own ground, so that it is readable on pages of any colour. Text stays text. A
text that would not fit its box raises an error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DASHED", "Anchor", "Kind", "Picture", "Point", "Style", "seconds"]

Kind = Literal["plain", "client", "good", "wait", "bad"]
"""What a shape stands for, by its colour: grey, blue, green, amber or red."""

Style = Literal["text", "strong", "muted", "code", "good", "wait", "bad", "title"]
"""How a text looks."""

Anchor = Literal["start", "middle", "end"]

Point = tuple[float, float]

DASHED = "5 4"
"""The pattern of a dashed line: the lengths of a dash and of a gap, in pixels."""

LINE_HEIGHT = 18
"""Pixels from one line of text to the next."""

_SIZE = 14
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, 'SF Mono', Menlo, 'DejaVu Sans Mono', monospace"

_COLOURS = {  # in light and dark
    "ground": ("#ffffff", "#15171b"),
    "frame": ("#d0d7de", "#3a414b"),
    "text": ("#1f2328", "#e6e8eb"),
    "muted": ("#57606a", "#9da7b3"),
}
_SHAPES: dict[Kind, tuple[tuple[str, str], tuple[str, str]]] = {
    # kind: (fill in light, in dark), (line and text in light, in dark)
    "plain": (("#f3f5f7", "#23272e"), ("#7d8793", "#7f8a97")),
    "client": (("#e0eefc", "#132f4c"), ("#1f6bb8", "#62a8f0")),
    "good": (("#e0f3e5", "#16351f"), ("#1e7d3e", "#56c279")),
    "wait": (("#fdf0d2", "#3b2e12"), ("#8f5d0c", "#e0ab48")),
    "bad": (("#fce6e4", "#431c1d"), ("#b8322c", "#f27c75")),
}


class Picture:
    """A picture that grows by the calls of its methods.

    Args:
        title: Name of the picture, for readers who do not see it.
        description: All that the picture shows, for the same readers.
        width: Width in pixels.
        height: Height in pixels.
    """

    def __init__(
        self, title: str, description: str, *, width: int, height: int
    ) -> None:
        self._title = title
        self._description = " ".join(description.split())
        self._width, self._height = width, height
        self._elements: list[str] = []

    def text(
        self,
        at: Point,
        text: str,
        *,
        style: Style = "text",
        anchor: Anchor = "start",
        width: float | None = None,
    ) -> None:
        """Write one line, whose baseline begins, is centred or ends at a point.

        Raises:
            ValueError: It is wider than `width`, or leaves the picture.
        """
        x, y = at
        needed = _width_of(text, style)
        left = {"start": x, "middle": x - needed / 2, "end": x - needed}[anchor]
        if width is not None and needed > width:
            message = f"{text!r} needs {needed:.0f} px, and has {width:.0f}"
            raise ValueError(message)
        if left < 0 or left + needed > self._width or not 0 < y <= self._height:
            message = f"{text!r} leaves the picture"
            raise ValueError(message)
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._add(
            f'<text class="{style}" x="{x:g}" y="{y:g}"{place}>{escape(text)}</text>'
        )

    def box(
        self,
        at: Point,
        size: tuple[float, float],
        *lines: str | tuple[str, Style],
        kind: Kind = "plain",
        anchor: Anchor = "middle",
    ) -> None:
        """Draw a box with lines of text in its middle, or at its left side.

        Raises:
            ValueError: A line does not fit.
        """
        (x, y), (width, height) = at, size
        self.rectangle(at, size, kind=kind)
        if len(lines) * LINE_HEIGHT > height:
            message = f"{len(lines)} lines do not fit into a box of {height:g} px"
            raise ValueError(message)
        baseline = y + height / 2 - (len(lines) - 1) * LINE_HEIGHT / 2 + 5
        left = {"start": x + 10, "middle": x + width / 2, "end": x + width - 10}[anchor]
        for line in lines:
            text, style = line if isinstance(line, tuple) else (line, "text")
            self.text(
                (left, baseline), text, style=style, anchor=anchor, width=width - 8
            )
            baseline += LINE_HEIGHT

    def rectangle(
        self,
        at: Point,
        size: tuple[float, float],
        *,
        kind: Kind = "plain",
        radius: float = 6,
    ) -> None:
        """Draw a rectangle with round corners."""
        (x, y), (width, height) = at, size
        self._add(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
            f' rx="{radius:g}"/>'
        )

    def line(
        self,
        *points: Point,
        kind: Kind = "plain",
        arrow: bool = False,
        dashes: str = "",
        width: float = 1.5,
    ) -> None:
        """Draw a line through points, solid or in dashes, perhaps with an arrowhead at its end."""
        *before, end = points
        if arrow:
            (x, y), (tip_x, tip_y) = before[-1], end
            angle = math.atan2(tip_y - y, tip_x - x)
            back = (tip_x - 8 * math.cos(angle), tip_y - 8 * math.sin(angle))
            across = (4 * math.sin(angle), -4 * math.cos(angle))
            head = (
                end,
                (back[0] + across[0], back[1] + across[1]),
                (back[0] - across[0], back[1] - across[1]),
            )
            self._add(f'<polygon class="{kind}-head" points="{_points(head)}"/>')
            end = back
        look = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._add(
            f'<polyline class="{kind}-line" points="{_points([*before, end])}"'
            f' stroke-width="{width:g}"{look}/>'
        )

    def cross(self, at: Point, *, kind: Kind = "bad", size: float = 6) -> None:
        """Draw a small cross."""
        x, y = at
        self.line((x - size, y - size), (x + size, y + size), kind=kind)
        self.line((x - size, y + size), (x + size, y - size), kind=kind)

    def render(self) -> str:
        """Return the picture as an SVG document."""
        width, height = self._width, self._height
        elements = "\n".join(self._elements)
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-labelledby="title desc">
<title id="title">{escape(self._title)}</title>
<desc id="desc">{escape(self._description)}</desc>
<style>
{_style_sheet()}
</style>
<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>
{elements}
</svg>
"""

    def _add(self, element: str) -> None:
        self._elements.append(element)


def seconds(value: float) -> str:
    """Return a number of seconds as text, or of hours if it is a whole one."""
    hours, rest = divmod(value, 3600)
    return f"{hours:g} h" if hours and not rest else f"{value:g} s"


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.6g},{y:.6g}" for x, y in points)


def _width_of(text: str, style: Style) -> float:
    """Return how wide a text is at most in the fonts that pages commonly have."""
    size = 17 if style == "title" else _SIZE
    if style == "code":
        return 0.61 * (size - 1) * len(text)
    widths = {
        **dict.fromkeys("ijl.,:;'|!()[] ", 0.36),
        **dict.fromkeys("mwMWQ@%→", 0.95),
    }
    total = sum(
        widths.get(letter, 0.72 if letter.isupper() else 0.61) for letter in text
    )
    return total * size * (1.08 if style in {"strong", "title"} else 1)


def _style_sheet() -> str:
    """Return the colours for light and, where the reader prefers it, for dark."""
    dark = "\n".join(f"  {rule}" for rule in _colours(1))
    rules = [
        f"text {{ font: {_SIZE}px {_FONT}; }}",
        f".code {{ font: {_SIZE - 1}px {_MONO}; }}",
        ".strong { font-weight: 600; }",
        ".title { font-size: 17px; font-weight: 600; }",
        "rect { stroke-width: 1.2; }",
        "polyline { fill: none; }",
        *_colours(0),
        f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}",
    ]
    return "\n".join(rules)


def _colours(scheme: int) -> list[str]:
    """Return the rules of one scheme: 0 for light, 1 for dark."""
    colour = {name: values[scheme] for name, values in _COLOURS.items()}
    rules = [
        f".ground {{ fill: {colour['ground']}; stroke: {colour['frame']}; }}",
        f".text, .strong, .code, .title {{ fill: {colour['text']}; }}",
        f".muted {{ fill: {colour['muted']}; }}",
    ]
    for kind, (fills, lines) in _SHAPES.items():
        fill, line = fills[scheme], lines[scheme]
        rules += [
            f"rect.{kind} {{ fill: {fill}; stroke: {line}; }}",
            f".{kind}-line {{ stroke: {line}; }}",
            f"text.{kind}, .{kind}-head {{ fill: {line}; }}",
        ]
    return rules
