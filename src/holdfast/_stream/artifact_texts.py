"""Texts of the artifacts of one task: as comparable strings, and which of them are old.

A store may be behind its streams. While an artifact only grows, a shorter text is older, and a
text that continues the caller's text is newer. An artifact that was replaced may have had any text
before: the store may show a text that the caller saw and that was replaced since, and "ab" may be
older than "abc", or replace it. So replaced texts are remembered until the store shows a later
state.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from holdfast._model import codec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.types import Part

__all__ = ["ArtifactTexts", "flattened"]

_MAX_REMEMBERED = 1 << 20
"""Characters of replaced texts to remember; each text counts as one more."""

_FIRST_STAND_IN = 0x100000
"""The first of the characters (Unicode's plane 16, private use) that stand for parts other than
plain text. There are 65,534 of them, and the last one stands for all further parts."""

_LAST_STAND_IN = 0x10FFFD


def flattened(parts: Iterable[Part], stand_ins: dict[bytes, str]) -> str:
    """Return parts as one string, so that comparing strings finds continuations.

    How an agent divides a text into parts makes no difference. Equal parts are written alike.

    Args:
        parts: The parts.
        stand_ins: The character of each part other than plain text, by its digest; new ones are
            added.
    """
    return "".join(
        part.text
        if part.text is not None and not part.metadata and not part.filename
        else _stand_in(part, stand_ins)
        for part in parts
    )


def _stand_in(part: Part, stand_ins: dict[bytes, str]) -> str:
    code = min(_FIRST_STAND_IN + len(stand_ins), _LAST_STAND_IN)
    digest = hashlib.blake2b(codec.encode(part), digest_size=16).digest()
    return stand_ins.setdefault(digest, chr(code))


class ArtifactTexts:
    """Remembers texts that artifacts of one task had, by artifact id.

    Rules:
    - An artifact's memory begins at the latest version from the store that was taken for newer: no
      later version from the store is older than that.
    - Texts that did not arrive, or are too long to remember, may have been anything. But if the
      agent was never seen to replace a text, its artifacts are assumed only to grow.
    """

    def __init__(self) -> None:
        self._stand_ins: dict[bytes, str] = {}
        self._replaced: dict[str, list[str]] = {}
        self._size = 0
        self._has_replaced = False  # the agent has replaced a text
        # Dicts in place of sets, whose empty ones are larger.
        self._skipped: dict[
            str, None
        ] = {}  # artifacts with missed texts since the store's version
        self._partial: dict[str, None] = {}  # artifacts with missed texts since the beginning

    def text(self, parts: Iterable[Part]) -> str:
        """Return parts as one comparable string; see `flattened`."""
        return flattened(parts, self._stand_ins)

    def forget(self) -> None:
        """Forget old texts: there is no store that could show them."""
        self._replaced.clear()
        self._skipped.clear()
        self._size = 0

    def note_stored(self, artifact_id: str) -> None:
        """Note that the caller has an artifact as the store shows it."""
        self._drop(artifact_id)
        self._skipped.pop(artifact_id, None)
        self._partial[artifact_id] = None

    def note_replaced(self, artifact_id: str, text: str) -> None:
        """Note a text that was replaced by one that does not begin with it."""
        self._has_replaced = True
        self._replaced.setdefault(artifact_id, []).append(text)
        self._size += len(text) + 1
        if self._size > _MAX_REMEMBERED:
            self._drop(artifact_id)
            self.note_missed(artifact_id)

    def note_missed(self, artifact_id: str) -> None:
        """Note that an artifact may have had texts that did not arrive."""
        self._skipped[artifact_id] = None
        self._partial[artifact_id] = None

    def is_partial(self, artifact_id: str) -> bool:
        """Return whether an artifact may have had texts that are not remembered."""
        return artifact_id in self._partial

    def may_be_old(self, artifact_id: str, text: str, now: str) -> bool:
        """Return whether an artifact may have had a text before the current one.

        Args:
            artifact_id: The artifact.
            text: The text.
            now: The current text; any beginning of it may have been there before.
        """
        if now.startswith(text):
            return True
        if artifact_id in self._skipped and (self._has_replaced or not text.startswith(now)):
            return True
        return any(old.startswith(text) for old in self._replaced.get(artifact_id, ()))

    def _drop(self, artifact_id: str) -> None:
        self._size -= sum(len(text) + 1 for text in self._replaced.pop(artifact_id, ()))
