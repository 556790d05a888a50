"""Earlier texts of the artifacts of a task: whether a text in a lagging store may be an old one.

A store may lag behind its streams. While an artifact only grows, a shorter text is older, and a
text that continues the caller's is newer. An artifact that was replaced may have had any text
before: the store may show a text that the caller saw and that was replaced, and "ab" may be older
than "abc", or its replacement. So replaced texts are remembered until the store shows a later
state.
"""

from __future__ import annotations

__all__ = ["Past"]

_SIZE = 1 << 20
"""Characters of texts to remember; each text counts as one more."""


class Past:
    """What is remembered of the artifacts of one task, by their ids.

    Rules:
    - A look at the store that was taken for newer is where the memory of an artifact begins: no
      later look is older than that.
    - What was not seen, or is too much to remember, may have been anything. But an artifact of an
      agent that was never seen to replace a text is assumed only to grow.
    """

    def __init__(self) -> None:
        self._replaced: dict[str, list[str]] = {}
        self._size = 0
        self._replaces = False  # the agent has replaced something
        self._skipped: set[str] = set()  # since the last look
        self._partial: set[str] = set()  # since the beginning

    def forget(self) -> None:
        """No store is there to show what was before."""
        self._replaced.clear()
        self._skipped.clear()
        self._size = 0

    def looked_up(self, artifact_id: str) -> None:
        """The caller has an artifact as the store shows it."""
        self._drop(artifact_id)
        self._skipped.discard(artifact_id)
        self._partial.add(artifact_id)

    def replaced(self, artifact_id: str, text: str) -> None:
        """A text was replaced by one that does not begin with it."""
        self._replaces = True
        self._replaced.setdefault(artifact_id, []).append(text)
        self._size += len(text) + 1
        if self._size > _SIZE:
            self._drop(artifact_id)
            self.skipped(artifact_id)

    def skipped(self, artifact_id: str) -> None:
        """An artifact may have had texts that the caller was not told of."""
        self._skipped.add(artifact_id)
        self._partial.add(artifact_id)

    def _drop(self, artifact_id: str) -> None:
        self._size -= sum(len(text) + 1 for text in self._replaced.pop(artifact_id, ()))

    def is_heard_of(self, artifact_id: str) -> bool:
        """Whether an artifact may have had texts that are not remembered."""
        return artifact_id in self._partial

    def may_hold(self, artifact_id: str, text: str, now: str) -> bool:
        """Whether a text may have been an artifact's since the last look, before what it is now.

        Args:
            artifact_id: The artifact.
            text: The text.
            now: What it is now; a beginning of it may always have been before.
        """
        if now.startswith(text):
            return True
        if artifact_id in self._skipped and (self._replaces or not text.startswith(now)):
            return True
        return any(old.startswith(text) for old in self._replaced.get(artifact_id, ()))
