"""Commands that send messages: ``send`` and ``chat``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.errors import INTERRUPTED
from holdfast._cli.groups import HelpfulCommand
from holdfast._cli.options.flags import (
    AUTHORIZING,
    CONTEXT,
    EVERYWHERE,
    EVERYWHERE_BY_CALL,
    MESSAGE_METADATA,
    METADATA,
    ON_UNKNOWN,
    POLLING,
    REPLY,
    STREAMING,
    WAITING,
    with_options,
)
from holdfast._cli.options.parameters import ParsedParam, complete_path
from holdfast._cli.options.values import read_journal, read_key, read_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.parts import Draft

__all__ = ["chat", "send"]

_CHAT_IS_TEXT = (
    "chat is interactive, and its output is text: leave out -o json, or pass -o text; for JSON: "
    "holdfast send -o json TEXT"
)

_NO_TERMINAL = (
    "chat needs a terminal to read from and one to write to; without them, send one message after "
    "the other: holdfast send TEXT, then holdfast send --context-id ID TEXT, or --task-id ID"
)

_PARTS = (
    click.option(
        "--text",
        "--text-part",
        "text",
        multiple=True,
        metavar="TEXT",
        help="A part with text. Repeatable.",
    ),
    click.option(
        "--file",
        "--file-part",
        "file",
        multiple=True,
        metavar="PATH|URL|-",
        shell_complete=complete_path,
        help="A part with the bytes of a file or of standard input (-), or with a URL that the "
        "agent fetches. Repeatable.",
    ),
    click.option(
        "--data",
        "--data-part",
        "data",
        multiple=True,
        metavar="PATH|-",
        shell_complete=complete_path,
        help="A part with the JSON of a file, or of standard input. Repeatable.",
    ),
    click.option(
        "--media-type",
        "media_type",
        multiple=True,
        metavar="TYPE",
        help="Media type of one part: write it after the --text, --file or --data of that part. "
        "By default, guessed from the file's name.",
    ),
    click.option(
        "--part-metadata",
        "part_metadata",
        multiple=True,
        metavar="JSON",
        type=ParsedParam("json", read_metadata),
        help="JSON object for the metadata of one part, in the same position.",
    ),
)


_RECORDING = (
    click.option(
        "--key",
        metavar="KEY",
        type=ParsedParam("key", read_key),
        help="Idempotency key, such as order-17; needs --journal. The same command again sends "
        "nothing: it shows the result, or resumes the call after a crash. Has no variable.",
    ),
    click.option(
        "--journal",
        metavar="FILE",
        type=ParsedParam("path", read_journal),
        shell_complete=complete_path,
        help="SQLite file or postgresql:// address that records the message before it is sent, "
        "for --key and for holdfast resume. Has no variable.",
    ),
    ON_UNKNOWN,
)
_KEY_NEEDS_JOURNAL = (
    "--key needs --journal FILE, which records the key and the result; add it, such as "
    "--journal calls.db"
)
_FLAGS = {
    "text": "--text",
    "file": "--file",
    "data": "--data",
    "media_type": "--media-type",
    "part_metadata": "--part-metadata",
}
_OF_A_PART = ("media_type", "part_metadata")
_ORDER = "holdfast._cli.commands.send.order"
_MEDIA_TYPE = r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:\s*;[\x20-\x7e]*)?"


class _PartsCommand(HelpfulCommand):
    """A command that knows in which order its part flags were given.

    click gathers the values of each option; the order between options only its parser knows.
    """

    def make_parser(self, ctx: click.Context) -> Any:
        """Return a parser that records the order of the part flags."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> tuple[dict[str, Any], list[str], list[click.Parameter]]:
            values, rest, order = parse(args)
            ctx.meta[_ORDER] = [param.name for param in order if param.name in _FLAGS]
            return values, rest, order

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser


def _drafts(ctx: click.Context) -> list[Draft]:
    """Return the parts of the flags, in their order.

    Raises:
        click.UsageError: A flag about a part follows none, or cannot be right.
    """
    from holdfast._cli.options.parts import Draft

    params = ctx.params
    values: dict[str, Iterator[Any]] = {name: iter(params[name]) for name in _FLAGS}
    drafts: list[Draft] = []
    for name in ctx.meta[_ORDER]:
        value = next(values[name])
        if name not in _OF_A_PART:
            drafts.append(Draft(_FLAGS[name], value))
            continue
        is_metadata = name == "part_metadata"
        if is_metadata and drafts and drafts[-1].metadata is None:
            drafts[-1].metadata = value
            continue
        if is_metadata:
            message = (
                "--part-metadata must follow the --text, --file or --data that it applies to."
            )
            raise click.UsageError(message)
        if not drafts or drafts[-1].media_type is not None:
            message = (
                f"--media-type {value} must follow the --text, --file or --data that it applies "
                "to."
            )
            raise click.UsageError(message)
        if not re.fullmatch(_MEDIA_TYPE, value):
            message = f"{value!r} is not a media type, such as application/pdf."
            raise click.UsageError(message)
        drafts[-1].media_type = value
    return drafts


@click.command(
    "send",
    cls=_PartsCommand,
    context_settings=CONTEXT,
    examples=(
        "holdfast send -a https://agent.example.com 'How far is the moon?'\n"
        "holdfast send -a localhost:9999 --stream 'Write a haiku'\n"
        "holdfast send -a localhost:9999 'Sum up' --file notes --media-type text/plain\n"
        "holdfast send -a localhost:9999 --task-id ID 'Yes, book it'\n"
        "holdfast send -a localhost:9999 --key order-17 --journal calls.db 'One pizza'\n"
        "git diff | holdfast send -a localhost:9999 -o json -\n"
    ),
)
@click.argument("words", metavar="[TEXT]", nargs=-1)
@with_options(
    STREAMING,
    WAITING,
    REPLY,
    _PARTS,
    METADATA,
    MESSAGE_METADATA,
    AUTHORIZING,
    _RECORDING,
    POLLING,
    EVERYWHERE,
)
@click.pass_context
def send(ctx: click.Context, /, **options: Any) -> int:
    """Send a message and wait for the result; with --stream, show events as they arrive.

    A message has one or more parts: TEXT, then those of --text, --file and --data in their order.
    TEXT can be - for standard input.

    The message is sent once, unless --on-unknown allows more. If the reply is lost, the command
    searches for the task. If there is none, the outcome is unknown: the exit code is 1.

    With --key, the output says whether this command sent the message (with -o json: "sent"). If
    the key was used for another message or another agent, the exit code is 6.
    """
    from holdfast._cli.agent import actions
    from holdfast._cli.options.parts import read_parts

    if options["key"] is not None and options["journal"] is None:
        raise click.UsageError(_KEY_NEEDS_JOURNAL, ctx)
    parts = read_parts(ctx, options["words"], _drafts(ctx))
    return execute(
        ctx,
        lambda session, output: actions.send(
            session,
            output,
            parts=parts,
            task_id=options["task_id"],
            context_id=options["context_id"],
            metadata=options["metadata"],
            message_metadata=options["message_metadata"],
            on_unknown=options["on_unknown"],
        ),
        can_follow=True,
        journal=options["journal"],
        key=options["key"],
    )


@click.command(
    "chat",
    cls=HelpfulCommand,
    context_settings=CONTEXT,
    examples=(
        "holdfast chat -a localhost:9999\nholdfast chat -a localhost:9999 --context-id ID\n"
    ),
)
@click.argument("words", metavar="[TEXT]", nargs=-1)
@with_options(REPLY, METADATA, MESSAGE_METADATA, POLLING, EVERYWHERE_BY_CALL)
@click.pass_context
def chat(ctx: click.Context, /, **options: Any) -> int:
    """Talk to an agent interactively, line by line.

    Each line is a message; TEXT is the first one. All of them are sent in one context, by which
    the agent groups related messages. If the agent asks for input, the next line answers it. Text
    is shown as it arrives; if the connection is cut, the command fetches the rest.

    A line that ends in a backslash continues on the next line. Pasted text is one message if the
    terminal marks it as pasted. /help lists the commands; //WORD sends /WORD to the agent. The
    arrow keys recall earlier lines; they are not stored.

    Ctrl-C while an answer arrives stops showing it; the agent continues its work, and an empty
    line shows the rest. Ctrl-C at an empty line, Ctrl-D, /exit or SIGTERM ends the chat, which
    then shows the command that continues it.

    Without a terminal, TEXT is required, and holdfast chat TEXT does what holdfast send TEXT does.
    """
    from holdfast._cli.agent import actions
    from holdfast._cli.agent.chat import Chat
    from holdfast._cli.options.parts import read_text
    from holdfast._cli.output.chat_text import ChatOutput

    environment: CliEnvironment = ctx.obj
    from holdfast._cli.options.settings import read_settings

    settings = read_settings(ctx)
    if settings.output == "json":
        raise click.UsageError(_CHAT_IS_TEXT, ctx)
    first = read_text(ctx, options["words"])
    metadata = {name: options[name] for name in ("metadata", "message_metadata")}
    continued = {"task_id": options["task_id"], "context_id": options["context_id"]}
    terminal = environment.terminal()
    if terminal is not None:
        output = ChatOutput(settings)
        code = execute(
            ctx,
            lambda session, _: Chat(session, output, terminal, **metadata).run(first, **continued),
            output=output,
        )
        return code or (INTERRUPTED if terminal.is_terminated else 0)
    if first is None:
        raise click.UsageError(_NO_TERMINAL, ctx)
    return execute(
        ctx,
        lambda session, output: actions.send(
            session, output, parts=(first,), **metadata, **continued
        ),
    )
