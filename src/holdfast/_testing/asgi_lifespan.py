"""Startup and shutdown of an ASGI application (ASGI lifespan)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast._aio.cancel_scope import CancelScope

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import TracebackType

    from holdfast._asgi import ASGIApplication

__all__ = ["Lifespan"]

_TIMEOUT_S = 30.0


class Lifespan:
    """Starts an application up, and shuts it down at the end of the context; enter it once.

    An application without support for the lifespan protocol has none. Startup and shutdown may
    take 30 s each; an application that takes longer to shut down is cancelled.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApplication) -> None:
        self._app = app
        self._state: dict[str, object] = {}
        self._messages: asyncio.Queue[str] = asyncio.Queue()
        self._is_started = False
        self._is_ended = False
        self._failure: str | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> dict[str, object]:
        """Start the application up, and return the state that its requests get.

        Raises:
            RuntimeError: The application reports that it cannot start.
            TimeoutError: Startup takes too long.
        """
        self._messages.put_nowait("lifespan.startup")
        self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            await self._wait_changed("start up")
        except BaseException:
            await self._end()
            raise
        if self._failure is not None:
            await self._end()
            text = f"the application cannot start: {self._failure}"
            raise RuntimeError(text)
        return self._state

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self._is_ended:
                self._changed.clear()
                self._messages.put_nowait("lifespan.shutdown")
                await self._wait_changed("shut down")
        finally:
            await self._end()
        if self._failure is not None and error is None:
            text = f"the application did not shut down: {self._failure}"
            raise RuntimeError(text)

    async def _wait_changed(self, action: str) -> None:
        async with CancelScope.within(_TIMEOUT_S) as scope:
            await self._changed.wait()
        if scope.expired:
            text = f"the application did not {action} within {_TIMEOUT_S:g} s"
            raise TimeoutError(text)

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_TIMEOUT_S)

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self._state,
        }
        try:
            await self._app(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001  before startup: the application has no lifespan
            if self._is_started and self._failure is None:
                self._failure = f"{type(error).__name__}: {error}"
        finally:
            self._is_ended = True
            self._changed.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        return {"type": await self._messages.get()}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                self._is_started = True
            case "lifespan.startup.failed" | "lifespan.shutdown.failed":
                self._failure = str(message.get("message", ""))
            case _:
                pass
        self._changed.set()
