"""The findings of an examination, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.errors import A2AError

__all__ = ["LEVELS", "Diagnosis", "Finding", "Level"]

Level = Literal["ok", "info", "warning", "problem", "not measured"]
"""Severity of a finding: a ``warning`` affects some callers, a ``problem`` affects this one."""

LEVELS: tuple[Level, ...] = get_args(Level)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check.

    Attributes:
        check: Name of the check, as ``card.caching``: its group and its name in the group.
        level: The severity.
        saw: The observation; for ``not measured``, the reason.
        means: The consequence for callers; empty if it is obvious.
        do: The advice; empty if nothing has to be done.
        about: The interface that it is about; empty if it is about the whole agent.
        binding: The binding that the check used; empty if it is not about an interface.
        version: The protocol version that it used; empty if it is not about an interface.
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
        """The group of the check, as ``card``."""
        return self.check.partition(".")[0]


class Diagnosis:
    """Findings about an agent; returned by `diagnose`.

    Attributes:
        agent: The address of the agent, as it may be shown.
        name: The agent's name from its card; empty if there is no card.
        findings: The findings, in the order of the checks.
        message_ids: Ids of the messages that were sent, one for each time.
        stopped: Reason why the examination did not finish; empty if it did.
        error: The error that every call fails with; None if calls can be made.
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
        """The number of findings of each level."""
        levels = [finding.level for finding in self.findings]
        return {level: levels.count(level) for level in LEVELS}

    @property
    def is_complete(self) -> bool:
        """True if the examination finished.

        Otherwise it timed out, was interrupted, or is still running; ``stopped`` is the reason,
        also of the checks that were not reached, which are ``not measured``.
        """
        return not self.stopped

    @property
    def is_healthy(self) -> bool:
        """True if the examination finished without a problem."""
        return self.is_complete and not self.counts["problem"]

    def of(self, check: str) -> tuple[Finding, ...]:
        """Return the findings of a check, or of a group of checks.

        Args:
            check: The name of the check or group, as ``card.caching`` or ``card``.
        """
        return tuple(
            finding for finding in self.findings if check in {finding.check, finding.group}
        )

    def hiding(self, hide: Callable[[str], str]) -> Diagnosis:
        """Return a copy in which a function has replaced every text; the error stays unchanged.

        Args:
            hide: Function that returns the replacement of a text.
        """
        return Diagnosis(
            agent=self.agent,
            name=hide(self.name),
            findings=tuple(
                msgspec.structs.replace(
                    finding,
                    saw=hide(finding.saw),
                    means=hide(finding.means),
                    do=hide(finding.do),
                    about=hide(finding.about),
                    binding=hide(finding.binding),
                    version=hide(finding.version),
                )
                for finding in self.findings
            ),
            message_ids=self.message_ids,
            stopped=self.stopped,
            error=self.error,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a JSON object, without the error and without empty members."""
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
