"""``holdfast demo-server``: a fake agent on a real port, for practice, until Ctrl-C.

Rules: each new message meets the faults anew, in their order, one per request, so that a command
can be tried again and again; each request about the message counts (a retry, a subscription, a
query of the task), a request for the card does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import TYPE_CHECKING

import click

from holdfast._cli.errors import INTERRUPTED, Failure
from holdfast._cli.groups import HelpfulCommand
from holdfast._cli.options.flags import CONTEXT

if TYPE_CHECKING:
    from holdfast._cli.demo_agent import WrittenFault
    from holdfast._cli.environment import CliEnvironment

__all__ = ["demo_server", "server"]

DEFAULT_PORT = 9999
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104  for the shown address only


class _Faults(click.ParamType["tuple[WrittenFault, ...]"]):
    """Parses ``--faults``."""

    name = "faults"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[WrittenFault, ...]:
        from holdfast._cli.demo_agent import read_faults  # heavy: not imported for help

        try:
            return read_faults(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Host(click.ParamType[str]):
    """Refuses an empty address, which the system takes for all addresses of the machine."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        return str(value) or self.fail("say 0.0.0.0 for every address of this machine", param, ctx)


class _DemoCommand(HelpfulCommand):
    """Adds the words and the faults to the help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the words and the faults, and the examples."""
        from holdfast._cli.demo_agent import faults_text, help_text

        for title, text in (("Words", help_text()), ("Faults", faults_text())):
            with formatter.section(title):
                formatter.write_text(f"\b\n{text}")
        super().format_epilog(ctx, formatter)


@click.command(
    "demo-server",
    cls=_DemoCommand,
    context_settings=CONTEXT,
    common=(),
    examples=(
        "holdfast demo-server --port 0\n"
        "holdfast demo-server --faults cut:3,2xrate-limit:1,reset\n"
        "holdfast demo-server --faults bad-day\n"
    ),
)
@click.option(
    "--host",
    metavar="ADDRESS",
    type=_Host(),
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port; 0 for any free one.",
)
@click.option(
    "--faults",
    type=_Faults(),
    default="",
    metavar="[TIMESx]FAULT[:NUMBER],...",
    help="Faults of each message, one for each request.",
)
@click.pass_context
def demo_server(
    ctx: click.Context, /, host: str, port: int, faults: tuple[WrittenFault, ...]
) -> int:
    """Run a demo agent on this machine, until Ctrl-C.

    The agent speaks JSON-RPC and HTTP+JSON. A message that begins with one of the words below
    makes it behave as described there; it answers every other message with a short text. It sends
    no push notifications, and its card says so.

    With --faults, requests fail: the first request of each new message meets the first fault, the
    next request (a retry, or a query of the task) the second one, until none is left.

    The command prints the operation of each request. It exits with 130 after Ctrl-C, and
    with 143 after SIGTERM.
    """
    from holdfast._cli.output.base import Failed

    environment: CliEnvironment = ctx.obj
    ended = _Ended()
    environment.run(_serve(environment, host, port, faults, ended))
    if ended.failure is not None:
        from holdfast._cli.output import output_for

        output_for("text").emit(Failed(ended.failure))
        return ended.failure.exit
    return INTERRUPTED


server = HelpfulCommand(
    "server",
    context_settings=CONTEXT,
    common=(),
    params=demo_server.params,
    callback=demo_server.callback,
    help="The same as demo-server, under its name in the a2a-cli specification.\n\n"
    "holdfast demo-server --help describes the agent and its faults. For an agent of your own, "
    "see the Python module holdfast.server.",
)


class _Ended:
    """The outcome of the server.

    Attributes:
        failure: Why it failed; None if it was stopped.
    """

    failure: Failure | None = None


async def _serve(
    environment: CliEnvironment,
    host: str,
    port: int,
    faults: tuple[WrittenFault, ...],
    ended: _Ended,
) -> None:
    from holdfast._cli.demo_agent import DemoAgent  # heavy: not imported for help
    from holdfast._server.host_check import host_rules
    from holdfast.testing import LoopbackServer

    rules = host_rules(
        f"http://[{host}]" if ":" in host else f"http://{host}",
        listens_on=host,
        allowed_hosts=None,
        allowed_origins=None,
        hint="call the server as localhost",
    )
    server = LoopbackServer(DemoAgent(faults, log=_log, rules=rules), host=host, port=port)
    stopped = asyncio.Event()
    try:
        await server.listen()
    except OSError as error:
        ended.failure = Failure(
            code="HOLDFAST_ERR_LISTEN",
            message=f"cannot listen at {host}, port {port}: {error.strerror or error}",
            hint=_HINTS.get(error.errno or 0, "check --host, an address of this machine"),
        )
        return
    async with server:
        _announce(server.url, has_faults=bool(faults))
        with environment.interrupts(stopped.set):  # SIGTERM does the same
            await stopped.wait()


_HINTS = dict.fromkeys((errno.EADDRINUSE, errno.EACCES), "--port 0 takes a free port")


def _announce(url: str, *, has_faults: bool) -> None:
    host, _, port = url.removeprefix("http://").rpartition(":")
    if host.strip("[]") in _WILDCARDS:
        url = f"http://localhost:{port}"
    lines = [
        f"The demo agent listens at {url}; Ctrl-C stops it.",
        *(["The requests of each new message meet the faults, in order."] * has_faults),
        "In another terminal:",
        "",
        f"  holdfast send -a {url} 'How far is the Moon?'",
        f"  holdfast send -a {url} --stream 'Tell me a story'",
        f"  holdfast chat -a {url}",
        f"  holdfast send -a {url} help",
        "",
    ]
    _print_line("\n".join(lines))


def _print_line(line: str) -> None:
    from holdfast._cli.output.sanitizer import clean

    click.echo(clean(line))


def _log(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader has gone: the agent continues
        _print_line(line)
