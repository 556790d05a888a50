"""Commands that send messages: ``send`` and ``chat``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast._cli import actions
from holdfast._cli.execution import CONTEXT, execute
from holdfast._cli.options import (
    AUTHORIZING,
    EVERYWHERE,
    MESSAGE_METADATA,
    METADATA,
    POLLING,
    REPLY,
    STREAMING,
    WAITING,
    with_options,
)
from holdfast._cli.output.text_output import ChatOutput
from holdfast._cli.parts import PARTS, PartsCommand, read_parts, read_text
from holdfast._cli.settings import read_settings

if TYPE_CHECKING:
    from holdfast._cli.environment import CliEnvironment

__all__ = ["chat", "send"]

_CHAT_IS_TEXT = (
    "chat is for people, and its output is text: leave out -o json, or say -o text; for JSON: "
    "holdfast send -o json TEXT"
)

_NO_TERMINAL = (
    "chat needs a terminal to read from and one to write to; without them, send one message after "
    "the other: holdfast send TEXT, then holdfast send --context-id ID TEXT, or --task-id ID"
)


@click.command("send", cls=PartsCommand, context_settings=CONTEXT)
@click.argument("words", metavar="[TEXT]", nargs=-1)
@with_options(
    PARTS, REPLY, METADATA, MESSAGE_METADATA, WAITING, AUTHORIZING, POLLING, STREAMING, EVERYWHERE
)
@click.pass_context
def send(ctx: click.Context, /, **options: Any) -> int:
    """Send a message, and wait for the outcome, or follow its events with --stream.

    The message is TEXT, or parts in the order of their flags, or both; TEXT - reads standard
    input. It is never sent twice.
    """
    parts = read_parts(ctx, options["words"])
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
        ),
        can_follow=True,
    )


@click.command("chat", context_settings=CONTEXT)
@click.argument("words", metavar="[TEXT]", nargs=-1)
@with_options(REPLY, METADATA, MESSAGE_METADATA, POLLING, EVERYWHERE)
@click.pass_context
def chat(ctx: click.Context, /, **options: Any) -> int:
    """Talk to an agent at a terminal, line by line.

    Each line is a message in the context of the earlier ones, and TEXT is the first; if the agent
    asks for input, the next line is the reply. Answers are shown as they arrive, and resumed after
    a cut connection. --timeout is the time of each answer.

    A line that ends in a backslash continues on the next one; pasted text is one message, if the
    terminal marks it as pasted. An empty line follows the task again that Ctrl-C left.
    /help shows the commands of the chat; a line with a slash and one word is never sent, but
    //WORD sends /WORD.

    Ctrl-C stops following an answer, and the agent continues its work; the next line is a new
    message. At an empty line, Ctrl-C ends the chat, as Ctrl-D does. Nothing is remembered: the
    last line on stderr is the command that continues the conversation.

    Without a terminal, TEXT is sent as by holdfast send.
    """
    from holdfast._cli.chat import Chat  # heavy; help and usage errors are not

    world: CliEnvironment = ctx.obj
    settings = read_settings(ctx)
    if settings.output == "json":
        raise click.UsageError(_CHAT_IS_TEXT, ctx)
    said = read_text(ctx, options["words"])
    metadata = {name: options[name] for name in ("metadata", "message_metadata")}
    named = {"task_id": options["task_id"], "context_id": options["context_id"]}
    terminal = world.terminal()
    if terminal is not None:
        output = ChatOutput(settings)
        return execute(
            ctx,
            lambda session, _: Chat(session, output, terminal, **metadata).run(said, **named),
            output=output,
        )
    if said is None:
        raise click.UsageError(_NO_TERMINAL, ctx)
    return execute(
        ctx,
        lambda session, output: actions.send(session, output, parts=(said,), **metadata, **named),
    )
