"""Commands with a journal: ``run`` and ``resume``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.errors import INTERRUPTED, CommandError, Failure
from holdfast._cli.groups import HelpfulCommand
from holdfast._cli.options.configuration import DEFAULT, FLAG, Source
from holdfast._cli.options.flags import (
    CONTEXT,
    EVERYWHERE_BY_CALL,
    ON_UNKNOWN,
    POLLING,
    with_options,
)
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.parameters import (
    Choice,
    HintedUsageError,
    ParsedParam,
    complete_path,
)
from holdfast._cli.options.settings import read_settings
from holdfast._cli.options.values import (
    read_grace,
    read_id,
    read_journal,
    read_rate,
    read_run_id,
    shown_duration,
    shown_rate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast._cli.agent.session import Session
    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast._journal.protocol import CallRecord

__all__ = ["resume", "run_lines", "run_results"]

_NO_NAME = (
    "--input -: standard input has no name by which a later run could resume this one; name it "
    "with --run-id NAME"
)

_NO_SHARED_NAME = (
    "--share: the processes of a run find each other by its name; add --run-id NAME, the same for "
    "all of them"
)

_WHOSE_CREDENTIALS = (
    "credentials and service parameters go to one agent: name it with --agent-card"
)

_NO_QUERY = "the journal does not store the query of an address; name the agent with --agent-card"

_DEFAULT_CONCURRENCY = 32


def _input_option(help_text: str) -> Callable[[Any], Any]:
    """Return the option for the input of a run."""
    return click.option(
        "--input",
        "source",
        metavar="FILE",
        required=True,
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help=help_text,
    )


def _journal_option(help_text: str) -> Callable[[Any], Any]:
    """Return the option for the journal."""
    return click.option(
        "--journal",
        metavar="FILE",
        required=True,
        type=ParsedParam("path", read_journal),
        shell_complete=complete_path,
        help=help_text,
    )


def _run_id_option(help_text: str) -> Callable[[Any], Any]:
    """Return the option for the name of a run."""
    return click.option(
        "--run-id",
        metavar="NAME",
        type=ParsedParam("name", read_run_id),
        show_default="made from the path of the input",
        help=help_text,
    )


_RUNNING = (
    _input_option("Messages, one on each line; - for standard input, with --run-id."),
    click.option(
        "--results",
        "results",
        metavar="FILE",
        required=True,
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="File of results, one on each line; new results are appended. - for standard output.",
    ),
    _journal_option(
        "The journal, an SQLite file or a postgresql:// address, which machines can share: "
        "it records each message before it is sent, and its outcome. A file is created if it does "
        "not exist, readable only by you; it grows until you remove it.",
    ),
    _run_id_option(
        "Name of the run in the journal, for any agent: the same name resumes it. Runs of other "
        "names do not see the pending calls of this one. Without a name, a line that is pending "
        "in another run is an error before anything is sent: the input may have moved.",
    ),
    click.option(
        "--concurrency",
        metavar="N",
        type=click.IntRange(min=1),
        default=_DEFAULT_CONCURRENCY,
        show_default=True,
        help="Maximum number of messages in flight.",
    ),
    click.option(
        "--rate",
        metavar="RATE",
        type=ParsedParam("rate", read_rate),
        show_default="not limited",
        help="Maximum rate of new messages, such as 50/s, 3/min or 100/h; 50 is 50/s.",
    ),
    ON_UNKNOWN,
    click.option(
        "--on-bad-line",
        type=Choice(["skip", "fail"]),
        default="fail",
        show_default=True,
        help="If a line is not a message: skip it, or fail, and send no line after it. "
        "Both report it on stderr.",
    ),
    click.option(
        "--retry-errors",
        is_flag=True,
        help="Remove the results that are errors, and process their lines again. A message that "
        "may have been executed is waited for or searched for; it is sent again only with "
        "--on-unknown resend, if no task of it was ever found, or if --run-id names another run.",
    ),
    click.option(
        "--share",
        is_flag=True,
        help="Share the run with the processes that have the same input, journal and --run-id: "
        "each line is sent by one of them, which writes its result. If one crashes, the others "
        "resume its lines. holdfast run results prints the results of all of them. A line whose "
        "outcome is unknown has ended: only a run without --share sends it again.",
    ),
    click.option(
        "--grace",
        metavar="DURATION",
        type=ParsedParam("duration", read_grace),
        default="30s",
        show_default=True,
        help="Maximum wait after Ctrl-C for the messages in flight.",
    ),
)

_RESUMING = (
    _journal_option(
        "The journal: the SQLite file or the postgresql:// address with which holdfast run, "
        "holdfast send or a program that calls connect(…, journal=FILE) recorded its calls.",
    ),
    click.option(
        "--list",
        "lists",
        is_flag=True,
        help="Only show the pending calls; nothing is sent.",
    ),
    click.option(
        "--dismiss",
        metavar="MESSAGE_ID",
        type=ParsedParam("id", read_id),
        help="Record that the outcome of this call is not needed; nothing is sent.",
    ),
)


def _check_stray(ctx: click.Context, name: str, *, has_input: bool) -> None:
    """Refuse an argument that is not an option, perhaps a misspelt command or the input.

    Raises:
        click.UsageError: The argument is unknown; the error suggests the right one.
    """
    from difflib import get_close_matches  # only mistakes need it

    message = f"Got unexpected extra argument ({name})"
    if get_close_matches(name, ["results"], cutoff=0.75):
        raise HintedUsageError(f"{message}.", ctx, hint="did you mean: holdfast run results")
    if ":" in name:  # an address, whose option the error names
        raise click.UsageError(message, ctx)
    if not has_input:
        hint = f"for the messages of a file: holdfast run --input {shlex.quote(name)}"
        raise HintedUsageError(f"{message}.", ctx, hint=hint)


class _RunCommand(HelpfulCommand):
    """A command that names a stray argument, before it misses an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            click.UsageError: The arguments are invalid.
        """
        values, stray, _ = self.make_parser(ctx).parse_args(list(args))
        if stray and not ctx.resilient_parsing:
            _check_stray(ctx, stray[0], has_input="source" in values)
        return super().parse_args(ctx, args)


@click.command(
    "run",
    cls=_RunCommand,
    context_settings=CONTEXT,
    examples=(
        "holdfast run -a localhost:9999 --input questions.txt --results answers.jsonl \\\n"
        "    --journal calls.db --rate 50/s\n"
    ),
)
@with_options(_RUNNING, POLLING, EVERYWHERE_BY_CALL)
@click.pass_context
def run_lines(ctx: click.Context, /, **options: Any) -> int:
    """Send many messages from a file, each once; the same command resumes after a crash.

    Each line of --input is a message: text; a JSON string; a Message of the protocol; or an
    object {"id": …, "text": …} or {"id": …, "message": {…}}, its id optional. An object with
    another member is an error. Each line of --results is the result of one line: {"id": …, "line":
    n, "digest": …, "task": {…}}, with "message" or "error" instead of the task. Results are
    written in the order in which they arrive.

    After a crash or an interruption, the same command resumes the run: lines with a result are
    skipped, messages that were sent are waited for, and the others are sent, including lines whose
    error has "executed": false and not the code HOLDFAST_ERR_INPUT, which is that of a changed
    line, and of a line that another agent has answered in this run: neither is ever sent.

    A line is recognized by its id, or else by its content; its position does not matter. A line
    that occurs twice without an id is two messages, a changed line is another message, and an id
    whose message has changed is an error. The digest identifies the content of a message.
    Results of other inputs stay in the file, and count for lines with the same content.

    Ctrl-C or SIGTERM stops sending and waits for the messages in flight; a second one leaves them
    to the agent and to the next run. While the agent cannot be reached, no new message is sent; a
    message that waits for it longer than --timeout gets an error with "executed": false, and the
    next run sends it. After 5 minutes the run ends as by a second Ctrl-C. A host name that does
    not exist, a missing card and credentials that the agent refuses end the run at once.

    Exit codes: 0 if each line has an answer, however its task ended, or was skipped; 1 if a line
    has an error instead, or is not a message, or if the results or the journal cannot be used;
    2 if the input cannot be read; 3 or 4 if the agent cannot be reached or refuses the
    credentials.
    """
    from holdfast._cli.agent.credentials import bind
    from holdfast._cli.batch.availability import WatchedSession
    from holdfast._cli.batch.plan import STANDARD, Plan
    from holdfast._cli.batch.run import Run
    from holdfast._cli.batch.session import journal_at
    from holdfast._cli.execution import Diagnostics, announce, perform, reference_of
    from holdfast._cli.output import output_for

    if options["source"] == STANDARD and options["run_id"] is None:
        raise click.UsageError(_NO_NAME, ctx)
    if options["share"] and options["run_id"] is None:
        raise click.UsageError(_NO_SHARED_NAME, ctx)
    environment: CliEnvironment = ctx.obj
    settings = read_settings(ctx)
    plan = Plan(
        input=options["source"],
        output=options["results"],
        journal=options["journal"],
        run_id=options["run_id"],
        concurrency=options["concurrency"],
        rate=options["rate"],
        on_unknown=options["on_unknown"],
        skips_bad_lines=options["on_bad_line"] == "skip",
        grace=options["grace"],
        retries_errors=options["retry_errors"],
        is_shared=options["share"],
        more=tuple(_given_words(ctx, settings)),
    )
    output = output_for(settings.output, settings)
    announce(ctx, output, settings)
    reference = reference_of(ctx, settings)
    settings = bind(ctx, settings, reference, output)
    session = WatchedSession(environment, settings, reference, output, journal_at(plan.journal))
    run = Run(session, output, plan, environment.interrupts)
    with Diagnostics(output, enabled=settings.debug):
        return perform(environment, session, output, lambda _session, _output: run.run())


def _given_words(ctx: click.Context, settings: Settings) -> Iterator[str]:
    """Return the options of a run that are not defaults, as words of the resuming command."""
    options = ctx.params
    if options["rate"] is not None:
        yield from ("--rate", shown_rate(options["rate"]))
    if options["concurrency"] != _DEFAULT_CONCURRENCY:
        yield from ("--concurrency", str(options["concurrency"]))
    if options["share"]:
        yield "--share"
    if options["on_unknown"] != "reconcile":
        yield from ("--on-unknown", options["on_unknown"])
    if options["on_bad_line"] != "fail":
        yield from ("--on-bad-line", options["on_bad_line"])
    if settings.timeout_given:
        yield from ("--timeout", shown_duration(settings.timeout))


_OF_RUN = (
    _input_option("The input of the run; - for standard input, with --run-id."),
    _journal_option("The journal of the run: its file, or its postgresql:// address."),
    _run_id_option("Name of the run in the journal."),
)


@click.command(
    "run results",
    cls=HelpfulCommand,
    context_settings=CONTEXT,
    common=("output",),
    examples=(
        "holdfast run results --input questions.txt --run-id night \\\n"
        "    --journal postgresql://db.example/agents\n"
    ),
)
@with_options(_OF_RUN, EVERYWHERE_BY_CALL)
@click.pass_context
def run_results(ctx: click.Context, /, **options: Any) -> int:
    """Print the result of each line of a run, in the order of the lines, from its journal.

    Nothing is sent. Each printed line is the result of one line of --input, in the form in which
    holdfast run writes it, whichever process of the run sent that line. A line that was not sent,
    whose call is pending, or whose outcome is unknown has an error. A line that is not a message
    is reported on stderr, and has no result.

    Exit codes: 0 if each message has an answer, however its task ended; 1 if one has an error, or
    if the journal cannot be used; 2 if the input cannot be read.
    """
    from holdfast._cli.batch.plan import STANDARD
    from holdfast._cli.batch.run_results import print_results
    from holdfast._cli.execution import announce
    from holdfast._cli.output import output_for
    from holdfast._cli.output.base import Failed

    if options["source"] == STANDARD and options["run_id"] is None:
        raise click.UsageError(_NO_NAME, ctx)
    settings = read_settings(ctx, needs_agent=False)
    output = output_for(settings.output, settings, in_lines=True)
    announce(ctx, output, settings)
    environment: CliEnvironment = ctx.obj
    printing = print_results(options["source"], options["journal"], options["run_id"], output)
    try:
        environment.run(printing)
    except CommandError as error:
        output.emit(Failed(error.failure))
        return error.failure.exit
    return 0


@click.command(
    "resume",
    cls=HelpfulCommand,
    context_settings=CONTEXT,
    examples=("holdfast resume --journal calls.db --list\nholdfast resume --journal calls.db\n"),
)
@with_options(_RESUMING, EVERYWHERE_BY_CALL)
@click.pass_context
def resume(ctx: click.Context, /, **options: Any) -> int:
    """Resume the pending calls of a journal, and show the outcome of each.

    A journal is a file or a database that records each message before it is sent, and its outcome.
    A crash, a timeout or an interruption leaves a call pending. No message is sent again: the
    command waits for the task of each call, and searches for it if its id is not in the journal.
    If no task is found, the call stays pending, and the next resume searches again, until
    --dismiss ends the call.

    The flag --agent-card (or --endpoint) selects the calls to one agent. Without it, the calls to
    every agent in the journal are resumed, one agent after the other, even if a variable or a
    settings file names an agent.

    A call that another process works on is reported and left to that process; after a crash,
    detecting that takes some seconds. With -o json each call is one line: its task or message, or
    the error. Exit codes: 0 if each call has an answer, however its task ended; 1 if one has
    none.
    """
    from holdfast._cli.batch import resume as resuming
    from holdfast._cli.execution import announce
    from holdfast._cli.output import output_for
    from holdfast._cli.output.base import Failed

    if options["lists"] and options["dismiss"]:
        message = "--list and --dismiss contradict each other."
        raise click.UsageError(message, ctx)
    settings = read_settings(ctx, needs_agent=False)
    output = output_for(settings.output, settings, in_lines=True)
    announce(ctx, output, settings)
    agent = _named_agent(ctx, settings)
    if not (agent or options["lists"] or options["dismiss"]) and _goes_to_one(settings):
        raise click.UsageError(_WHOSE_CREDENTIALS, ctx)
    environment: CliEnvironment = ctx.obj
    calls: dict[str, list[CallRecord]] = {}

    async def load() -> None:
        only_agent = agent if settings.agent_source is FLAG else None
        pending = await resuming.find_pending(options["journal"], only_agent, options["dismiss"])
        calls.update(pending.calls)
        if options["lists"] or not calls:
            resuming.list_calls(pending, output)
        elif options["dismiss"]:
            for place, (record, *_) in [*calls.items()]:
                if record.damage is not None:  # which requires no agent, and may name none
                    await resuming.dismiss_damaged(options["journal"], record, output)
                    del calls[place]

    try:
        environment.run(load())
    except CommandError as error:
        output.emit(Failed(error.failure))
        return error.failure.exit
    if options["lists"]:
        return 0
    return _resume_each(ctx, output, settings, calls, agent)


def _named_agent(ctx: click.Context, settings: Settings) -> str | None:
    """Return the agent of the settings as a journal names it; None if they name none."""
    from holdfast._cli.execution import reference_of
    from holdfast._journal.agent_name import agent_name

    if not settings.agent_card:
        return None
    return agent_name(str(reference_of(ctx, settings, absolute=True)))


def _goes_to_one(settings: Settings) -> bool:
    """Return whether a setting is for one agent alone."""
    return bool(settings.credentials or settings.svc_params)


def _resume_each(
    ctx: click.Context,
    output: Output,
    settings: Settings,
    calls: Mapping[str, Sequence[CallRecord]],
    only_agent: str | None,
) -> int:
    """Resume the calls of one agent after the other; return the worst exit code."""
    from holdfast._cli.batch.resume import shown_agent
    from holdfast._cli.output.base import Failed, Notice
    from holdfast._journal.agent_name import addresses_in, is_address, is_same_agent

    worst = 0
    for agent, records in calls.items():
        is_named = only_agent is not None and is_same_agent(agent, only_agent)
        usable = [address for address in addresses_in(agent) if is_address(address)]
        if not (is_named or usable):
            message = f"calls to {shown_agent(agent)} cannot be resumed: {_NO_QUERY}"
            output.emit(Failed(Failure(code="HOLDFAST_ERR_RESUME", message=message)))
            worst = max(worst, 1)
            continue
        if is_named:
            others = tuple(address for address in usable if address != only_agent)
            its_own = settings._replace(replicas=others)
        else:
            its_own = _of_journal(ctx, settings, usable)
        code = _resume(ctx, output, its_own, records)
        if code == INTERRUPTED:
            output.emit(Notice.hint("the same command again resumes the calls without an outcome"))
            return code
        worst = max(worst, code)
    return worst


def _of_journal(ctx: click.Context, settings: Settings, addresses: Sequence[str]) -> Settings:
    """Return the settings for an agent that the journal alone names.

    Where the settings name another agent, the credentials beside it are not for this one.
    """
    source = Source(DEFAULT.rank, "file", Path(ctx.params["journal"]), is_trusted=False)
    return settings._replace(
        agent_card=addresses[0],
        replicas=tuple(addresses[1:]),
        is_endpoint=False,
        agent_source=source if settings.agent_card else settings.agent_source,
    )


def _resume(
    ctx: click.Context,
    output: Output,
    settings: Settings,
    records: Sequence[CallRecord],
) -> int:
    """Resume the calls to one agent, or dismiss the requested one."""
    from holdfast._cli.agent.credentials import bind
    from holdfast._cli.agent.reference import find_agent
    from holdfast._cli.batch import resume as resuming
    from holdfast._cli.batch.session import JournaledSession, journal_at
    from holdfast._cli.execution import Diagnostics, perform
    from holdfast._cli.output.base import Failed

    environment: CliEnvironment = ctx.obj
    try:
        reference = find_agent(environment, settings)
        settings = bind(ctx, settings, reference, output)
        journal = journal_at(ctx.params["journal"])
        session = JournaledSession(environment, settings, reference, output, journal)
    except (ValueError, click.UsageError, CommandError) as error:
        message = f"calls to {masked_reference(settings.agent_card)} cannot be resumed: {error}"
        output.emit(Failed(Failure(code="HOLDFAST_ERR_RESUME", message=message)))
        return 1

    async def act(_session: Session, output: Output) -> None:
        if ctx.params["dismiss"] is None:
            await resuming.resume(session, output, records=records)
        else:
            await resuming.dismiss(session, output, record=records[0])

    with Diagnostics(output, enabled=settings.debug):
        return perform(environment, session, output, act)
