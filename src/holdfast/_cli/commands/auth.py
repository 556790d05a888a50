"""Logging in at agents: ``holdfast auth login | logout | status`` (a2a-cli 12.2, 12.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.options import CONTEXT, EVERYWHERE, OAUTH, with_options
from holdfast._cli.settings import read_settings

if TYPE_CHECKING:
    from holdfast._cli.environment import CliEnvironment

__all__ = ["auth"]


@click.group("auth", context_settings=CONTEXT)
@with_options(EVERYWHERE)
def auth(**_options: object) -> None:
    """Log in at an agent, so that later commands send its token."""


@auth.command("login", context_settings=CONTEXT)
@with_options(OAUTH, EVERYWHERE)
@click.pass_context
def login(ctx: click.Context, /, **options: Any) -> int:
    """Get a token for an agent by OAuth 2 or OpenID Connect, and keep it for later commands.

    With the flow device-code, the default, a person opens an address on any device and enters a
    code; with authorization-code, a person logs in with a browser on this machine; with
    client-credentials, the program logs in by itself.

    The authorization server is the one of --issuer, or the one that the agent's card names
    at an origin of --trust-server. The client's secret, if it has one, is read from the
    environment variable A2ACLI_CLIENT_SECRET or from --client-secret-file, and not kept.

    The token is for the agent's origin and goes nowhere else. It is kept below
    ~/.config/holdfast/logins in files that only you can read, and renewed when it expires.
    --bearer and --api-key take precedence over it.
    """
    from holdfast._cli.login import LoginRequest, log_in

    request = LoginRequest.of(options)
    return execute(ctx, lambda session, output: log_in(session, output, request))


@auth.command("logout", context_settings=CONTEXT)
@with_options(EVERYWHERE)
@click.pass_context
def logout(ctx: click.Context, /, **_options: object) -> int:
    """Forget the token of an agent. It is not revoked at the authorization server."""
    from holdfast._cli.login import log_out

    return execute(ctx, log_out)


@auth.command("status", context_settings=CONTEXT)
@with_options(EVERYWHERE)
@click.pass_context
def status(ctx: click.Context, /, **_options: object) -> int:
    """Show whether there is a token for an agent, and until when; never the token.

    Without an agent, which a file found in the working directory does not name here, all logins
    are shown.
    """
    from holdfast._cli.execution import announce
    from holdfast._cli.login import show_all_logins, show_login
    from holdfast._cli.output.base import output_for

    settings = read_settings(ctx, needs_agent=False)
    if settings.agent_card and settings.agent_source.is_trusted:
        return execute(ctx, show_login)
    output = output_for(settings.output, settings)
    announce(ctx, output)
    world: CliEnvironment = ctx.obj
    world.run(show_all_logins(world, output))
    return 0
