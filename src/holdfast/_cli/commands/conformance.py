"""The command that runs the A2A TCK: ``conformance``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.groups import HelpfulCommand
from holdfast._cli.options.flags import CONTEXT, EVERYWHERE, LINES, with_options
from holdfast._cli.options.parameters import Choice, ParsedParam, complete_path, setting_option
from holdfast._cli.options.values import read_id

if TYPE_CHECKING:
    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output

__all__ = ["conformance"]

GET_TCK = (
    "git clone -b 1.0-dev https://github.com/a2aproject/a2a-tck && cd a2a-tck && uv venv && "
    "uv pip install -e ."
)
"""The commands that install the A2A TCK."""


TCK = (
    setting_option(
        "--tck",
        metavar="DIRECTORY",
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        show_default=False,
        help=f"Directory with a clone of the TCK. To get it: {GET_TCK}",
    ),
)


_MEASURING = (
    *TCK,
    click.option(
        "--level",
        type=Choice(["must", "should", "may", "all"]),
        default="must",
        show_default=True,
        help="Which requirements to test. The TCK of protocol 0.3 has its mandatory ones only.",
    ),
    click.option(
        "--python",
        metavar="PATH",
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        show_default="the TCK's own .venv, or else the one of holdfast",
        help="Python interpreter with the requirements of the TCK.",
    ),
)


@click.command(
    "conformance",
    cls=HelpfulCommand,
    context_settings=CONTEXT,
    examples=("holdfast conformance -a localhost:9999 --tck ~/a2a-tck --level all\n"),
)
@with_options(_MEASURING, LINES, EVERYWHERE)
@click.pass_context
def conformance(ctx: click.Context, /, **options: Any) -> int:
    """Run the A2A TCK, the protocol's test kit, against an agent.

    The TCK sends messages, which the agent executes; some of its tests pass only with an agent
    that implements the scenarios of the TCK. The kit runs in its own directory and in a process of
    its own; --timeout and Ctrl-C end it. The command shows how many tests passed and failed, and
    why each failed test did. Secrets are passed in the environment of the TCK; the TCK of protocol
    1.0 takes none.

    Conformance is pass, fail, partial (the agent omits something that it should do, but need not)
    or, if no test was completed, not measured. Exit codes: 0 if conformance was measured, also
    with failed tests; 1 if it was not, for example because the TCK is missing; 3, 4 and 5 as for
    every command.
    """
    tck = options["tck"]
    directory = None if tck is None else Path(tck).expanduser().absolute()

    async def act(session: Session, output: Output) -> None:
        from holdfast._cli.conformance.run import measure  # heavy: not imported for help

        await measure(
            session,
            output,
            directory=directory,
            level=options["level"],
            python=options["python"],
            how_to_get=GET_TCK,
        )

    return execute(ctx, act, needs_card=True)
