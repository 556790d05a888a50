"""A transport of the official SDK that follows a script, and errors as the SDK raises them."""

import asyncio

import grpc
import httpx
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as sdk
from grpc import aio

__all__ = [
    "CALLS",
    "CONDITIONAL",
    "STREAMS",
    "UNARY",
    "Dice",
    "Scripted",
    "call",
    "caused",
    "refused",
    "rpc_error",
    "status_error",
    "timed_out",
    "unanswered",
]

UNARY = {
    "send_message": (sdk.SendMessageRequest, sdk.SendMessageResponse),
    "get_task": (sdk.GetTaskRequest, sdk.Task),
    "list_tasks": (sdk.ListTasksRequest, sdk.ListTasksResponse),
    "cancel_task": (sdk.CancelTaskRequest, sdk.Task),
    "create_task_push_notification_config": (
        sdk.TaskPushNotificationConfig,
        sdk.TaskPushNotificationConfig,
    ),
    "get_task_push_notification_config": (
        sdk.GetTaskPushNotificationConfigRequest,
        sdk.TaskPushNotificationConfig,
    ),
    "list_task_push_notification_configs": (
        sdk.ListTaskPushNotificationConfigsRequest,
        sdk.ListTaskPushNotificationConfigsResponse,
    ),
    "delete_task_push_notification_config": (
        sdk.DeleteTaskPushNotificationConfigRequest,
        lambda: None,
    ),
}
STREAMS = {
    "send_message_streaming": (sdk.SendMessageRequest, sdk.StreamResponse),
    "subscribe": (sdk.SubscribeToTaskRequest, sdk.StreamResponse),
}
CALLS = [*UNARY, *STREAMS]
CONDITIONAL = [
    "create_task_push_notification_config",
    "send_message",
    "send_message_streaming",
]


def _unary(name):
    async def method(self, request, *, context=None):
        return await self._next(name, request, context)

    return method


def _stream(name):
    async def method(self, request, *, context=None):
        self.open += 1
        try:
            for event in await self._next(name, request, context) or ():
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.open -= 1

    return method


_METHODS = {name: _unary(name) for name in UNARY} | {name: _stream(name) for name in STREAMS}


class Scripted(type("_Methods", (ClientTransport,), _METHODS)):
    """A transport whose calls come to what is written down for them, in order.

    An exception is raised, a number is waited for (in seconds), anything else is the answer; of
    a stream it is the list of its events, in which an exception is raised. When nothing is left
    an empty answer is given.

    Attributes:
        calls: What was asked: the method, the request, the context, and when.
        open: How many streams were begun and not ended.
    """

    def __init__(self, *script):
        self._script = list(script)
        self.calls = []
        self.open = 0
        self.is_closed = False

    async def get_extended_agent_card(self, request, *, context=None):
        return await self._next("get_extended_agent_card", request, context)

    async def close(self):
        self.is_closed = True

    @property
    def times(self):
        return [at for *_, at in self.calls]

    async def _next(self, name, request, context):
        self.calls.append((name, request, context, asyncio.get_running_loop().time()))
        while self._script:
            what = self._script.pop(0)
            if isinstance(what, int | float):
                await asyncio.sleep(what)
                continue
            if isinstance(what, Exception):
                raise what
            return what
        made = (UNARY | STREAMS).get(name, (None, sdk.AgentCard))[1]()
        return [made] if name in STREAMS else made


async def call(transport, name, request=None, context=None):
    """Calls a method by its name; the answer, or the list of events."""
    request = request or (UNARY | STREAMS)[name][0]()
    context = context or ClientCallContext()
    if name in STREAMS:
        return [one async for one in getattr(transport, name)(request, context=context)]
    return await getattr(transport, name)(request, context=context)


class Dice:
    """An `Env` whose dice are loaded."""

    def __init__(self, *draws, wall=1_000_000_000.0):
        self._draws = list(draws)
        self._wall = wall

    def wall(self):
        return self._wall

    def random(self):
        return self._draws.pop(0) if len(self._draws) > 1 else self._draws[0]

    def new_id(self):
        return "id"


# ── Errors, raised as the SDK raises them ────────────────────────────────────────────────────


def caused(error, cause):
    """An error that was raised from another one."""
    error.__cause__ = cause
    return error


def request_to(method="POST"):
    return httpx.Request(method, "http://agent.example/?token=secret")


def status_error(status, body=b"", history=(), **headers):
    """An HTTP status, as `http_helpers` tells of it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = httpx.Response(status, content=body, headers=named, request=request_to())
    reply.history = list(history)
    cause = httpx.HTTPStatusError(f"{status}", request=reply.request, response=reply)
    return caused(A2AClientError(f"HTTP Error {status}: {cause}"), cause)


def unanswered(kind=httpx.ReadError, method="POST"):
    """A request error of httpx, or of httpx2."""
    cause = kind("no reply", request=request_to(method))
    return caused(A2AClientError(f"Network communication error: {cause}"), cause)


def refused():
    return unanswered(httpx.ConnectError)


def timed_out(kind=httpx.ReadTimeout):
    cause = kind("too slow", request=request_to())
    return caused(A2AClientTimeoutError("Client Request timed out"), cause)


def rpc_error(code, details="", trailing=(), initial=()):
    """A gRPC status, as `_map_grpc_error` tells of it."""
    cause = aio.AioRpcError(
        getattr(grpc.StatusCode, code), aio.Metadata(*initial), aio.Metadata(*trailing), details
    )
    if code == "DEADLINE_EXCEEDED":
        return caused(A2AClientTimeoutError("Client Request timed out"), cause)
    return caused(A2AClientError(f"gRPC Error {code}: {details}"), cause)
