"""The commands: their options, their help and the action of each.

Importing them is cheap: what an action needs is imported when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from holdfast._cli.execution import Action
    from holdfast._cli.output.base import Output

__all__ = ["execute"]


def execute(
    ctx: click.Context,
    action: Action,
    *,
    can_follow: bool = False,
    needs_card: bool = False,
    output: Output | None = None,
    journal: str | None = None,
    key: str | None = None,
) -> int:
    """Run an action against the agent; see `holdfast._cli.execution.execute`."""
    from holdfast._cli.execution import execute

    return execute(
        ctx,
        action,
        can_follow=can_follow,
        needs_card=needs_card,
        output=output,
        journal=journal,
        key=key,
    )
