"""Logging in at agents: ``holdfast auth login | logout | status`` (a2a-cli 12.2, 12.3).

Rules: a secret comes from the environment or from a file, never as an argument; nothing secret
goes to an authorization server that a card alone names, unless the caller trusts its origin; what
a person has to do is shown on standard error, and nothing is asked.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast._auth.oauth.servers import discover
from holdfast._cli.errors import AUTH, TIMEOUT, UNREACHABLE, CommandError, Failure, one_line
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.parameters import MissingExtraError
from holdfast._cli.options.settings import CLIENT_SECRET
from holdfast._cli.options.values import read_secret
from holdfast._cli.output.base import Notice, Record
from holdfast.errors import A2AError, AuthenticationError, NetworkPolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._cli.agent.login_request import LoginRequest
    from holdfast._cli.agent.login_store import Login
    from holdfast._cli.agent.session import Session
    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.output.base import Output
    from holdfast._net.engine import HttpEngine
    from holdfast.auth.oauth import (
        AuthorizationServer,
        DevicePrompt,
        OAuthOptions,
        OAuthProvider,
        Token,
        TokenStore,
    )

__all__ = ["log_in", "log_out", "show_all_logins", "show_login"]

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


async def log_in(session: Session, output: Output, request: LoginRequest) -> None:
    from holdfast._auth.oauth.requests import concerns_resource, oauth_library
    from holdfast._cli.agent.login_store import Login
    from holdfast.errors import AuthenticationError

    source = session.settings.agent_source
    if not source.is_trusted:
        message = (
            f"{source.location} names the agent, but the file may not be yours; name the agent to "
            "log in at with --agent-card"
        )
        raise click.UsageError(message)
    try:
        oauth_library()
    except ImportError as error:
        raise MissingExtraError("auth login", "oauth") from error
    stated = session.settings.client_secret
    try:
        secret = request.secret or (read_secret(stated) if stated else None)
    except ValueError as error:
        raise click.UsageError(f"{CLIENT_SECRET}: {error}") from None
    if (
        request.flow == "client-credentials"
        and secret is None
        and not session.settings.client_cert
    ):
        message = (
            "client-credentials needs the client's secret: set the environment variable "
            f"{CLIENT_SECRET}, or name a file with --client-secret-file (- for standard input)"
        )
        raise click.UsageError(message)
    agent = await _agent(session)
    resource = _resource(request, await session.named_address())

    async def get_token() -> tuple[AuthorizationServer, tuple[str, ...], Token]:
        server, scopes = await _server(session, request)
        _check_pkce(request, server)
        provider = _provider(
            session, output, request, server, scopes=scopes, resource=resource, secret=secret
        )
        store = session.connection.logins.store(agent)
        # A new login gets a new token; and the token must not meet an older login, of another
        # server, if this is the last step of the command.
        await session.connection.logins.remove(agent)
        return server, scopes, await provider(store).token()

    late = "the login was not completed within --timeout"
    timeout = Failure(code="A2ACLI_ERR_TIMEOUT", message=late, exit=TIMEOUT)
    try:
        server, scopes, token = await session.within_time(get_token(), timeout)
    except AuthenticationError as error:
        hint = "try again later" if error.transient else None
        if resource is not None and concerns_resource(error):
            hint = "name the agent as the server does with --resource URI, or use --resource none"
        failure = Failure(
            code="A2ACLI_ERR_AUTH_FAILED",
            message=error.message.partition(": check the issuer, or pass")[0],  # see the hint
            hint=hint,
            a2a_code=error.http_status,
            exit=AUTH,
        )
        raise CommandError(failure) from None
    login = Login(
        agent=agent,
        flow=request.flow,
        client_id=request.client_id,
        token_endpoint=server.token_endpoint,
        issuer=server.issuer,
        client_auth=request.client_auth,
        is_confidential=secret is not None,
        scopes=scopes,
        resource=resource,
    )
    session.connection.logins.save(login)
    _show_login(output, login, token, "Logged in")


def _resource(request: LoginRequest, address: str) -> str | None:
    """Return the resource of a token for the agent at an address; None if it is not sent."""
    from holdfast._wire.origins import audience

    if request.resource is None:
        return audience(address)
    return None if request.resource.lower() == "none" else request.resource


def _check_pkce(request: LoginRequest, server: AuthorizationServer) -> None:
    """Check that the code is protected, before a browser is opened and an older login removed.

    Raises:
        CommandError: The server does not declare it.
    """
    from holdfast._auth.oauth.servers import PKCE_METHOD, PKCE_NOT_ADVERTISED

    is_safe = PKCE_METHOD in server.code_challenge_methods_supported
    if request.flow != "authorization-code" or is_safe or request.allows_unadvertised_pkce:
        return
    failure = Failure(
        code="A2ACLI_ERR_AUTH_FAILED",
        message=PKCE_NOT_ADVERTISED,
        hint="use --flow device-code, or --allow-unadvertised-pkce to log in all the same",
        exit=4,
    )
    raise CommandError(failure)


async def _server(
    session: Session, request: LoginRequest
) -> tuple[AuthorizationServer, tuple[str, ...]]:
    """Return the authorization server, and the scopes of the token."""
    from holdfast._auth.oauth.servers import card_server, card_server_origins, check_endpoint
    from holdfast.auth.oauth import FromCard

    engine = session.connection.plain_engine
    if request.issuer is not None:
        try:
            check_endpoint(request.issuer, "issuer")
        except ValueError as error:
            message = f"--issuer: {error}"
            raise click.UsageError(message) from None
        return await _discover_server(engine, request.issuer), tuple(request.scopes)
    card, flow = await session.get_card(), _GRANTS[request.flow]
    origins = card_server_origins(card, flow)
    if not origins:
        raise click.UsageError(_UNNAMED.format(request.flow))
    if not request.trusted:
        failure = Failure(
            code="A2ACLI_ERR_CREDENTIALS_MISSING",
            message=_UNTRUSTED.format(" ".join(origins)),
            exit=4,
        )
        raise CommandError(failure)
    try:
        trusted = FromCard(request.trusted)
    except ValueError as error:
        message = f"--trust-server: {error}"
        raise click.UsageError(message) from None
    declared = card_server(card, flow, trusted)
    if declared is None:
        raise click.UsageError(_UNNAMED.format(request.flow))
    scopes = tuple(request.scopes) or declared.scopes
    if declared.server is not None:
        return declared.server, scopes
    url = declared.metadata_url or ""
    server = await _discover_server(engine, url, metadata_url=url)
    trusted.check_server(server)
    return server, scopes


def _provider(
    session: Session,
    output: Output,
    request: LoginRequest,
    server: AuthorizationServer,
    *,
    scopes: tuple[str, ...],
    resource: str | None,
    secret: str | None,
) -> Callable[[TokenStore], OAuthProvider]:
    """Return the provider of the token, once the place of the token is known."""
    from holdfast.auth.oauth import AuthorizationCode, ClientCredentials, DeviceCode

    def prompt(device: DevicePrompt) -> None:
        output.emit(Notice("Open", device.verification_uri_complete or device.verification_uri))
        output.emit(Notice("Code", device.user_code))

    def open_url(url: str) -> None:
        output.emit(Notice("Open", url))

    def make(store: TokenStore) -> OAuthProvider:
        options: OAuthOptions = {
            "scopes": scopes,
            "resource": resource or False,
            "client_auth": request.client_auth,
            "store": store,
            "engine": session.connection.plain_engine,
            "env": session.env,
        }
        client_id = request.client_id
        try:
            if request.flow == "client-credentials":
                return ClientCredentials(server, client_id, secret, **options)
            if request.flow == "device-code":
                return DeviceCode(server, client_id, prompt, secret, **options)
            return AuthorizationCode(
                server,
                client_id,
                secret,
                open_url=open_url,
                allow_unadvertised_pkce=request.allows_unadvertised_pkce,
                **options,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    return make


async def log_out(session: Session, output: Output) -> None:
    agent = await _agent(session)
    was_there = await session.connection.logins.remove(agent)
    output.emit(
        Record(
            {"agent": agent, "loggedIn": False, "removed": was_there},
            [f"Logged out: {agent}" if was_there else f"Not logged in: {agent}"],
        )
    )


async def show_login(session: Session, output: Output) -> None:
    agent = await _agent(session)
    login = session.connection.logins.find(agent)
    if login is None:
        output.emit(Record({"agent": agent, "loggedIn": False}, [f"Not logged in: {agent}"]))
        return
    _show_login(output, login, await session.connection.logins.store(agent).load(""), "Logged in")


async def show_all_logins(environment: CliEnvironment, output: Output) -> None:
    from holdfast._cli.agent.login_store import Logins
    from holdfast.errors import AuthenticationError

    logins = Logins(environment.home())
    saved, problems = logins.all()
    members: list[dict[str, Any]] = []
    lines: list[str] = []
    for login in saved:
        try:
            token = await logins.store(login.agent).load("")
        except AuthenticationError as error:
            problems.append(error.message)
            continue
        described = _described(login, token, "Logged in")
        members.append(described[0])
        lines += described[1]
    output.emit(Record({"logins": members}, lines or ["Not logged in at any agent"]))
    for problem in problems:
        output.emit(Notice.warning(problem))


async def _agent(session: Session) -> str:
    """Return the origin that a login is for."""
    from holdfast._wire.origins import canonical_origin

    if not isinstance(session.reference, str):
        await session.get_card()
    return canonical_origin(await session.named_address())


def _show_login(output: Output, login: Login, token: Token | None, label: str) -> None:
    output.emit(Record(*_described(login, token, label)))


def _described(login: Login, token: Token | None, label: str) -> tuple[dict[str, Any], list[str]]:
    """Return a login as members of a document, and as lines."""
    ends = None if token is None or token.expires_at is None else token.expires_at
    until = None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat("T", "seconds")
    renewed = token is not None and (
        token.refresh_token is not None or login.flow == "client-credentials"
    )
    scopes = list((token and token.scopes) or login.scopes)
    lines = [f"{label}: {login.agent}", f"Flow: {login.flow}", f"Client: {login.client_id}"]
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


_WRONG = "check {}: it must name an authorization server"
_ANY = "check {}, and that an authorization server answers there"

_BY_FAILURE = {
    "dns": "check the host name in {}",
    "refused": "check {}, and that the server is running at this address",
    "tls": "check {} and the server's certificate",
    "proxy": "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
}


async def _discover_server(
    engine: HttpEngine, issuer: str, *, metadata_url: str | None = None
) -> AuthorizationServer:
    """Read the metadata of an authorization server.

    Args:
        engine: Sends the requests.
        issuer: The issuer that ``--issuer`` names, or the address of the metadata.
        metadata_url: The address of the metadata, if the agent's card names it.

    Raises:
        CommandError: The server cannot be used.
        NetworkPolicyError: The address is in a network that must not be reached.
    """
    source = "--issuer" if metadata_url is None else "the address that the agent's card names"
    try:
        return (await discover(engine, issuer, metadata_url=metadata_url)).server
    except NetworkPolicyError:
        raise
    except AuthenticationError as error:
        hint = "try again later" if error.transient else _WRONG.format(source)
        raise CommandError(
            Failure(
                code="A2ACLI_ERR_AUTH_FAILED",
                message=error.message,
                hint=hint,
                a2a_code=error.http_status,
                exit=AUTH,
            )
        ) from None
    except A2AError as error:
        raise CommandError(_unreachable(error, issuer, source)) from None


def _unreachable(error: A2AError, address: str, source: str) -> Failure:
    described = copy.copy(error)
    described.agent = None
    hint = _BY_FAILURE.get(getattr(error, "failure", ""), _ANY)
    return Failure(
        code="A2ACLI_ERR_UNREACHABLE",
        message=f"the authorization server {masked_reference(address)}: {one_line(described)}",
        hint=hint.format(source),
        exit=UNREACHABLE,
    )
