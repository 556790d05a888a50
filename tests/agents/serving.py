"""What the agents on the official SDK have in common: how they serve, and what they record.

Nothing here needs the SDK, whose versions do not fit into one environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.responses import JSONResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

__all__ = [
    "CARD_PATH",
    "EXECUTIONS_PATH",
    "JSONRPC_PATH",
    "PERMITS_PATH",
    "REQUESTS_PATH",
    "REST_PATH",
    "TEST_PATHS",
    "Permits",
    "Record",
    "serve",
]

HOST: Final = "127.0.0.1"
CARD_PATH: Final = "/.well-known/agent-card.json"
JSONRPC_PATH: Final = "/rpc"
REST_PATH: Final = "/rest"
EXECUTIONS_PATH: Final = "/executions"
REQUESTS_PATH: Final = "/requests"
PERMITS_PATH: Final = "/permits"
TEST_PATHS: Final = frozenset({EXECUTIONS_PATH, REQUESTS_PATH, PERMITS_PATH})
REPORTED_HEADERS: Final = ("a2a-version", "a2a-extensions", "user-agent")
SHUTDOWN_SECONDS: Final = 1

Seen = dict[str, str | bool | None]


@dataclass(frozen=True)
class Record:
    """What reached this agent: executions by message id, and requests in order."""

    executions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    requests: list[Seen] = field(default_factory=list[Seen])

    def note_execution(self, message_id: str, task_id: str) -> None:
        """Count one run of the executor for a message."""
        self.executions.setdefault(message_id, []).append(task_id)

    def note_request(self, request: Request) -> None:
        """Keep one request; of a credential only that there was one."""
        seen: Seen = {
            "method": request.method,
            "path": request.scope["raw_path"].decode("ascii", "replace"),
        }
        for name in REPORTED_HEADERS:
            seen[name] = ", ".join(request.headers.getlist(name)) or None
        seen["authorization"] = "authorization" in request.headers
        self.requests.append(seen)

    def routes(self) -> list[Route]:
        """Serve the record to the tests. These routes are not part of A2A."""

        async def executions(_: Request) -> JSONResponse:
            return JSONResponse(self.executions)

        async def requests(_: Request) -> JSONResponse:
            return JSONResponse(self.requests)

        return [Route(EXECUTIONS_PATH, executions), Route(REQUESTS_PATH, requests)]


@dataclass(frozen=True)
class Permits:
    """What a `paced` command waits for before each chunk, by a name of the test's choice."""

    _by_name: dict[str, asyncio.Semaphore] = field(default_factory=dict[str, asyncio.Semaphore])

    def of(self, name: str) -> asyncio.Semaphore:
        """Return the permits of this name; at first there are none."""
        return self._by_name.setdefault(name, asyncio.Semaphore(0))

    def routes(self) -> list[Route]:
        """Let the tests give permits. This route is not part of A2A."""

        async def give(request: Request) -> JSONResponse:
            count = int(request.query_params["count"])
            permits = self.of(request.query_params["name"])
            for _ in range(count):
                permits.release()
            return JSONResponse(count)

        return [Route(PERMITS_PATH, give)]


class AnnouncingServer(uvicorn.Server):
    """A server that prints one line when it is ready, and can be told to stop."""

    def __init__(self, config: uvicorn.Config, announcement: str) -> None:
        """Print `announcement` once calls are accepted."""
        super().__init__(config)
        self._announcement = announcement

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, then say so."""
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(self._announcement + "\n")
            sys.stdout.flush()

    def stop(self) -> None:
        """Finish soon: calls in flight get the grace."""
        self.should_exit = True


def stop_with_stdin(server: AnnouncingServer) -> None:
    """Stop the server when standard input ends, as it does when the parent dies."""

    def drain() -> None:
        # Not sys.stdin: its lock, held by a waiting thread, breaks a normal exit.
        while os.read(0, 4096):
            pass
        server.stop()

    threading.Thread(target=drain, name="stdin", daemon=True).start()


async def serve(
    build_app: Callable[[str], ASGIApp],
    max_seconds: float,
    *,
    port: int = 0,
    grace: int = SHUTDOWN_SECONDS,
) -> None:
    """Run one agent until it is told to stop or its time is up.

    It is built when its address is known. A `port` of 0 takes any that is free. Calls in flight
    get `grace` seconds when it stops.
    """
    # Named as TCP, so that asyncio sends small replies without delay.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        if port:  # which connections of the agent before may still block
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            build_app(url),
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=grace,
        )
        addresses = {
            "url": url,
            "jsonrpc": url + JSONRPC_PATH,
            "rest": url + REST_PATH,
        }
        server = AnnouncingServer(config, json.dumps(addresses))
        stop_with_stdin(server)
        asyncio.get_running_loop().call_later(max_seconds, server.stop)
        await server.serve(sockets=[listener])
