"""Removal of secrets, file paths and stack traces from an agent's errors.

They are recognized by patterns alone, as a last defence: the client redacts the exact values that
it sent, and an agent never sends the text of unexpected exceptions.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, cast

from holdfast._model.error_values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["scrubbed", "scrubbed_details"]

_TRACE = r"""Traceback \(most recent call last\).*|\bFile ["'][^"']*["'], line \d+.*"""
_PATHS = (
    r"""file://[^\s"'<>]*"""
    r"""|\b[A-Za-z]:\\[^\s"'<>|]*"""
    r"""|(?<![\w/:.\-\])}~])~?/(?:app|bin|data|etc|home|lib|lib64|mnt|opt|private|proc|root|run|srv"""
    r"""|sys|tmp|usr|var|workspace|Applications|Library|Users|Volumes)/[^\s"'<>:,;)]+"""
    r"""|(?<![\w:/.\-])(?:~?/|\.{1,2}/)?(?:[\w.\-]+/)*[\w.\-]+\.(?:py|pyc|so|rb|js|ts|go|java)\b"""
    r"""(?::\d+)?"""
)
_NAMED_VALUE = (
    r"""(?i)(?<![\w\-])([\w\-]*(?:api[_\-]?key|access[_\-]?key|authorization|cookie|passw|pwd"""
    r"""|secret|token)[\w\-]*["']?\s*)(?:[=:]\s*(?:"[^"]{3,}"|'[^']{3,}')|=\s*["']?[^\s"',;&)}\]]{3,}"""
    r"""|:\s*(?:(?:bearer|basic)\s+)?["']?[^\s"',;&)}\]]{8,})["']?"""
)
_SCHEMES = r"(?i)\b(bearer|basic)\s+[\w.~+/=\-]{8,}"
_KEYS = (
    r"\beyJ[\w\-]{5,}\.[\w\-]+\.[\w\-]*"
    r"|\b(?:sk|pk|rk|ghp|gho|ghs|xox[abp]|AKIA|AIza)[\-_]?[A-Za-z0-9\-_]{16,}"
)
_QUERY = r"""(\b[a-z][a-z0-9+.\-]{1,20}://[^\s?#"'<>]{1,500})\?[^\s"'<>)]*"""
"""Patterns, which `re` compiles when the first error needs them, and keeps."""

_MAX_DEPTH = 8
_MAX_CHARACTERS = 8000
_MAX_TEXT_CHARACTERS = 1000
"""Bounds of an error's details: nesting, characters in total, characters of each text."""


def scrubbed(text: str, length: int = 500) -> str:
    """Return a text for other agents: one line of at most `length` characters."""
    line = text_of(text, length * 2)
    line = re.sub(_TRACE, "(stack trace)", line)
    line = re.sub(_NAMED_VALUE, r"\1= ***", line)
    line = re.sub(_SCHEMES, r"\1 ***", line)
    line = re.sub(_KEYS, "***", line)
    line = re.sub(_QUERY, r"\1?***", line)
    return text_of(re.sub(_PATHS, "(path)", line), length)


def scrubbed_details(details: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the JSON objects for other agents that are valid JSON and small enough."""
    scrubbed_objects: list[dict[str, Any]] = []
    budget = _Budget()
    for detail in details:
        try:
            scrubbed_objects.append(_scrubbed(dict(detail), budget, 0))
        except ValueError:
            continue
    return scrubbed_objects


class _Budget:
    characters = _MAX_CHARACTERS


def _scrubbed(value: Any, budget: _Budget, depth: int) -> Any:
    budget.characters -= len(value) + 1 if isinstance(value, str) else 1
    if budget.characters < 0 or depth > _MAX_DEPTH:
        text = "it is too large to send"
        raise ValueError(text)
    if isinstance(value, str):
        return scrubbed(value, _MAX_TEXT_CHARACTERS)
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {
            _scrubbed(str(name), budget, depth): _scrubbed(member, budget, depth + 1)
            for name, member in members.items()
        }
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return [_scrubbed(item, budget, depth + 1) for item in items]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = f"{type(value).__name__} is not JSON"
    raise ValueError(text)
