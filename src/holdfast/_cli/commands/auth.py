"""Logging in at agents: ``holdfast auth login | logout | status`` (a2a-cli 12.2, 12.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from holdfast._cli.commands import execute
from holdfast._cli.groups import HelpfulGroup
from holdfast._cli.options.flags import CONTEXT, EVERYWHERE, with_options
from holdfast._cli.options.parameters import Choice, ParsedParam, complete_path, setting_option
from holdfast._cli.options.settings import read_settings
from holdfast._cli.options.values import Flow, read_id

if TYPE_CHECKING:
    from holdfast._cli.environment import CliEnvironment

__all__ = ["auth"]

OAUTH = (
    setting_option(
        "--flow",
        type=Choice(get_args(Flow)),
        default="device-code",
        help="How to log in.",
    ),
    setting_option(
        "--issuer",
        metavar="URL",
        type=ParsedParam("url", read_id),
        show_default="what the card names",
        help="The authorization server; its metadata document names its endpoints (RFC 8414, "
        "OpenID Connect Discovery).",
    ),
    setting_option(
        "--trust-server",
        multiple=True,
        metavar="ORIGIN",
        type=ParsedParam("origin", read_id, r"[,\s]+"),
        help="Log in at this origin, such as https://id.example.com, if the card names it. "
        "Repeatable.",
    ),
    setting_option(
        "--client-id",
        metavar="ID",
        type=ParsedParam("id", read_id),
        help="The client's id at the authorization server.",
    ),
    setting_option(
        "--client-secret-file",
        metavar="PATH",
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="File of the client's secret; - for standard input. By default, the secret is read "
        "from the environment variable A2ACLI_CLIENT_SECRET.",
    ),
    setting_option(
        "--client-auth",
        type=Choice(["client_secret_basic", "client_secret_post", "none"]),
        show_default="what the server accepts",
        help="How the client authenticates at the authorization server.",
    ),
    setting_option(
        "--scope",
        multiple=True,
        metavar="SCOPE",
        type=ParsedParam("scope", read_id, r"\s+"),
        show_default="what the card requires",
        help="Scope that the token is requested for. Repeatable.",
    ),
    setting_option(
        "--resource",
        metavar="URI",
        type=ParsedParam("uri", read_id),
        show_default="the agent's origin",
        help="Resource that the token is for (RFC 8707), as the authorization server names "
        "the agent. The word none omits it, for servers that refuse the parameter.",
    ),
    setting_option(
        "--allow-unadvertised-pkce",
        is_flag=True,
        help="Log in by authorization-code although the server does not advertise PKCE with S256 "
        "(RFC 7636).",
    ),
)


@click.group("auth", cls=HelpfulGroup, context_settings=CONTEXT)
@with_options(EVERYWHERE)
def auth(**_options: object) -> None:
    """Log in to an agent with OAuth; later commands send its token."""


@auth.command(
    "login",
    context_settings=CONTEXT,
    examples=(
        "holdfast auth login -a https://agent.example.com --client-id my-app \\\n"
        "    --issuer https://id.example.com\n"
    ),
)
@with_options(OAUTH, EVERYWHERE)
@click.pass_context
def login(ctx: click.Context, /, **options: Any) -> int:
    """Get a token for an agent by OAuth 2 or OpenID Connect, and store it for later commands.

    With the flow device-code, the default, a person opens an address on any device and enters a
    code; with authorization-code, a person logs in with a browser on this machine; with
    client-credentials, the program logs in by itself.

    The authorization server is the one of --issuer, or the one that the agent's card names, if
    --trust-server allows its origin. The client's secret, if it has one, is read from the
    environment variable A2ACLI_CLIENT_SECRET or from --client-secret-file, and not stored.

    The token is sent to the agent's origin only. It is stored below ~/.config/holdfast/logins in
    files that only you can read, and renewed when it expires. --bearer and --api-key take
    precedence over it.
    """
    from holdfast._cli.agent.login import log_in
    from holdfast._cli.agent.login_request import LoginRequest

    request = LoginRequest.of(options)
    return execute(ctx, lambda session, output: log_in(session, output, request))


@auth.command("logout", context_settings=CONTEXT)
@with_options(EVERYWHERE)
@click.pass_context
def logout(ctx: click.Context, /, **_options: object) -> int:
    """Delete the stored token of an agent. It is not revoked at the authorization server."""
    from holdfast._cli.agent.login import log_out

    return execute(ctx, log_out)


@auth.command("status", context_settings=CONTEXT)
@with_options(EVERYWHERE)
@click.pass_context
def status(ctx: click.Context, /, **_options: object) -> int:
    """Show whether there is a stored token for an agent, and when it expires; never the token.

    Without an agent, all logins are shown. A file found in the working directory does not name
    the agent here.
    """
    from holdfast._cli.agent.login import show_all_logins, show_login
    from holdfast._cli.execution import announce
    from holdfast._cli.output import output_for

    settings = read_settings(ctx, needs_agent=False)
    if settings.agent_card and settings.agent_source.is_trusted:
        return execute(ctx, show_login)
    output = output_for(settings.output, settings)
    announce(ctx, output)
    environment: CliEnvironment = ctx.obj
    environment.run(show_all_logins(environment, output))
    return 0
