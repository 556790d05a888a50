"""Authentication of callers of a served agent: one function for all bindings, or middleware.

Rules: a request is authenticated by its headers, before its body is read; the public card needs no
authentication; a caller has one name over every binding, and tasks, lists, streams and push
configurations belong to it: those of others are not found. All callers without a name count as
one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.utils.errors import InternalError

from holdfast._push.asgi import headers_of
from holdfast._server.answers import refuse

if TYPE_CHECKING:
    from starlette.requests import Request

    from holdfast._push.asgi import ASGIReceive, ASGIScope, ASGISend
    from holdfast._server.answers import Application

__all__ = ["Authenticate", "Authentication", "HttpContextBuilder", "NamedUser", "name_of_caller"]

logger = logging.getLogger("holdfast.server")

Authenticate = Callable[[Mapping[str, str]], "str | Awaitable[str | None] | None"]
"""Gives the name of a caller by the headers of a request; None for one that is refused."""

UNPROVEN = "the request needs valid credentials"

_AUTHENTICATE_S = 30.0
"""Seconds that a function has to say who calls."""


async def name_of_caller(authenticate: Authenticate, headers: Mapping[str, str]) -> str | None:
    """The name of a caller; None for one that is refused.

    Args:
        authenticate: What knows.
        headers: Of the request, names in lower case.

    Raises:
        TypeError: It gives something else.
        TimeoutError: It takes too long.
        Exception: What it raises.
    """
    async with asyncio.timeout(_AUTHENTICATE_S):
        named: Any = authenticate(headers)
        if inspect.isawaitable(named):
            named = await named
    if named is not None and not isinstance(named, str):
        raise TypeError(f"authenticate must give a name or None, not {type(named).__name__}")
    return named or None


class NamedUser(User):
    """A caller with a name, in the form of the SDK and of Starlette.

    Attributes:
        display_name: The name.
    """

    def __init__(self, name: str) -> None:
        self.display_name = name

    @property
    def is_authenticated(self) -> bool:
        """Always: who has no name gets no further."""
        return True

    @property
    def user_name(self) -> str:
        """The name, by which the SDK's stores tell callers apart."""
        return self.display_name

    @property
    def identity(self) -> str:
        """The name, as Starlette's users have it."""
        return self.display_name


class Authentication:
    """An ASGI application around another, which gets only requests of callers with a name.

    Args:
        app: The application; it finds the caller as ``scope["user"]``.
        authenticate: What gives the name.
        public: Paths that are for everybody.
    """

    def __init__(
        self, app: Application, authenticate: Authenticate, *, public: frozenset[str]
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._public = public

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serves one request."""
        if scope["type"] != "http" or self._is_public(scope):
            await self._app(scope, receive, send)
            return
        name = await name_of_caller(self._authenticate, headers_of(scope))
        if name is None:
            await refuse(send, 401, UNPROVEN, {"www-authenticate": "Bearer"})
            return
        await self._app({**scope, "user": NamedUser(name)}, receive, send)

    def _is_public(self, scope: ASGIScope) -> bool:
        if scope["method"] == "OPTIONS":  # a browser asks by it, without credentials
            return True
        path = str(scope["path"]).removeprefix(scope.get("root_path") or "")
        return scope["method"] in {"GET", "HEAD"} and path in self._public


class HttpContextBuilder(DefaultServerCallContextBuilder):
    """Tells the SDK who calls, by the ``scope["user"]`` of a request.

    Its ``identity`` counts, and where it has none its ``display_name``, which two users may share.
    """

    def build_user(self, request: Request) -> User:
        """The caller.

        Raises:
            InternalError: The SDK's: it is authenticated, and has no name.
        """
        user = request.scope.get("user")
        if user is None or not user.is_authenticated:
            return UnauthenticatedUser()
        try:
            name = getattr(user, "identity", None)
        except NotImplementedError:  # as Starlette's base class has it
            name = None
        name = name or user.display_name
        if not name:
            logger.error(
                "an authenticated user has no identity and no display_name: it is refused"
            )
            raise InternalError("internal error")
        return NamedUser(str(name))
