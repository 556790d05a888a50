"""Errors of logins whose authorization server cannot be used; they name that server."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from holdfast._auth.oauth.servers import discover
from holdfast._cli.error_messages import bare
from holdfast._cli.errors import AUTH, UNREACHABLE, CommandError, Failure
from holdfast._cli.values import masked_reference
from holdfast.errors import A2AError, AuthenticationError, NetworkPolicyError

if TYPE_CHECKING:
    from holdfast._auth.oauth.servers import AuthorizationServer
    from holdfast._net.engine import HttpEngine

__all__ = ["discover_server"]

_WRONG = "check {}: it must name an authorization server"
_ANY = "check {}, and that an authorization server answers there"

_BY_FAILURE = {
    "dns": "check the host's name in {}",
    "refused": "check {}, and that the server is running at this address",
    "tls": "check {} and the server's certificate",
    "proxy": "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
}


async def discover_server(
    engine: HttpEngine, issuer: str, *, at: str | None = None
) -> AuthorizationServer:
    """Read the metadata of an authorization server.

    Args:
        engine: Sends the requests.
        issuer: The issuer that ``--issuer`` names, or the address of the metadata.
        at: The address of the metadata where the agent's card names it.

    Raises:
        CommandError: The server cannot be used.
        NetworkPolicyError: The address is in a network that must not be reached.
    """
    source = "--issuer" if at is None else "the address that the agent's card names"
    try:
        return (await discover(engine, issuer, at=at)).server
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
        message=f"the authorization server {masked_reference(address)}: {bare(described)}",
        hint=hint.format(source),
        exit=UNREACHABLE,
    )
