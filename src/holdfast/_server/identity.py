"""Authentication of callers of a served agent: one function for all bindings, or middleware.

Rules: a request is authenticated by its headers, before its body is read; the public card needs no
authentication; a caller has one name over every binding, and its tasks, lists, streams and push
configurations belong to that name: those of other callers are not found. All callers without a
name count as one caller.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.utils.errors import InternalError

from holdfast._asgi import header_map
from holdfast._server.answers import refuse
from holdfast._server.tracing import keep_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from a2a.server.context import ServerCallContext
    from starlette.requests import Request

    from holdfast._asgi import ASGIApplication, ASGIReceive, ASGIScope, ASGISend
    from holdfast._server.settings import Authenticate

__all__ = ["Authentication", "HttpContextBuilder", "NamedUser", "name_of_caller"]

logger = logging.getLogger("holdfast.server")

UNPROVEN = "the request needs valid credentials"

_AUTHENTICATE_TIMEOUT_S = 30.0


async def name_of_caller(authenticate: Authenticate, headers: Mapping[str, str]) -> str | None:
    """Return the name of a caller; None if it is refused.

    Args:
        authenticate: The function that authenticates callers; it has 30 s.
        headers: The headers of the request; names in lower case.

    Raises:
        TypeError: The function returns something else.
        TimeoutError: The function takes too long.
        Exception: The function raises it.
    """
    async with asyncio.timeout(_AUTHENTICATE_TIMEOUT_S):
        name: Any = authenticate(headers)
        if inspect.isawaitable(name):
            name = await name
    if name is not None and not isinstance(name, str):
        raise TypeError(f"authenticate must return a name or None, not {type(name).__name__}")
    return name or None


class NamedUser(User):
    """A caller with a name, as a user of the SDK and of Starlette.

    Attributes:
        display_name: The name.
    """

    def __init__(self, name: str) -> None:
        self.display_name = name

    @property
    def is_authenticated(self) -> bool:
        """Always True: a caller without a name is refused."""
        return True

    @property
    def user_name(self) -> str:
        """The name, by which the SDK's stores separate callers."""
        return self.display_name

    @property
    def identity(self) -> str:
        """The name, as for Starlette's users."""
        return self.display_name


class Authentication:
    """ASGI middleware whose application gets only requests of authenticated callers.

    Args:
        app: The application; the caller is ``scope["user"]``.
        authenticate: Returns the name of a caller.
        public: Paths that need no authentication.
    """

    def __init__(
        self, app: ASGIApplication, authenticate: Authenticate, *, public: frozenset[str]
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._public = public

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serve one request."""
        if scope["type"] != "http" or self._is_public(scope):
            await self._app(scope, receive, send)
            return
        name = await name_of_caller(self._authenticate, header_map(scope.get("headers") or ()))
        if name is None:
            await refuse(send, 401, UNPROVEN, {"www-authenticate": "Bearer"})
            return
        await self._app({**scope, "user": NamedUser(name)}, receive, send)

    def _is_public(self, scope: ASGIScope) -> bool:
        if scope["method"] == "OPTIONS":  # a browser's preflight has no credentials
            return True
        path = str(scope["path"]).removeprefix(scope.get("root_path") or "")
        return scope["method"] in {"GET", "HEAD"} and path in self._public


class HttpContextBuilder(DefaultServerCallContextBuilder):
    """Passes the ``scope["user"]`` of a request on to the SDK.

    The caller's name is the user's ``identity``; without one it is the ``display_name``, which two
    users may share.

    Args:
        traced: Whether requests have spans, which need their headers.
    """

    def __init__(self, *, traced: bool = False) -> None:
        self._traced = traced

    def build(self, request: Request) -> ServerCallContext:
        """Return the call context of a request."""
        context = super().build(request)
        if self._traced:
            keep_headers(context, request)
        return context

    def build_user(self, request: Request) -> User:
        """Return the caller.

        Raises:
            InternalError: Of the SDK: the caller is authenticated, but has no name.
        """
        user = request.scope.get("user")
        if user is None or not user.is_authenticated:
            return UnauthenticatedUser()
        try:
            name = getattr(user, "identity", None)
        except NotImplementedError:  # Starlette's base class raises it
            name = None
        name = name or user.display_name
        if not name:
            logger.error(
                "an authenticated user has neither identity nor display_name; the request is "
                "refused"
            )
            raise InternalError("internal error")
        return NamedUser(str(name))
