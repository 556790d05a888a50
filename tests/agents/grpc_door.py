"""The gRPC server of an agent on the official SDK: it records calls, and asks for the token.

It needs grpcio, and not the SDK, whose versions do not fit into one environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc import aio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from serving import Record

__all__ = ["GrpcDoor"]

HOST: Final = "127.0.0.1"
GRACE_SECONDS: Final = 1
REPORTED_METADATA: Final = ("a2a-version", "a2a-extensions", "user-agent")


class GrpcDoor(aio.ServerInterceptor):
    """A server on a port of its own; a `token` of None lets everybody in."""

    def __init__(
        self, record: Record, token: str | None, *, port: int = 0, grace: float = GRACE_SECONDS
    ) -> None:
        """Take a port, of which the card can tell before anything is served there; 0 for any."""
        self._grace = grace
        self._record = record
        self._token = token
        self.server = aio.server(interceptors=(self,))
        self.address = f"{HOST}:{self.server.add_insecure_port(f'{HOST}:{port}')}"

    async def stop(self) -> None:
        """Tell clients to go, and give their calls some time."""
        await self.server.stop(self._grace)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Record the call, and pass it on or refuse it."""
        metadata = dict(handler_call_details.invocation_metadata)
        reported: dict[str, Any] = {name: metadata.get(name) for name in REPORTED_METADATA}
        authorization = metadata.get("authorization")
        self._record.requests.append(
            {
                "method": "GRPC",
                "path": handler_call_details.method,
                **reported,
                "authorization": authorization is not None,
            }
        )
        handler = await continuation(handler_call_details)
        if self._token is None or authorization == f"Bearer {self._token}" or handler is None:
            return handler
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_refuse_stream)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
    return b""


async def _refuse_stream(
    _request: bytes, context: aio.ServicerContext[bytes, bytes]
) -> AsyncIterator[bytes]:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
    yield b""
