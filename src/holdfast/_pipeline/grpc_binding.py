"""The bottom of the stack for gRPC: a call becomes a message, its reply a value or an error."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.request import getproxies

from grpc import aio

from holdfast._aio.per_loop import PerLoop
from holdfast._model.grpc_addresses import without_grpc
from holdfast._model.operations import GET_EXTENDED_AGENT_CARD, GET_TASK, SUBSCRIBE_TO_TASK
from holdfast._net.grpc.channel_factory import ChannelMaker
from holdfast._net.grpc.channels import Channels
from holdfast._net.grpc.rpc import Rpc, RpcEvents, call_unary
from holdfast._net.proxies import Proxies
from holdfast._pipeline.connection import Connection
from holdfast._pipeline.extensions import requested_extensions
from holdfast._pipeline.http_binding import name_task
from holdfast._pipeline.pending_stream import subscribed
from holdfast._pipeline.transport import AnyCall, Call, Reply, Stream, addressed, endpoint_of
from holdfast._wire.grpc import CODECS
from holdfast._wire.grpc_metadata import request_metadata
from holdfast._wire.http import HttpRequest
from holdfast._wire.limits import as_card_error
from holdfast._wire.origins import origin
from holdfast._wire.protobuf.messages import check_library
from holdfast.errors import A2AError, UnsupportedOperationError

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._net.grpc.channel_factory import ChannelFactory
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._policy.resilience import Resilience
    from holdfast._wire.limits import Limits

__all__ = ["GrpcBinding"]

P = TypeVar("P")
R = TypeVar("R")


class GrpcBinding:
    """Carries calls over gRPC.

    Args:
        env: The clock.
        resilience: Its timeouts apply, and its rules for refusals.
        limits: How large a reply to accept.
        tls: Trusted authorities and client certificate; None for the system's authorities.
        factory: Makes the channels instead; they are never closed here.

    Raises:
        ImportError: The extra is not installed.
    """

    def __init__(
        self,
        env: Env,
        resilience: Resilience,
        limits: Limits,
        *,
        tls: TlsConfig | None = None,
        factory: ChannelFactory | None = None,
    ) -> None:
        check_library()
        self._env = env
        self._resilience = resilience
        self._limits = limits
        proxies = Proxies(getproxies())
        maker = ChannelMaker(limits, tls=tls, proxies=proxies, factory=factory)
        self._channels = PerLoop(lambda: Channels(maker))

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Make one attempt."""
        endpoint = endpoint_of(call)
        try:
            body, headers = await call_unary(self._rpc(call, endpoint), self._channels.here())
            value: R = CODECS[endpoint.version].decode(call.operation, body, limits=self._limits)
        except A2AError as error:
            reported = error
            if call.operation is GET_EXTENDED_AGENT_CARD:
                reported = as_card_error(error, self._limits)
            if endpoint.has_two_file_forms and call.operation is GET_TASK:
                ended = error.__cause__
                if isinstance(ended, aio.AioRpcError) and error.grpc_status == "NOT_FOUND":
                    endpoint.learn_file_form(ended.details())
            reported.agent = endpoint.agent
            name_task(reported, call)
            if reported is error:
                raise
            raise reported from None
        return Reply(value=value, headers=headers, raw=body, endpoint=endpoint)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Make one attempt, and wait for the first event."""
        endpoint = endpoint_of(call)
        codec = CODECS[endpoint.version]
        decode = partial(codec.decode, call.operation, limits=self._limits)
        try:
            rpc = self._rpc(call, endpoint)
            reader = RpcEvents[R](rpc, self._channels.here(), agent=endpoint.agent, decode=decode)
            if call.operation.name == SUBSCRIBE_TO_TASK.name and not codec.has_snapshots:
                headers = await subscribed(reader, call, self)
            else:
                headers = await reader.open()
        except A2AError as error:
            error.agent = endpoint.agent
            name_task(error, call)
            raise
        connection = Connection(reader, is_last=codec.is_last)
        return Reply(value=connection, headers=headers, endpoint=endpoint)

    async def close(self) -> None:
        """Close the channels of the running loop, and of loops that no longer exist."""
        for channels in self._channels.here_and_closed():
            await channels.close()

    def _rpc(self, call: AnyCall, endpoint: Endpoint) -> Rpc:
        url = endpoint.interface.url
        call.progress.secrets.note(call.headers, call.query, without_grpc(url))
        if call.query:
            names = ", ".join(sorted(call.query))
            raise _unsupported(call, f"gRPC cannot carry query parameters: {names}")
        extensions = requested_extensions(call) if call.extensions else ()
        try:
            encoded = CODECS[endpoint.version].encode(call.operation, addressed(call).params)
            metadata = request_metadata(endpoint.version, call.headers, extensions)
        except ValueError as error:
            raise _unsupported(call, f"gRPC cannot carry it: {error}") from None
        request = HttpRequest(
            method="POST",
            url=f"{origin(url)}{encoded.method}",
            body=encoded.body,
            timeouts=call.timeouts or self._resilience.timeouts,
            limits=self._limits,
            reach=call.reach,
            progress=call.progress.request,
        )
        return Rpc(
            request=request,
            url=url,
            method=encoded.method,
            metadata=metadata,
            operation=call.operation,
            version=endpoint.version,
            limits=self._limits,
            refusals=self._resilience.refusals,
            wall=self._env.wall,
        )


def _unsupported(call: AnyCall, reason: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"{call.operation.name} was not called: {reason}", executed=False
    )
