"""The commands: what each does, from its arguments to its output."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.shell_completion import get_completion_class

from holdfast.cli import actions
from holdfast.cli.card_commands import get_card
from holdfast.cli.errors import CommandError, Failure, describe, internal, unwritable, usage
from holdfast.cli.options import (
    CARD,
    DEFAULT_CONCURRENCY,
    EVERYWHERE,
    EVERYWHERE_BRIEFLY,
    EVERYWHERE_BUT_FILES,
    EXAMINING,
    HISTORY,
    LINES,
    LISTING,
    METADATA,
    OUTPUT_FORMATS,
    PAGES,
    POLLING,
    PUSHING,
    REPLY,
    RESUMING,
    RUNNING,
    SAVING,
    STREAMING,
    WAITING,
    with_options,
)
from holdfast.cli.output import ChatOutput, Diagnostics, OutputError, output_for
from holdfast.cli.parts import PARTS, PartsCommand, read_parts, read_text
from holdfast.cli.reference import read_reference
from holdfast.cli.settings import effective, read_settings
from holdfast.cli.sources import configuration_of, loaded_configuration, unknown
from holdfast.cli.values import (
    Reads,
    masked_reference,
    read_id,
    read_push_url,
    shown_duration,
    shown_rate,
)
from holdfast.errors import A2AError
from holdfast.model.requests import TaskPushNotificationConfig

if TYPE_CHECKING:
    from holdfast.cli.output import JsonOutput, Output, TextOutput
    from holdfast.cli.session import Session, World
    from holdfast.cli.settings import Settings
    from holdfast.model.types import Task
    from holdfast.runtime.journal import CallRecord

__all__ = ["app", "run"]

_INTERRUPTED = 130
_NOBODY_READS = 141
"""What a shell says of a program that SIGPIPE ended, as most are whose output nobody reads."""

_COMPLETE = "_HOLDFAST_COMPLETE"
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_NOTHING_TO_FOLLOW = (
    "--stream: there is nothing to follow here; it goes with -o json, to write each object on one "
    "line. To follow a task: holdfast task subscribe --stream TASK_ID"
)

_CHAT_IS_TEXT = (
    "chat is for people, and its output is text: leave out -o json, or say -o text; for JSON: "
    "holdfast send -o json TEXT"
)
_NO_TERMINAL = (
    "chat needs a terminal to read from and one to write to; without them, send one message after "
    "the other: holdfast send TEXT, then holdfast send --context-id ID TEXT, or --task-id ID"
)

_NO_NAME = (
    "--input -: standard input has no name by which a later run could go on with this one; give "
    "it one with --run-id NAME"
)

_WHOSE_CREDENTIALS = (
    "credentials and service parameters go to one agent: name it with --agent-card"
)

_NO_QUERY = "a journal keeps no query of an address; name the agent with --agent-card"

logger = logging.getLogger("holdfast.cli")

Action = Callable[["Session", "Output"], Awaitable[None]]


def run(arguments: Sequence[str], world: World) -> int:
    """Runs one command and gives its exit code.

    Args:
        arguments: The command line after the program's name.
        world: What the command runs in.
    """
    if sys.stdout is None:  # closed by whoever started us; the answer would be lost
        return _cannot_write(OSError("it is closed"))
    in_lines = "--stream" in arguments
    try:
        code = app.main(
            args=list(arguments),
            prog_name="holdfast",
            complete_var=_COMPLETE,
            standalone_mode=False,
            obj=world,
        )
    except click.exceptions.NoArgsIsHelpError as error:
        told = usage("Missing command.", error.ctx.command_path, instead=error.message)
        return _fail(_form(arguments, world, error.ctx), told, in_lines=in_lines)
    except click.UsageError as error:
        command = "holdfast" if error.ctx is None else error.ctx.command_path
        told = usage(_message(error), command)
        return _fail(_form(arguments, world, error.ctx), told, in_lines=in_lines)
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except OSError as error:  # everything else that may fail so is told by now
        return _cannot_write(error)
    except SystemExit as end:  # how click ends when nobody reads its help, and when it completes
        return _nobody_reads() if end.code else 0
    return code if isinstance(code, int) else 0


def _message(error: click.UsageError) -> str:
    """What is wrong, without a guess at another option that is not much like what was written."""
    if isinstance(error, click.NoSuchOption):
        near = get_close_matches(error.option_name, error.possibilities or (), cutoff=0.75)
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    return error.format_message()


def _fail(form: str, failure: Failure, *, in_lines: bool) -> int:
    """Reports what went wrong before the options were understood."""
    try:
        output_for(form, in_lines=in_lines).failure(failure)
    except BrokenPipeError:
        return _nobody_reads()
    except OSError as error:
        return _cannot_write(error)
    return failure.exit


def _form(arguments: Sequence[str], world: World, ctx: click.Context | None) -> str:
    """The output format that is asked for, whatever else is wrong with the arguments."""
    names_file = ctx is not None and ctx.info_name == "run"
    flags = r"-o[\0=]?" if names_file else r"-o[\0=]?|--output[\0=]"
    asked = _asked(arguments, flags) or os.environ.get("A2ACLI_OUTPUT")
    if asked is None:
        named = _asked(arguments, r"--config[\0=]") or os.environ.get("A2ACLI_CONFIG") or None
        with contextlib.suppress(OSError, ValueError):
            configuration = loaded_configuration(ctx) or world.read_configuration(named)
            stated = configuration.stated.get("A2ACLI_OUTPUT")
            asked = None if stated is None else stated.value
    form = (asked or "").lower()
    return form if form in OUTPUT_FORMATS else OUTPUT_FORMATS[0]


def _asked(arguments: Sequence[str], flags: str) -> str | None:
    """The last value that stands behind one of the flags."""
    found = re.findall(rf"(?:^|\0)(?:{flags})([^\0]*)", "\0".join(arguments))
    return found[-1] if found else None


def _cannot_write(error: OSError, session: Session | None = None) -> int:
    """Says so where that can still be said."""
    settings = None if session is None else session.settings
    with contextlib.suppress(OSError):
        output_for("text", settings).failure(unwritable(error, session))
    _discard()
    return 1


def _nobody_reads() -> int:
    """Leaves quietly when an output is closed at its other end, as by ``| head``."""
    _discard()
    return _NOBODY_READS


def _discard() -> None:
    """Forgets what an output does not take."""
    streams: tuple[TextIO | None, ...] = sys.stdout, sys.stderr
    for stream in filter(None, streams):
        try:
            stream.flush()
        except OSError:
            # What is still buffered would be written, and fail, once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _execute(
    ctx: click.Context,
    action: Action,
    *,
    can_follow: bool = False,
    output: TextOutput | JsonOutput | None = None,
) -> int:
    """Runs an action against the agent, and reports how it failed, if it did.

    Args:
        ctx: The command's context.
        action: What to do.
        can_follow: Whether there is something to follow with ``--stream``.
        output: Where things are said; what the options say if left out.

    Raises:
        click.UsageError: The options cannot be right.
    """
    from holdfast.cli.session import Session  # heavy; help and usage errors are not

    world: World = ctx.obj
    settings = read_settings(ctx)
    if settings.stream and not can_follow and settings.output != "json":
        raise click.UsageError(_NOTHING_TO_FOLLOW, ctx)
    output = output or output_for(settings.output, settings)
    _announce(ctx, output)
    reference = _reference(ctx, settings)
    with Diagnostics(output, enabled=settings.debug):
        return _perform(world, Session(world, settings, reference, output), output, action)


def _announce(ctx: click.Context, output: Output) -> None:
    """Says what of the configuration may be a mistake."""
    for problem in configuration_of(ctx).problems:
        output.warn(problem)
    for name, meant in unknown(config_show, configuration_of(ctx)):
        if meant:  # others may be of another tool that follows the same specification
            output.warn(_not_a_setting(name, meant))


def _reference(ctx: click.Context, settings: Settings, *, absolute: bool = False) -> str | Path:
    """Where the card is.

    Raises:
        click.UsageError: The reference cannot be one.
    """
    try:
        reference = read_reference(settings.agent_card)
    except ValueError as error:
        raise click.UsageError(f"--agent-card: {error}", ctx) from None
    return reference.absolute() if absolute and isinstance(reference, Path) else reference


def _not_a_setting(name: str, meant: str | None) -> str:
    advice = "" if meant is None else f"; did you mean {meant}?"
    return f"{name} is not a setting of holdfast{advice}"


def _perform(world: World, session: Session, output: Output, action: Action) -> int:
    """Runs an action, and gives the exit code."""

    async def act() -> None:
        async with session:
            await action(session, output)

    try:
        world.run(act())
    except KeyboardInterrupt:
        _interrupted(session, output)
        return _INTERRUPTED
    except OutputError as error:
        return _cannot_write(error, session)
    except BrokenPipeError:
        _left(session, output)
        raise
    except click.UsageError:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, one form of error tells it
        failure = _failure(error, session)
    else:
        return 0
    if session.task is not None:
        _give_up(session.task, output)
    output.failure(failure)
    return failure.exit


def _failure(error: Exception, session: Session) -> Failure:
    if isinstance(error, A2AError):
        return describe(error, session)
    if isinstance(error, CommandError):
        return error.failure
    logger.debug("%s", "".join(traceback.format_exception(error)))
    return internal(error)


def _give_up(task: Task, output: Output) -> None:
    """Completes what was begun, for those who read it."""
    try:
        output.gave_up(task)
    except BrokenPipeError:  # what there is to say on standard error is said all the same
        _discard()


def _left(session: Session, output: Output) -> None:
    """Says how to go on to those who left before the task was named, or who still look on."""
    task, is_named = session.task, output.has_named_task
    if task is not None and not task.state.is_terminal and (not is_named or _is_seen(sys.stderr)):
        output.hint(session.go_on(task.id))
    elif task is not None and not is_named:
        output.hint(session.command("task", "get", task.id))


def _is_seen(stream: TextIO | None) -> bool:
    """Whether somebody sits before a stream."""
    return stream is not None and stream.isatty()


def _interrupted(session: Session, output: Output) -> None:
    """Says how to go on after Ctrl-C: the agent knows nothing of it."""
    if session.task is not None:
        _give_up(session.task, output)
        output.hint(session.go_on(session.task.id))
    elif session.message_id is not None:
        output.warn(f"message {session.message_id} was on its way; the agent may have got it")


# ── The command line ─────────────────────────────────────────────────────────────────────────


@click.group(
    context_settings=_CONTEXT,
    epilog="Each option of a command can also be set by the environment variable that its help "
    "names, or in a .env file under that name: see holdfast config show --help. Exit codes: 0 "
    "done, 1 failed, 2 wrong usage, 3 agent not reachable, 4 not authenticated, 5 timeout, 130 "
    "interrupted, 141 nobody reads the output. How a task ended is told by its state, not by the "
    "exit code.",
)
@with_options(EVERYWHERE)
def app(**_options: object) -> None:
    """Talk to agents over A2A, the Agent2Agent protocol."""


@app.command("send", cls=PartsCommand, context_settings=_CONTEXT)
@click.argument("words", metavar="[TEXT]", nargs=-1)
@with_options(PARTS, REPLY, METADATA, WAITING, POLLING, STREAMING, EVERYWHERE)
@click.pass_context
def send(ctx: click.Context, /, **options: Any) -> int:
    """Send a message, and wait for the outcome, or follow how it comes about with --stream.

    The message is TEXT, or parts in the order of their flags, or both. It is never sent twice.
    """
    parts = read_parts(ctx, options["words"])
    return _execute(
        ctx,
        lambda session, output: actions.send(
            session,
            output,
            parts=parts,
            task_id=options["task_id"],
            context_id=options["context_id"],
            metadata=options["metadata"],
        ),
        can_follow=True,
    )


@app.command("chat", context_settings=_CONTEXT)
@click.argument("words", metavar="[TEXT]", nargs=-1)
@with_options(REPLY, METADATA, POLLING, EVERYWHERE)
@click.pass_context
def chat(ctx: click.Context, /, **options: Any) -> int:
    """Talk to an agent at a terminal, line by line.

    Each line is a message in the context of those before, TEXT the first; where the agent asks
    for something, the next line replies. Answers show as they come, and go on where a connection
    is cut. --timeout is the time of each answer.

    A line that ends in a backslash is continued on the next one; what is pasted is one message,
    where the terminal tells that it is pasted. An empty line follows a task that was left.

    Ctrl-C leaves an answer, which the agent goes on with; at an empty line it ends the chat, as
    Ctrl-D does. Nothing is remembered: the last line on stderr is the command to come back with.

    Without a terminal nothing is asked for, and TEXT is sent as by holdfast send.
    """
    from holdfast.cli.chat import Chat  # heavy; help and usage errors are not

    world: World = ctx.obj
    settings = read_settings(ctx)
    if settings.output == "json":
        raise click.UsageError(_CHAT_IS_TEXT, ctx)
    said, metadata = read_text(ctx, options["words"]), options["metadata"]
    named = {"task_id": options["task_id"], "context_id": options["context_id"]}
    terminal = world.terminal()
    if terminal is not None:
        output = ChatOutput(settings)
        return _execute(
            ctx,
            lambda session, _: Chat(session, output, terminal, metadata=metadata).run(
                said, **named
            ),
            output=output,
        )
    if said is None:
        raise click.UsageError(_NO_TERMINAL, ctx)
    return _execute(
        ctx,
        lambda session, output: actions.send(
            session, output, parts=(said,), metadata=metadata, **named
        ),
    )


@app.command("run", context_settings=_CONTEXT)
@with_options(RUNNING, POLLING, EVERYWHERE_BUT_FILES)
@click.pass_context
def run_lines(ctx: click.Context, /, **options: Any) -> int:
    """Send many messages, a few at a time, each once, whatever happens to the command.

    Each line of the input is a message: text; a JSON string; a Message of the protocol; or an
    object {"id": …, "text": …} or {"id": …, "message": {…}}, its id optional. Each line of the
    output is the result of one: {"id": …, "line": n, "digest": …, "task": {…}}, or "message" or
    "error" in place of the task. Results come as they come; each line has one.

    However it ended, killed or interrupted, the same command goes on: what is in the output is
    over, what was sent is waited for, the rest is sent, and so is a line whose error has
    "executed": false. --timeout is the time of each answer.

    A line is known by its id, or else by what it says, wherever it stands: the same line twice is
    two messages, a changed one is another, and an id whose message has changed is an error. What
    the output holds of other inputs stays there, and a line that says the same is over, too.

    Ctrl-C sends no more, and waits for what is under way; a second one leaves it to the agent and
    to the next run. While the agent cannot be reached, at the start too, no more is sent; after 5
    minutes the run ends as by a second Ctrl-C. A name that nobody has, a card that is not there
    and credentials that the agent does not take end it at once.

    Exit codes: 0 if each line has an answer, however its task ended, or was left out; 1 if one has
    an error in its place, or is no message; 3 or 4 if the agent cannot be reached or lets nobody
    in.
    """
    from holdfast.cli.journaled import journal_at  # heavy; help is not
    from holdfast.cli.outage import WatchedSession
    from holdfast.cli.plan import STANDARD, Plan
    from holdfast.cli.run import Run

    if options["source"] == STANDARD and options["run_id"] is None:
        raise click.UsageError(_NO_NAME, ctx)
    if options["results"].lower() in OUTPUT_FORMATS:
        form = options["results"].lower()
        message = f"--output: names a file here; the form is -o {form}, a file ./{form}"
        raise click.UsageError(message, ctx)
    world: World = ctx.obj
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
        more=tuple(_given(ctx, settings)),
    )
    output = output_for(settings.output, settings)
    _announce(ctx, output)
    session = WatchedSession(
        world, settings, _reference(ctx, settings), output, journal_at(plan.journal)
    )
    run = Run(session, output, plan, world.interrupts)
    with Diagnostics(output, enabled=settings.debug):
        return _perform(world, session, output, lambda _session, _output: run.run())


def _given(ctx: click.Context, settings: Settings) -> Iterator[str]:
    """The options of a run that are no default, as words of the command that goes on with it."""
    options = ctx.params
    if options["rate"] is not None:
        yield from ("--rate", shown_rate(options["rate"]))
    if options["concurrency"] != DEFAULT_CONCURRENCY:
        yield from ("--concurrency", str(options["concurrency"]))
    if options["on_unknown"] != "reconcile":
        yield from ("--on-unknown", options["on_unknown"])
    if options["on_bad_line"] != "fail":
        yield from ("--on-bad-line", options["on_bad_line"])
    if settings.timeout_given:
        yield from ("--timeout", shown_duration(settings.timeout))


@app.command("resume", context_settings=_CONTEXT)
@with_options(RESUMING, EVERYWHERE)
@click.pass_context
def resume(ctx: click.Context, /, **options: Any) -> int:
    """Go on with the calls of a journal that have no outcome, and show what comes of each.

    They are those that a crash, a timeout or an interruption left. Nothing is sent again: a task
    that is known is waited for, and one that is not is looked for. Without --agent-card the calls
    to all agents are gone on with, agent by agent, each at the address that the journal has.

    A call that somebody works on is named, and left to that one; after a crash it may take some
    seconds until that is clear. With -o json each call is one line: the task or message that came
    of it, or the error. Exit codes: 0 if each call has an answer, however its task ended, 1 if
    one has none.
    """
    from holdfast.cli import resume as resuming  # heavy; help and usage errors are not

    if options["lists"] and options["forget"]:
        message = "--list and --forget contradict each other."
        raise click.UsageError(message, ctx)
    settings = read_settings(ctx, needs_agent=False)
    output = output_for(settings.output, settings, in_lines=True)
    _announce(ctx, output)
    agent = settings.agent_card and str(_reference(ctx, settings, absolute=True))
    if not (agent or options["lists"] or options["forget"]) and _goes_to_one(settings):
        raise click.UsageError(_WHOSE_CREDENTIALS, ctx)
    world: World = ctx.obj
    calls: dict[str, list[CallRecord]] = {}

    async def look() -> None:
        calls.update(
            await resuming.unfinished(options["journal"], agent or None, options["forget"])
        )
        if options["lists"] or not calls:
            resuming.list_calls(calls, output, now=world.env.wall())

    try:
        world.run(look())
    except CommandError as error:
        output.failure(error.failure)
        return error.failure.exit
    if options["lists"]:
        return 0
    return _resume_each(ctx, output, settings, calls)


def _goes_to_one(settings: Settings) -> bool:
    """Whether something is sent along that is for one agent alone."""
    return bool(settings.credentials or settings.svc_params)


def _resume_each(
    ctx: click.Context,
    output: TextOutput | JsonOutput,
    settings: Settings,
    calls: Mapping[str, Sequence[CallRecord]],
) -> int:
    """Goes on with the calls to one agent after the other; gives the worst exit code."""
    from holdfast.runtime.agent_name import is_address

    worst = 0
    for agent, records in calls.items():
        if not (settings.agent_card or is_address(agent)):
            told = f"calls to {agent} cannot be gone on with: {_NO_QUERY}"
            output.failure(Failure(code="HOLDFAST_ERR_RESUME", message=told))
            worst = max(worst, 1)
            continue
        reference = settings.agent_card or agent
        code = _resume(ctx, output, replace(settings, agent_card=reference), records)
        if code == _INTERRUPTED:
            return code
        worst = max(worst, code)
    return worst


def _resume(
    ctx: click.Context,
    output: TextOutput | JsonOutput,
    settings: Settings,
    records: Sequence[CallRecord],
) -> int:
    """Goes on with the calls to one agent, or forgets the one that is named."""
    from holdfast.cli import resume as resuming
    from holdfast.cli.journaled import JournaledSession, journal_at

    world: World = ctx.obj
    try:
        reference = read_reference(settings.agent_card)
        journal = journal_at(ctx.params["journal"])
        session = JournaledSession(world, settings, reference, output, journal)
    except (ValueError, click.UsageError) as error:
        told = f"calls to {masked_reference(settings.agent_card)} cannot be gone on with: {error}"
        output.failure(Failure(code="HOLDFAST_ERR_RESUME", message=told))
        return 1

    async def act(_session: Session, output: Output) -> None:
        if ctx.params["forget"] is None:
            await resuming.resume(session, output, records=records)
        else:
            await resuming.forget(session, output, record=records[0])

    with Diagnostics(output, enabled=settings.debug):
        return _perform(world, session, output, act)


@app.command("doctor", context_settings=_CONTEXT)
@with_options(EXAMINING, LINES, EVERYWHERE_BRIEFLY)
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
    from holdfast.cli.doctor import examine  # heavy; help and usage errors are not

    world: World = ctx.obj
    text, twice = options["sends"], options["twice"]
    if twice and text is None:
        message = "--twice is about a message: name it with --send TEXT."
        raise click.UsageError(message, ctx)
    if text is not None and not text:
        message = "--send: there is no text to send."
        raise click.UsageError(message, ctx)
    return _execute(
        ctx,
        lambda session, output: examine(session, output, send=text, twice=twice, world=world),
    )


@app.group("card", context_settings=_CONTEXT)
@with_options(EVERYWHERE)
def card(**_options: object) -> None:
    """Look at what an agent says of itself."""


@card.command("get", context_settings=_CONTEXT)
@with_options(CARD, LINES, EVERYWHERE)
@click.pass_context
def card_get(ctx: click.Context, /, **options: Any) -> int:
    """Fetch an agent's card and show it."""
    return _execute(
        ctx,
        lambda session, output: get_card(
            session, output, validate=options["validate"], extended=options["extended"]
        ),
    )


@app.group("task", context_settings=_CONTEXT)
@with_options(EVERYWHERE)
def task(**_options: object) -> None:
    """Look at tasks, follow them, save what they made, cancel them."""


@task.command("get", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(HISTORY, WAITING, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_get(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Show a task as it stands, or with --wait as soon as it is over or needs somebody to act."""
    return _execute(
        ctx,
        lambda session, output: actions.get_task(
            session, output, task_id=wanted, history=options["history"]
        ),
    )


@task.command("list", context_settings=_CONTEXT)
@with_options(LISTING, HISTORY, LINES, EVERYWHERE)
@click.pass_context
def task_list(ctx: click.Context, /, **options: Any) -> int:
    """List tasks, the most recently updated first, page by page."""
    if options["every_page"] and options["page_token"]:
        message = "--all and --page-token contradict each other."
        raise click.UsageError(message, ctx)
    filters = actions.Filters(
        context_id=options["context_id"],
        status=options["status"],
        status_timestamp_after=options["since"],
        limit=options["limit"],
        history_length=options["history"],
        include_artifacts=options["with_artifacts"],
    )
    return _execute(
        ctx,
        lambda session, output: actions.list_tasks(
            session,
            output,
            filters=filters,
            page_token=options["page_token"],
            every_page=options["every_page"],
        ),
    )


@task.command("subscribe", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(POLLING, STREAMING, EVERYWHERE)
@click.pass_context
def task_subscribe(ctx: click.Context, /, wanted: str, **_options: object) -> int:
    """Subscribe to a task until it is over or needs somebody to act.

    With --stream each event is shown as it comes, first the task as it stands; without, the task
    at the end. A connection that is cut is picked up again.
    """
    return _execute(
        ctx,
        lambda session, output: actions.subscribe_to_task(session, output, task_id=wanted),
        can_follow=True,
    )


@task.command("download", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(SAVING, EVERYWHERE)
@click.pass_context
def task_download(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Save what is in the artifacts of a task: files, texts and data.

    The agent names its files; what is no plain name is made one. What an artifact only names the
    address of is fetched without credentials, up to 100 MiB, and not from further inside this
    network than the agent. With -o json the document is the task, and the metadata of each part
    says under holdfast/savedAs where it is.
    """
    return _execute(
        ctx,
        lambda session, output: actions.download_task(
            session,
            output,
            task_id=wanted,
            directory=Path(options["directory"]).expanduser(),
            overwrite=options["overwrite"],
        ),
    )


@task.command("cancel", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(METADATA, WAITING, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_cancel(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Ask the agent to cancel a task, and wait until the task is over."""
    return _execute(
        ctx,
        lambda session, output: actions.cancel_task(
            session, output, task_id=wanted, metadata=options["metadata"]
        ),
    )


@task.group("push-config", context_settings=_CONTEXT)
@with_options(EVERYWHERE)
def push_config(**_options: object) -> None:
    """Say where an agent sends news of a task, and look at what it was told.

    Text shows no token and no credentials; -o json shows the configuration as the agent gave it.
    """


@push_config.command("create", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@click.argument("url", metavar="URL", type=Reads("url", read_push_url))
@click.option(
    "--id",
    "config_id",
    metavar="ID",
    type=Reads("id", read_id),
    show_default="the agent's choice",
    help="Name of the configuration; one of that name is replaced.",
)
@with_options(PUSHING, LINES, EVERYWHERE)
@click.pass_context
def push_config_create(ctx: click.Context, /, wanted: str, url: str, **options: Any) -> int:
    """Let the agent send news of a task to URL."""
    config = TaskPushNotificationConfig(
        id=options["config_id"],
        task_id=wanted,
        url=url,
        token=options["push_token"],
        authentication=options["push_credentials"],
    )
    return _execute(
        ctx,
        lambda session, output: actions.create_push_config(session, output, config=config),
    )


@push_config.command("get", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@click.argument("config_id", metavar="CONFIG_ID", type=Reads("id", read_id))
@with_options(LINES, EVERYWHERE)
@click.pass_context
def push_config_get(ctx: click.Context, /, wanted: str, config_id: str, **_options: object) -> int:
    """Show one configuration of a task."""
    return _execute(
        ctx,
        lambda session, output: actions.get_push_config(
            session, output, task_id=wanted, config_id=config_id
        ),
    )


@push_config.command("list", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(PAGES, LINES, EVERYWHERE)
@click.pass_context
def push_config_list(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """List the configurations of a task."""
    return _execute(
        ctx,
        lambda session, output: actions.list_push_configs(
            session,
            output,
            task_id=wanted,
            limit=options["limit"],
            page_token=options["page_token"],
        ),
    )


@push_config.command("delete", context_settings=_CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@click.argument("config_id", metavar="CONFIG_ID", type=Reads("id", read_id))
@with_options(LINES, EVERYWHERE)
@click.pass_context
def push_config_delete(
    ctx: click.Context, /, wanted: str, config_id: str, **_options: object
) -> int:
    """Delete one configuration of a task: the agent sends no more news there."""
    return _execute(
        ctx,
        lambda session, output: actions.delete_push_config(
            session, output, task_id=wanted, config_id=config_id
        ),
    )


@app.group("config", context_settings=_CONTEXT)
@with_options(EVERYWHERE)
def config(**_options: object) -> None:
    """Look at the settings in effect."""


@config.command("show", context_settings=_CONTEXT)
@with_options(EVERYWHERE, REPLY, METADATA, HISTORY, WAITING, POLLING, PUSHING)
@click.pass_context
def config_show(ctx: click.Context, /, **_options: object) -> None:
    """Show each setting as it is in effect, and where its value comes from.

    A flag beats the environment, which beats the local .env file (of the working directory or
    above it, or the one that --config names), which beats ~/.config/a2a-cli/.env, which beats the
    default. Nothing is changed: edit the files.
    """
    settings, configuration = list(effective(ctx)), configuration_of(ctx)
    form = next(setting.value for setting in settings if setting.name == "output")
    output = output_for(form or OUTPUT_FORMATS[0])
    output.settings(settings, configuration)
    for problem in configuration.problems:
        output.warn(problem)
    for name, meant in unknown(config_show, configuration):
        output.warn(_not_a_setting(name, meant))


@app.command("completion", context_settings=_CONTEXT)
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
def completion(shell: str) -> None:
    """Write a script with which SHELL completes commands, options and their values.

    For bash, put this into ~/.bashrc: eval "$(holdfast completion bash)". For zsh, into ~/.zshrc:
    eval "$(holdfast completion zsh)". For fish: holdfast completion fish >
    ~/.config/fish/completions/holdfast.fish
    """
    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(app, {}, "holdfast", _COMPLETE).source())


def _complete_command(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The commands below the ones that are written already."""
    command: click.Command | None = app
    for word in ctx.params.get("words") or ():
        command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
    names = command.list_commands(ctx) if isinstance(command, click.Group) else []
    return [name for name in names if name.startswith(incomplete)]


@app.command("help", context_settings=_CONTEXT)
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete_command)
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show how to use the tool or a command."""
    command: click.Command = app
    above = ctx.find_root()
    for word in words:
        found = command.get_command(above, word) if isinstance(command, click.Group) else None
        if found is None:
            message = f"No such command {' '.join(words)!r}."
            raise click.UsageError(message, ctx)
        command = found
        above = click.Context(command, parent=above, info_name=word, **_help_settings())
    click.echo(command.get_help(above))


def _help_settings() -> dict[str, Any]:
    return dict(_CONTEXT)
