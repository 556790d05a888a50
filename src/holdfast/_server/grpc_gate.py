"""Admission of gRPC calls to a served agent: by metadata, before a message is read."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import grpc
from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.request_handlers.grpc_handler import DefaultGrpcServerCallContextBuilder

from holdfast._model.error_writing import own_words
from holdfast._server.identity import UNPROVEN, NamedUser, name_of_caller
from holdfast.errors import A2AError, AuthenticationError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast._server.host_check import HostRules
    from holdfast._server.identity import Authenticate

__all__ = ["GrpcContextBuilder", "GrpcGate"]

logger = logging.getLogger("holdfast.server")

_caller: ContextVar[str | None] = ContextVar("holdfast_grpc_caller", default=None)
"""The name of the caller, from the interceptor to the handler of the same call."""


class GrpcGate(grpc.aio.ServerInterceptor):
    """Refuses calls of web pages, and of callers that are not authenticated.

    Args:
        rules: Which origins may be named; ``:authority`` is not shown to Python.
        authenticate: What gives the name of a caller; None for callers without one.
    """

    def __init__(self, rules: HostRules, authenticate: Authenticate | None) -> None:
        self._rules = rules
        self._authenticate = authenticate

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """The handler of a call, or one that refuses it."""
        headers: dict[str, str] = {}
        for name, value in handler_call_details.invocation_metadata or ():
            if isinstance(value, str):
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        origin = headers.get("origin")
        if origin is not None and not self._rules.accepts_origin(origin):
            return _refusal(grpc.StatusCode.PERMISSION_DENIED, "the origin is not accepted")
        if self._authenticate is not None:
            try:
                name = await name_of_caller(self._authenticate, headers)
            except Exception as failure:  # noqa: BLE001  none of it is told
                return _failed(failure)
            if name is None:
                return _refusal(grpc.StatusCode.UNAUTHENTICATED, UNPROVEN)
            _caller.set(name)
        return await continuation(handler_call_details)


class GrpcContextBuilder(DefaultGrpcServerCallContextBuilder):
    """Tells the SDK who calls."""

    def build_user(self, context: grpc.aio.ServicerContext[Any, Any]) -> User:  # noqa: ARG002  the base has it
        """The caller."""
        name = _caller.get()
        return UnauthenticatedUser() if name is None else NamedUser(name)


def _failed(failure: Exception) -> Any:
    logger.error(
        "a caller could not be authenticated: %s: %s",
        type(failure).__name__,
        failure,
        exc_info=failure,
    )
    match failure:
        case AuthenticationError():
            code = grpc.StatusCode.UNAUTHENTICATED
        case PermissionDeniedError():
            code = grpc.StatusCode.PERMISSION_DENIED
        case _:
            code = grpc.StatusCode.INTERNAL
    return _refusal(
        code, own_words(failure) if isinstance(failure, A2AError) else "internal error"
    )


def _refusal(code: grpc.StatusCode, reason: str) -> Any:
    async def refuse(_: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(code, reason)

    # It reads no message by itself, as others do before they are called.
    made: Any = cast("Any", grpc).stream_stream_rpc_method_handler(refuse)
    return made
