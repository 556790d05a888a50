"""A gRPC server that says what a test wants, byte by byte, and a wire to it that can be cut."""

import asyncio
import contextlib
import socket
import struct
from urllib.parse import urlsplit

import grpc
from a2a.types import a2a_pb2 as pb
from grpc import aio

from holdfast import AgentCard
from holdfast._testing.listening import Listener
from holdfast.types import AgentCapabilities, AgentInterface

__all__ = [
    "ARTIFACT",
    "BEGINNING",
    "OK",
    "SERVICE",
    "TASK",
    "Wire",
    "card_of",
    "event",
    "frame",
    "frames_agent",
    "grpc_agent",
    "message_frame",
    "task",
]

SERVICE = "/lf.a2a.v1.A2AService/"


def task(task_id="t1", state="TASK_STATE_COMPLETED", **members):
    return pb.Task(
        id=task_id,
        context_id="c1",
        status=pb.TaskStatus(state=pb.TaskState.Value(state)),
        **members,
    )


def event(text, *, append=True):
    update = pb.TaskArtifactUpdateEvent(
        task_id="t1",
        context_id="c1",
        artifact=pb.Artifact(artifact_id="a", parts=[pb.Part(text=text)]),
        append=append,
    )
    return pb.StreamResponse(artifact_update=update).SerializeToString()


TASK = task().SerializeToString()
ARTIFACT = event("more")


def card_of(url, **members):
    """A card with this one interface."""
    interface = AgentInterface(url=url, protocol_binding="GRPC", protocol_version="1.0")
    capabilities = AgentCapabilities(streaming=True, extended_agent_card=True)
    members = {"name": "agent", "capabilities": capabilities, **members}
    return AgentCard(supported_interfaces=(interface,), **members)


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, methods, calls):
        self._methods, self._calls = methods, calls

    def service(self, details):
        name = details.method.rpartition("/")[2]
        self._calls.append((details.method, dict(details.invocation_metadata)))
        method = self._methods.get(name)
        if method is None:
            return None
        if "Stream" in name or "Subscribe" in name:
            return grpc.unary_stream_rpc_method_handler(method)
        return grpc.unary_unary_rpc_method_handler(method)


@contextlib.asynccontextmanager
async def grpc_agent(port=0, credentials=None, options=(), **methods):
    """Serves methods, by their names; gives the port, the calls that have come, and the server."""
    server = aio.server(options=options)
    calls = []
    server.add_generic_rpc_handlers((_Methods(methods, calls),))
    address = f"127.0.0.1:{port}"
    if credentials is None:
        bound = server.add_insecure_port(address)
    else:
        bound = server.add_secure_port(address, credentials)
    await server.start()
    try:
        yield bound, calls, server
    finally:
        await server.stop(0)


# ── Frames of HTTP/2 ─────────────────────────────────────────────────────────────────────────

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_KINDS = {"DATA": _DATA, "HEADERS": _HEADERS, "RST_STREAM": _RST_STREAM, "GOAWAY": _GOAWAY}
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_LITERAL, _CONTENT_TYPE, _STATUS_200 = b"\x00", b"\x0f\x10", b"\x88"

BEGINNING = _STATUS_200 + _CONTENT_TYPE + b"\x10application/grpc"
"""The headers that every reply of gRPC begins with (RFC 7541)."""

OK = _LITERAL + b"\x0bgrpc-status" + b"\x010"
"""The trailers of one that ends well."""


def frame(kind, payload=b"", *, last=False):
    """A frame of a stream; ``last`` ends that."""
    return _KINDS[kind], payload, (4 if kind == "HEADERS" else 0) | (1 if last else 0)


def message_frame(message, **options):
    """A frame with a whole message."""
    return frame("DATA", b"\x00" + struct.pack(">I", len(message)) + message, **options)


@contextlib.asynccontextmanager
async def frames_agent(*frames):
    """Answers each request with the same frames; gives the port."""

    async def answer(reader, writer):
        with contextlib.suppress(OSError, EOFError):
            await reader.readexactly(len(_PREFACE))
            writer.write(_written(_SETTINGS, b"", 0, 0))
            while True:
                head = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(head[:3]))
                stream = int.from_bytes(head[5:])
                if stream and head[4] & 1:  # the request is over
                    for kind, payload, flags in frames:
                        on = 0 if kind == _GOAWAY else stream
                        writer.write(_written(kind, payload, flags, on))

    async with Listener(answer, host="127.0.0.1", port=0, largest_head=65536) as listener:
        yield urlsplit(listener.url).port


def _written(kind, payload, flags, stream):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class Wire(Listener):
    """Passes bytes on to a port, until it is told otherwise.

    Attributes:
        connections: How many there were.
    """

    def __init__(self, to):
        super().__init__(self._passed_on, host="127.0.0.1", port=0, largest_head=65536)
        self._to = to
        self._open = set()

    @property
    def port(self):
        """Its own."""
        return urlsplit(self.url).port

    def cut(self):
        """Resets all connections."""
        for writer in list(self._open):
            if writer.is_closing():
                continue
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _passed_on(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._open |= {writer, back}
        try:
            await asyncio.gather(_pass(reader, back), _pass(there, writer))
        finally:
            self._open -= {writer, back}
            back.transport.abort()


async def _pass(reader, writer):
    with contextlib.suppress(OSError, RuntimeError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
