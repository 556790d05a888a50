"""``holdfast doctor``: examines an agent, and shows findings, their meaning and what to do.

Rules: findings are shown however the examination ends; nothing is sent that an agent
may execute, unless the caller supplies a message. The exit code says whether the agent can be
called. A problem that makes each call fail has the code of that failure, and any other problem
has code 1, since the answer to the question is then no (a2a-cli 11.6: the reserved codes have no
other meaning). Warnings do not change the exit code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.groups import HelpfulCommand
from holdfast._cli.options.flags import CONTEXT, EVERYWHERE_BRIEFLY, LINES, with_options

if TYPE_CHECKING:
    from holdfast._cli.agent.session import Session
    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.output.base import Output
    from holdfast.doctor import Diagnosis

__all__ = ["doctor"]

_EXAMINING = (
    click.option(
        "--problems",
        "only_problems",
        is_flag=True,
        help="Show only problems and warnings.",
    ),
    click.option(
        "--send",
        "sends",
        metavar="TEXT",
        help="Send this text as a message, once; the agent executes it. Checks streams, and the "
        "agent's records of messages.",
    ),
    click.option(
        "--twice",
        is_flag=True,
        help="With --send: send the same message, under the same id, once more at the end, to see "
        "whether the agent executes it again. Most do.",
    ),
)


@click.command(
    "doctor",
    cls=HelpfulCommand,
    context_settings=CONTEXT,
    examples=(
        "holdfast doctor -a https://agent.example.com\n"
        "holdfast doctor -a localhost:9999 --send 'Hello' --problems\n"
    ),
)
@with_options(_EXAMINING, LINES, EVERYWHERE_BRIEFLY)
@click.pass_context
def doctor(ctx: click.Context, /, **options: Any) -> int:
    """Diagnose an agent: what is wrong, what it means for callers, and what to do.

    Checks the card, addresses, TLS, clocks, protocol versions, authentication, errors, the list of
    tasks and subscriptions. Nothing is sent that the agent would execute: about ten requests to
    each interface read, name a task that does not exist, or are invalid. Streams, and the agent's
    records of messages, are checked only with --send.

    --timeout limits the whole diagnosis; half of it is for following the message that was sent.
    Ctrl-C shows the findings so far. With -o json the document has the findings, and the error if
    there is one.

    Exit codes: 0 if there is no problem, whatever the warnings; 3, 4 or 5 if every call would fail
    with that code, because the agent cannot be reached, requires other credentials, or takes too
    long; 1 if there are other problems.
    """
    environment: CliEnvironment = ctx.obj
    text, twice = options["sends"], options["twice"]
    if twice and text is None:
        message = "--twice requires --send TEXT."
        raise click.UsageError(message, ctx)
    if text is not None and not text:
        message = "--send: there is no text to send."
        raise click.UsageError(message, ctx)
    return execute(
        ctx,
        lambda session, output: _examine(
            session,
            output,
            send=text,
            twice=twice,
            only_problems=options["only_problems"],
            environment=environment,
        ),
        needs_card=True,
    )


async def _examine(
    session: Session,
    output: Output,
    *,
    send: str | None,
    twice: bool,
    only_problems: bool,
    environment: CliEnvironment,
) -> None:
    """Examine the agent, and show the findings.

    Args:
        session: The agent.
        output: Where findings are shown.
        send: The text of a message that may be sent.
        twice: Whether the message may be sent a second time.
        only_problems: Whether to show problems and warnings only.
        environment: The environment of the command.

    Raises:
        A2AError: The error of every call.
        CommandError: There are other problems.
    """
    import asyncio

    from holdfast._cli.agent.cards import card_verifier
    from holdfast._cli.output.base import DiagnosisShown, Notice, ProgressLine
    from holdfast._doctor.examination import Examination
    from holdfast._wire.versions import HTTP_BINDINGS

    session.check()
    settings = session.settings

    def sending(message_id: str) -> None:
        session.message_id, session.may_have_been_sent = message_id, True

    examination = Examination(
        session.reference,
        engine=session.engine,
        send=send,
        twice=twice,
        auth=session.auth,
        headers=session.svc_params,
        timeout=settings.timeout,
        protocol_version=session.requested_version,
        bindings=tuple(name for name in settings.transports if name in HTTP_BINDINGS),
        env=environment.env,
        card_verifier=card_verifier(settings),
        look_at_tls=environment.look_at_tls,
        on_card=session.adapt_to_card,
        on_send=sending,
    )
    if send is not None:
        count = "2 times" if twice else "once"
        output.emit(Notice("Sending", f"the message is sent {count}, and the agent executes it"))
    if sys.stderr is not None and sys.stderr.isatty():
        output.emit(
            ProgressLine(f"examining {examination.agent}; Ctrl-C shows the findings so far")
        )
    try:
        diagnosis = await examination.run()
    except asyncio.CancelledError:
        output.emit(ProgressLine(""))
        session.task = examination.task
        output.emit(DiagnosisShown(examination.diagnosis(), only_problems, is_last=True))
        raise
    output.emit(ProgressLine(""))
    output.emit(
        DiagnosisShown(
            diagnosis, only_problems, is_last=diagnosis.error is None and diagnosis.is_healthy
        )
    )
    if send is None and diagnosis.error is None and not only_problems:
        output.emit(Notice.hint("--send TEXT checks more; the agent executes the text, once"))
    _judge(diagnosis)


def _judge(diagnosis: Diagnosis) -> None:
    """Raise the error of the command, if there are problems."""
    if diagnosis.error is not None:
        raise diagnosis.error
    problems = [finding for finding in diagnosis.findings if finding.level == "problem"]
    if problems:
        count = "a problem was" if len(problems) == 1 else f"{len(problems)} problems were"
        checks = ", ".join(dict.fromkeys(finding.check for finding in problems))
        raise CommandError(
            Failure(code="HOLDFAST_ERR_UNHEALTHY", message=f"{count} found: {checks}")
        )
