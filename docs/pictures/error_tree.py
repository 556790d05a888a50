"""The tree of errors, in the groups in which `holdfast.errors` defines them."""

from __future__ import annotations

import inspect
import re

from drawing import LINE_HEIGHT, Picture

from holdfast import errors

__all__ = ["picture"]

_GROUP = re.compile(r"^# ── (.+?) ─+$", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
_LEFT, _RIGHT, _WIDTH = 24, 390, 346
_FACTS = "executed · transient · retry_after · attempts · request_id"


def picture() -> Picture:
    """Return the picture."""
    groups = _groups()
    columns: list[list[tuple[str, list[str]]]] = [[], []]
    for name, lines in groups:
        columns[
            len(columns[0]) > 0 and _height(columns[0]) >= _height(columns[1])
        ].append((name, lines))
    height = max(_height(column) for column in columns)
    drawing = Picture(
        "The errors of Holdfast",
        f"""Every error is an A2AError with facts: {_FACTS.replace(" ·", ",")}. Groups:
        {" ".join(f"{name}: {', '.join(lines)}." for name, lines in groups)}""",
        width=760,
        height=104 + height,
    )
    drawing.box(
        (_LEFT, 20),
        (_RIGHT + _WIDTH - _LEFT, 50),
        ("A2AError", "strong"),
        _FACTS,
        kind="client",
    )
    for x, column in zip((_LEFT, _RIGHT), columns, strict=True):
        y = 90
        for name, lines in column:
            size = _height([(name, lines)]) - 14
            drawing.rectangle((x, y), (_WIDTH, size))
            drawing.text((x + 12, y + 22), name, style="strong")
            for number, line in enumerate(lines):
                at = (x + 12, y + 44 + LINE_HEIGHT * number)
                drawing.text(at, line, style="code", width=_WIDTH - 24)
            y += size + 14
    return drawing


def _height(column: list[tuple[str, list[str]]]) -> int:
    return sum(50 + LINE_HEIGHT * len(lines) for _, lines in column)


def _groups() -> list[tuple[str, list[str]]]:
    """Return the groups, and a line for each class in them, under the class that it extends."""
    pieces = _GROUP.split(inspect.getsource(errors))[1:]
    groups: list[tuple[str, list[str]]] = []
    for name, text in zip(pieces[::2], pieces[1::2], strict=True):
        lines: list[str] = []
        for class_name in _CLASS.findall(text):
            error = getattr(errors, class_name)
            if class_name.startswith("_") or not issubclass(error, errors.A2AError):
                continue
            depth = sum(
                issubclass(base, errors.A2AError) and not base.__name__.startswith("_")
                for base in error.__mro__
            )
            others = [
                base.__name__
                for base in error.__bases__
                if not issubclass(base, errors.A2AError)
            ]
            label = f"{class_name} ({', '.join(others)})" if others else class_name
            lines.append("\N{NO-BREAK SPACE}" * 3 * (depth - 2) + label)
        if lines:
            groups.append((name, lines))
    return groups
