"""gRPC, by the official SDK's handlers on grpc.aio."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.types import a2a_pb2_grpc

from holdfast._server.grpc_gate import GrpcContextBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from a2a.server.request_handlers import RequestHandler

    from holdfast._server.grpc_gate import GrpcGate

__all__ = ["GrpcServer"]


class GrpcServer:
    """A port on which an agent speaks gRPC.

    Args:
        address: ``host:port``; port 0 for any that is free.
        cert_file: For TLS, with the chain; None for none.
        key_file: That goes with it.
        gate: Who gets through.
        interceptors: Of grpc.aio, behind the gate.
        max_body: Bytes that a message of a client's may have.

    Attributes:
        port: The real one.

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

    async def start(self, handler: RequestHandler, *, with_older: bool) -> None:
        """Begins to serve.

        Args:
            handler: What answers.
            with_older: Whether protocol 0.3 is spoken as well.
        """
        builder = GrpcContextBuilder()
        _add_to(a2a_pb2_grpc)(GrpcHandler(handler, builder), self._server)
        if with_older:
            from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
            from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler

            _add_to(a2a_v0_3_pb2_grpc)(CompatGrpcHandler(handler, builder), self._server)
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Takes no more calls, and ends with those under way, at the latest after the grace."""
        await self._server.stop(grace)


def _add_to(generated: Any) -> Any:
    """What adds a service to a server; generated code has no types."""
    return generated.add_A2AServiceServicer_to_server
