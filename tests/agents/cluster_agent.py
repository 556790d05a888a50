"""One replica of an A2A agent on the official SDK: all replicas share a store and an event log.

It does what `sdk_agent.py` does for the same messages. Tasks and events are in one SQLite file, so
that each replica can serve every task. Each execution is a line of a file, which outlives it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.types import AgentInterface
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from grpc_door import GrpcDoor
from sdk_agent import PROTOCOL_VERSION, ScriptedExecutor, build_card, build_interfaces
from serving import JSONRPC_PATH, REST_PATH, Permits, Record, serve
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from starlette.applications import Starlette
from starlette.routing import Mount

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

GRACE_SECONDS = 60
"""What calls in flight get when a replica stops, and then their tasks.

A call that is cut before it ran leaves its outcome unknown: on a slow machine one second is less
than a call takes."""
POLL_SECONDS = 0.02
"""How often a replica looks for events of tasks that run at another one."""


@dataclass(frozen=True)
class LastingRecord(Record):
    """A record whose executions are written to a file as well, before anything is done."""

    path: Path = Path()

    def note_execution(self, message_id: str, task_id: str) -> None:
        """Count one run of the executor for a message."""
        super().note_execution(message_id, task_id)
        with self.path.open("a") as file:
            file.write(f"{message_id} {task_id}\n")


def open_store(path: Path) -> AsyncEngine:
    """Open the SQLite file so that several processes can read and write it at once."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=OFF", "busy_timeout=10000"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


async def drained() -> None:
    """Wait, for a while, until the tasks that run here are over and stored."""
    running = [
        task
        for task in asyncio.all_tasks()
        if task.get_name().partition(":")[0] in {"producer", "consumer"}  # as the SDK names them
    ]
    if running:
        await asyncio.wait(running, timeout=GRACE_SECONDS)


def build_app(url: str, options: argparse.Namespace) -> ASGIApp:
    """Wire the shared store, the executor and all bindings into one ASGI application."""
    store: Path = options.store
    record = LastingRecord(path=store.with_suffix(".executions"))
    permits = Permits()
    door = GrpcDoor(record, None, port=options.grpc_port, grace=GRACE_SECONDS)
    shown, shown_grpc = options.shown or (url, door.address)
    grpc = AgentInterface(
        url=shown_grpc, protocol_binding="GRPC", protocol_version=PROTOCOL_VERSION
    )
    card = build_card([*build_interfaces(shown, "jsonrpc"), grpc], secured=False, extended=False)
    engine = open_store(store)
    tasks = VersionedDatabaseTaskStore(engine)
    events = DatabaseTaskEventStream(engine, poll_interval_s=POLL_SECONDS)
    handler = DefaultRequestHandler(
        agent_executor=ScriptedExecutor(record, permits),
        task_store=tasks,
        agent_card=card,
        event_stream=events,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        with store.with_suffix(".lock").open("w") as lock:  # two processes make tables at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            await tasks.initialize()
            await events.initialize()
        add_service(GrpcHandler(handler), door.server)
        await door.server.start()
        yield
        await door.stop()
        await drained()
        await handler.aclose()
        await engine.dispose()

    return Starlette(
        routes=[
            *permits.routes(),
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, JSONRPC_PATH),
            Mount(REST_PATH, routes=create_rest_routes(handler)),
        ],
        lifespan=lifespan,
    )


def main() -> None:
    """Serve with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    parser = argparse.ArgumentParser(description="A replica of an A2A agent.")
    parser.add_argument("--store", type=Path, required=True, help="the SQLite file")
    parser.add_argument("--port", type=int, required=True, help="of HTTP")
    parser.add_argument("--grpc-port", type=int, required=True, help="of gRPC")
    parser.add_argument("--shown", nargs=2, help="the origin and the gRPC address in the card")
    parser.add_argument("--max-seconds", type=float, default=600.0, help="stop by itself after")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        serving = serve(
            lambda url: build_app(url, options),
            options.max_seconds,
            port=options.port,
            grace=GRACE_SECONDS,
        )
        asyncio.run(serving)


if __name__ == "__main__":
    main()
