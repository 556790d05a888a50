"""The command that examines an agent: ``doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.execution import CONTEXT, execute
from holdfast._cli.options import EVERYWHERE_BRIEFLY, LINES, with_options

if TYPE_CHECKING:
    from holdfast._cli.environment import CliEnvironment

__all__ = ["doctor"]

_EXAMINING = (
    click.option(
        "--send",
        "sends",
        metavar="TEXT",
        help="Send this text as a message, once: the agent executes it. Shows how streams come, "
        "and what the agent keeps of messages.",
    ),
    click.option(
        "--twice",
        is_flag=True,
        help="With --send: send the same message, under the same id, once more at the end, to see "
        "whether the agent executes it again. Most do.",
    ),
)


@click.command("doctor", context_settings=CONTEXT)
@with_options(_EXAMINING, LINES, EVERYWHERE_BRIEFLY)
@click.pass_context
def doctor(ctx: click.Context, /, **options: Any) -> int:
    """Examine an agent: what was seen, what that means for callers, and what to do.

    Looks at the card, addresses, TLS, clocks, versions of the protocol, authentication, errors,
    the list of tasks and subscriptions. Nothing is sent that the agent would execute: some ten
    requests to each interface read, or name a task that there is not, or cannot be right. Streams,
    and what the agent keeps of messages, need --send.

    It takes no longer than --timeout; half of that is for watching what was sent. Ctrl-C shows
    what was found so far. With -o json the document is what was found, and the error beside it if
    there is one.

    Exit codes: 0 if there is no problem, whatever the warnings; 3, 4 and 5 if every call would end
    so, because the agent cannot be reached, wants other credentials, or takes too long; 1 if there
    are other problems.
    """
    from holdfast._cli.doctor import examine  # heavy; help and usage errors are not

    world: CliEnvironment = ctx.obj
    text, twice = options["sends"], options["twice"]
    if twice and text is None:
        message = "--twice is about a message: name it with --send TEXT."
        raise click.UsageError(message, ctx)
    if text is not None and not text:
        message = "--send: there is no text to send."
        raise click.UsageError(message, ctx)
    return execute(
        ctx,
        lambda session, output: examine(session, output, send=text, twice=twice, world=world),
        needs_card=True,
    )
