"""gRPC for a served agent: admission of calls by their metadata, and the official SDK's handlers.

A call is admitted or refused before its message is read.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.request_handlers.grpc_handler import (
    DefaultGrpcServerCallContextBuilder,
    GrpcHandler,
)
from a2a.types import a2a_pb2_grpc

from holdfast._asgi import metadata_map
from holdfast._server.identity import UNPROVEN, NamedUser, name_of_caller
from holdfast.errors import A2AError, AuthenticationError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from a2a.server.request_handlers import RequestHandler

    from holdfast._server.host_check import HostRules
    from holdfast._server.settings import Authenticate

__all__ = ["GrpcGate", "GrpcServer"]

logger = logging.getLogger("holdfast.server")

_caller: ContextVar[str | None] = ContextVar("holdfast_grpc_caller", default=None)
"""The caller's name, from the interceptor to the handler of the same call."""


class GrpcServer:
    """A port on which an agent speaks gRPC.

    Args:
        address: ``host:port``; port 0 for a free one.
        cert_file: The TLS certificate with its chain, in PEM; None for no TLS.
        key_file: The private key of the certificate.
        gate: Admits calls.
        interceptors: Interceptors of grpc.aio, called after the gate.
        max_body: Bytes that a client's message may have.

    Attributes:
        port: The port that it listens on.

    Raises:
        OSError: The port is taken.
    """

    def __init__(
        self,
        address: str,
        *,
        cert_file: str | None,
        key_file: str | None,
        gate: GrpcGate,
        interceptors: Sequence[Any],
        max_body: int,
    ) -> None:
        self._server = grpc.aio.server(
            interceptors=(gate, *interceptors),
            options=[("grpc.max_receive_message_length", max_body), ("grpc.so_reuseport", 0)],
        )
        try:
            if cert_file is None or key_file is None:
                self.port = self._server.add_insecure_port(address)
            else:
                pair = Path(key_file).read_bytes(), Path(cert_file).read_bytes()
                credentials = grpc.ssl_server_credentials([pair])
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from None

    async def start(self, handler: RequestHandler, *, with_v03: bool) -> None:
        """Start serving.

        Args:
            handler: Answers the calls.
            with_v03: Whether to speak protocol 0.3 as well.
        """
        builder = _ContextBuilder()
        _servicer_adder(a2a_pb2_grpc)(GrpcHandler(handler, builder), self._server)
        if with_v03:
            from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
            from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler

            _servicer_adder(a2a_v0_3_pb2_grpc)(CompatGrpcHandler(handler, builder), self._server)
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Refuse new calls, and cancel those that are in flight after the grace, in seconds."""
        await self._server.stop(grace)


def _servicer_adder(generated: Any) -> Any:
    """Return the function of a generated module that registers a servicer; it has no types."""
    return generated.add_A2AServiceServicer_to_server


class GrpcGate(grpc.aio.ServerInterceptor):
    """Refuses calls of web pages from other origins, and of callers that are not authenticated.

    Args:
        rules: The accepted origins; grpc does not show ``:authority`` to Python.
        authenticate: Returns the name of a caller; None for no authentication.
    """

    def __init__(self, rules: HostRules, authenticate: Authenticate | None) -> None:
        self._rules = rules
        self._authenticate = authenticate

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """Return the handler of a call, or one that refuses it."""
        headers = metadata_map(handler_call_details.invocation_metadata)
        origin = headers.get("origin")
        if origin is not None and not self._rules.accepts_origin(origin):
            return _refusal(grpc.StatusCode.PERMISSION_DENIED, "the origin is not accepted")
        if self._authenticate is not None:
            try:
                name = await name_of_caller(self._authenticate, headers)
            except Exception as failure:  # noqa: BLE001  it is logged; the client gets no detail
                return _failed(failure)
            if name is None:
                return _refusal(grpc.StatusCode.UNAUTHENTICATED, UNPROVEN)
            _caller.set(name)
        return await continuation(handler_call_details)


class _ContextBuilder(DefaultGrpcServerCallContextBuilder):
    """Passes the caller's name on to the SDK."""

    def build_user(self, context: grpc.aio.ServicerContext[Any, Any]) -> User:  # noqa: ARG002  the base has it
        """Return the caller."""
        name = _caller.get()
        return UnauthenticatedUser() if name is None else NamedUser(name)


def _failed(failure: Exception) -> Any:
    """Return a handler that answers for a failed authentication."""
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
    text = failure.to_rest()["message"] if isinstance(failure, A2AError) else "internal error"
    return _refusal(code, text)


def _refusal(code: grpc.StatusCode, reason: str) -> Any:
    async def refuse(_: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(code, reason)

    # Only a handler of this kind is called before the message is read.
    handler: Any = cast("Any", grpc).stream_stream_rpc_method_handler(refuse)
    return handler
