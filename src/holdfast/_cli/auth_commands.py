"""Logging in at agents: ``holdfast auth login | logout | status`` (a2a-cli 12.2, 12.3).

Rules: a secret comes from the environment or from a file, never as an argument; nothing secret
goes to an authorization server that a card alone names, unless the caller trusts its origin; what
a person has to do is told on standard error, and nothing is asked for.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast._cli.errors import CommandError, Failure
from holdfast._cli.execution import CONTEXT, announce, execute
from holdfast._cli.login_names import CLIENT_SECRET, client_secret
from holdfast._cli.options import EVERYWHERE, OAUTH, with_options
from holdfast._cli.output.interface import output_for
from holdfast._cli.settings import read_settings
from holdfast._cli.values import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.login_names import Flow
    from holdfast._cli.logins import Login
    from holdfast._cli.output.interface import Output
    from holdfast._cli.session import Session
    from holdfast.auth.oauth import (
        AuthorizationServer,
        DevicePrompt,
        OAuthOptions,
        OAuthProvider,
        Token,
        TokenStore,
    )

__all__ = ["auth"]

_GRANTS = {
    "device-code": "device_code",
    "client-credentials": "client_credentials",
    "authorization-code": "authorization_code",
}
_UNTRUSTED = (
    "the card names an authorization server at {0}; nothing was sent there, since a card can name "
    "any. If you trust it: --trust-server {0}"
)
_UNNAMED = (
    "the card names no authorization server for {0}; name it with --issuer URL, or use another "
    "--flow"
)


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
    asked = _Asked.of(options)
    return execute(ctx, lambda session, output: _log_in(session, output, asked))


@auth.command("logout", context_settings=CONTEXT)
@with_options(EVERYWHERE)
@click.pass_context
def logout(ctx: click.Context, /, **_options: object) -> int:
    """Forget the token of an agent. It is not revoked at the authorization server."""
    return execute(ctx, _log_out)


@auth.command("status", context_settings=CONTEXT)
@with_options(EVERYWHERE)
@click.pass_context
def status(ctx: click.Context, /, **_options: object) -> int:
    """Show whether there is a token for an agent, and until when; never the token.

    Without an agent, which a file found in the working directory does not name here, all logins
    are shown.
    """
    settings = read_settings(ctx, needs_agent=False)
    if settings.agent_card and settings.agent_source.is_trusted:
        return execute(ctx, _show)
    output = output_for(settings.output, settings)
    announce(ctx, output)
    world: CliEnvironment = ctx.obj
    world.run(_show_all(world, output))
    return 0


class _Asked(NamedTuple):
    """The options of ``auth login``."""

    flow: Flow
    issuer: str | None
    client_id: str
    secret: str | None
    client_auth: str | None
    scopes: Sequence[str]
    resource: str | None
    trusted: Sequence[str]
    allows_unadvertised_pkce: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> _Asked:
        if not options["client_id"]:
            message = "Missing option '--client-id': name the client that the server knows."
            raise click.UsageError(message)
        file = options["client_secret_file"]
        try:  # before the event loop runs, which a pipe that is not written would block
            secret = None if file is None else client_secret(file)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        return cls(
            flow=options["flow"],
            issuer=options["issuer"],
            client_id=options["client_id"],
            secret=secret,
            client_auth=options["client_auth"],
            scopes=options["scope"],
            resource=options["resource"],
            trusted=options["trust_server"],
            allows_unadvertised_pkce=options["allow_unadvertised_pkce"],
        )


async def _log_in(session: Session, output: Output, asked: _Asked) -> None:
    from holdfast._auth.oauth.requests import concerns_resource, oauth_library
    from holdfast._cli.logins import Login
    from holdfast.errors import A2AError, AuthenticationError

    named = session.settings.agent_source
    if not named.is_trusted:
        message = (
            f"{named.place} names the agent, but the file may not be yours; name the agent to log "
            "in at with --agent-card"
        )
        raise click.UsageError(message)
    try:
        oauth_library()
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    stated = session.settings.client_secret
    try:
        secret = asked.secret or (read_secret(stated) if stated else None)
    except ValueError as error:
        raise click.UsageError(f"{CLIENT_SECRET}: {error}") from None
    if asked.flow == "client-credentials" and secret is None and not session.settings.client_cert:
        message = (
            "client-credentials needs the client's secret: set the environment variable "
            f"{CLIENT_SECRET}, or name a file with --client-secret-file (- for standard input)"
        )
        raise click.UsageError(message)
    agent = await _agent(session)
    resource = _resource(asked, await session.named_address())
    try:
        async with asyncio.timeout(session.left()):
            server, scopes = await _server(session, asked)
            _check_pkce(asked, server)
            provider = _provider(
                session, output, asked, server, scopes=scopes, resource=resource, secret=secret
            )
            store = session.logins.store(agent)
            # Who logs in anew wants a new token; and that must meet no older login, whose server
            # it is not for, if this is the last that the command does.
            await session.logins.remove(agent)
            token = await provider(store).token()
    except AuthenticationError as error:
        hint = "try again later" if error.transient else None
        if resource is not None and concerns_resource(error):
            hint = "name the agent as the server does with --resource URI, or use --resource none"
        failure = Failure(
            code="A2ACLI_ERR_AUTH_FAILED",
            message=error.message,
            hint=hint,
            a2a_code=error.http_status,
            exit=4,
        )
        raise CommandError(failure) from None
    except TimeoutError as error:
        if isinstance(error, A2AError):
            raise
        told = "the login was not completed within --timeout"
        failure = Failure(code="A2ACLI_ERR_TIMEOUT", message=told, exit=5)
        raise CommandError(failure) from None
    login = Login(
        agent=agent,
        flow=asked.flow,
        client_id=asked.client_id,
        token_endpoint=server.token_endpoint,
        issuer=server.issuer,
        client_auth=asked.client_auth,
        is_confidential=secret is not None,
        scopes=scopes,
        resource=resource,
    )
    session.logins.save(login)
    _tell(output, login, token, "Logged in")


def _resource(asked: _Asked, address: str) -> str | None:
    """Whom the token for the agent at an address is for; None where that is not said."""
    from holdfast._wire.origins import audience

    if asked.resource is None:
        return audience(address)
    return None if asked.resource.lower() == "none" else asked.resource


def _check_pkce(asked: _Asked, server: AuthorizationServer) -> None:
    """Checks that a code is protected, before a browser is opened and an older login forgotten.

    Raises:
        CommandError: The server does not say so.
    """
    from holdfast._auth.oauth.servers import PKCE_METHOD, PKCE_NOT_ADVERTISED

    is_safe = PKCE_METHOD in server.code_challenge_methods_supported
    if asked.flow != "authorization-code" or is_safe or asked.allows_unadvertised_pkce:
        return
    failure = Failure(
        code="A2ACLI_ERR_AUTH_FAILED",
        message=PKCE_NOT_ADVERTISED,
        hint="use --flow device-code, or --allow-unadvertised-pkce to log in all the same",
        exit=4,
    )
    raise CommandError(failure)


async def _server(session: Session, asked: _Asked) -> tuple[AuthorizationServer, tuple[str, ...]]:
    """The authorization server, and what the token must be for."""
    from holdfast._auth.oauth.servers import check_endpoint, named_in, named_origins
    from holdfast._cli.login_server import discover_server
    from holdfast.auth.oauth import FromCard

    engine = session.plain_engine
    if asked.issuer is not None:
        try:
            check_endpoint(asked.issuer, "issuer")
        except ValueError as error:
            message = f"--issuer: {error}"
            raise click.UsageError(message) from None
        return await discover_server(engine, asked.issuer), tuple(asked.scopes)
    card, flow = await session.get_card(), _GRANTS[asked.flow]
    origins = named_origins(card, flow)
    if not origins:
        raise click.UsageError(_UNNAMED.format(asked.flow))
    if not asked.trusted:
        failure = Failure(
            code="A2ACLI_ERR_CREDENTIALS_MISSING",
            message=_UNTRUSTED.format(" ".join(origins)),
            exit=4,
        )
        raise CommandError(failure)
    try:
        where = FromCard(asked.trusted)
    except ValueError as error:
        message = f"--trust-server: {error}"
        raise click.UsageError(message) from None
    named = named_in(card, flow, where)
    if named is None:
        raise click.UsageError(_UNNAMED.format(asked.flow))
    scopes = tuple(asked.scopes) or named.scopes
    if named.server is not None:
        return named.server, scopes
    url = named.metadata_url or ""
    server = await discover_server(engine, url, at=url)
    where.check_server(server)
    return server, scopes


def _provider(
    session: Session,
    output: Output,
    asked: _Asked,
    server: AuthorizationServer,
    *,
    scopes: tuple[str, ...],
    resource: str | None,
    secret: str | None,
) -> Callable[[TokenStore], OAuthProvider]:
    """What gets the token, once it is known where that is kept."""
    from holdfast.auth.oauth import AuthorizationCode, ClientCredentials, DeviceCode

    def prompt(told: DevicePrompt) -> None:
        output.tell("Open", told.verification_uri_complete or told.verification_uri)
        output.tell("Code", told.user_code)

    def open_url(url: str) -> None:
        output.tell("Open", url)

    def make(store: TokenStore) -> OAuthProvider:
        options: OAuthOptions = {
            "scopes": scopes,
            "resource": resource or False,
            "client_auth": asked.client_auth,
            "store": store,
            "engine": session.plain_engine,
            "env": session.env,
        }
        client_id = asked.client_id
        try:
            if asked.flow == "client-credentials":
                return ClientCredentials(server, client_id, secret, **options)
            if asked.flow == "device-code":
                return DeviceCode(server, client_id, prompt, secret, **options)
            return AuthorizationCode(
                server,
                client_id,
                secret,
                open_url=open_url,
                allow_unadvertised_pkce=asked.allows_unadvertised_pkce,
                **options,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    return make


async def _log_out(session: Session, output: Output) -> None:
    agent = await _agent(session)
    was_there = await session.logins.remove(agent)
    output.call(
        {"agent": agent, "loggedIn": False, "removed": was_there},
        [f"Logged out: {agent}" if was_there else f"Not logged in: {agent}"],
    )


async def _show(session: Session, output: Output) -> None:
    agent = await _agent(session)
    login = session.logins.find(agent)
    if login is None:
        output.call({"agent": agent, "loggedIn": False}, [f"Not logged in: {agent}"])
        return
    _tell(output, login, await session.logins.store(agent).load(""), "Logged in")


async def _show_all(world: CliEnvironment, output: Output) -> None:
    from holdfast._cli.logins import Logins
    from holdfast.errors import AuthenticationError

    logins = Logins(world.home())
    kept, problems = logins.all()
    members: list[dict[str, Any]] = []
    lines: list[str] = []
    for login in kept:
        try:
            token = await logins.store(login.agent).load("")
        except AuthenticationError as error:
            problems.append(error.message)
            continue
        one = _described(login, token, "Logged in")
        members.append(one[0])
        lines += one[1]
    output.call({"logins": members}, lines or ["Not logged in at any agent"])
    for problem in problems:
        output.warn(problem)


async def _agent(session: Session) -> str:
    """The origin that a login is for."""
    from holdfast._wire.origins import canonical_origin

    if not isinstance(session.reference, str):
        await session.get_card()
    return canonical_origin(await session.named_address())


def _tell(output: Output, login: Login, token: Token | None, what: str) -> None:
    output.call(*_described(login, token, what))


def _described(login: Login, token: Token | None, what: str) -> tuple[dict[str, Any], list[str]]:
    """A login as members of a document, and as lines."""
    ends = None if token is None or token.expires_at is None else token.expires_at
    until = None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat("T", "seconds")
    renewed = token is not None and (
        token.refresh_token is not None or login.flow == "client-credentials"
    )
    scopes = list((token and token.scopes) or login.scopes)
    lines = [f"{what}: {login.agent}", f"Flow: {login.flow}", f"Client: {login.client_id}"]
    lines += [f"Authorization server: {login.issuer or login.token_endpoint}"]
    lines += [f"Scopes: {' '.join(scopes)}"] if scopes else []
    lines += [f"Token ends: {until or 'not known'}{'; renewed by itself' if renewed else ''}"]
    members: dict[str, Any] = {
        "agent": login.agent,
        "loggedIn": True,
        "flow": login.flow,
        "clientId": login.client_id,
        "authorizationServer": login.issuer or login.token_endpoint,
        "scopes": scopes,
        "expiresAt": until,
        "renewed": renewed,
    }
    return members, lines
