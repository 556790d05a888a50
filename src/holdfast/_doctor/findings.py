"""What an examination found, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.errors import A2AError

__all__ = ["LEVELS", "Diagnosis", "Finding", "Level"]

Level = Literal["ok", "info", "warning", "problem", "not measured"]
"""``info`` is worth knowing, a ``warning`` may hurt some callers, a ``problem`` will hurt you."""

LEVELS: tuple[Level, ...] = get_args(Level)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check found.

    Attributes:
        check: Name of the check, as ``card.caching``: its group, and what in it.
        level: How much it matters.
        saw: What was seen; for what is not measured, why it is not.
        means: What that means for callers; empty where it goes without saying.
        do: What to do about it; empty where there is nothing to do.
        about: What of several it is about, as an interface; empty if there is one only.
        binding: The binding that the questions used; empty if it is not about an interface.
        version: The protocol version that they used; empty as well.
    """

    check: str
    level: Level
    saw: str
    means: str = ""
    do: str = ""
    about: str = ""
    binding: str = ""
    version: str = ""

    @property
    def group(self) -> str:
        """What the check belongs to, as ``card``."""
        return self.check.partition(".")[0]


class Diagnosis:
    """What was found of an agent.

    Attributes:
        agent: Where it was looked for, as it may be shown.
        name: What it calls itself; empty if that is not known.
        findings: In the order of the checks.
        message_ids: The messages that were sent, one for each time.
        stopped: Why the examination did not come to its end; empty if it did.
        error: What a call fails with; None if nothing keeps calls from being made.
    """

    __slots__ = ("agent", "error", "findings", "message_ids", "name", "stopped")

    def __init__(
        self,
        *,
        agent: str,
        name: str,
        findings: tuple[Finding, ...],
        message_ids: tuple[str, ...] = (),
        stopped: str = "",
        error: A2AError | None = None,
    ) -> None:
        self.agent = agent
        self.name = name
        self.findings = findings
        self.message_ids = message_ids
        self.stopped = stopped
        self.error = error

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {level}" for level, count in self.counts.items() if count)
        return f"<Diagnosis of {self.agent}: {counts}>"

    @property
    def counts(self) -> dict[Level, int]:
        """How many findings there are of each level."""
        levels = [finding.level for finding in self.findings]
        return {level: levels.count(level) for level in LEVELS}

    @property
    def is_complete(self) -> bool:
        """Whether the examination came to its end.

        If not, the time was over or somebody interrupted it, or it goes on, and ``stopped`` says
        which; what was not reached is not measured, for that reason.
        """
        return not self.stopped

    @property
    def is_healthy(self) -> bool:
        """Whether all was looked at, and there is no problem."""
        return self.is_complete and not self.counts["problem"]

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of a check, or of a group of checks, by its name."""
        return tuple(f for f in self.findings if check in {f.check, f.group})

    def hiding(self, hide: Callable[[str], str]) -> Diagnosis:
        """The same with every text as a function gives it back; the error is left as it is."""
        return Diagnosis(
            agent=self.agent,
            name=hide(self.name),
            findings=tuple(
                msgspec.structs.replace(
                    one,
                    saw=hide(one.saw),
                    means=hide(one.means),
                    do=hide(one.do),
                    about=hide(one.about),
                    binding=hide(one.binding),
                    version=hide(one.version),
                )
                for one in self.findings
            ),
            message_ids=self.message_ids,
            stopped=self.stopped,
            error=self.error,
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it as a JSON object, without the error; members that are empty left out."""
        stopped = {"stopped": self.stopped} if self.stopped else {}
        return {
            "agent": self.agent,
            "name": self.name,
            "complete": self.is_complete,
            **stopped,
            "healthy": self.is_healthy,
            "counts": dict(self.counts.items()),
            "messageIds": list(self.message_ids),
            "findings": [msgspec.to_builtins(finding) for finding in self.findings],
        }
