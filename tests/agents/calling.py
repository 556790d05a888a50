"""What clients on other people's frameworks have in common: how they are told, and how they tell.

Nothing here needs a framework. Standard input brings one JSON object on each line: a call, or,
while one is under way, leave to go on. Standard output carries one JSON object on each line: what
happens in a call, and at its end what came of it.

Rules:
- The first line says that it is ready.
- Calls are made one after the other, each within `CALL_SECONDS`.
- Before anything is tried again the test is told, and asked for leave: what it has to prepare for
  that, it can do without a race.
- It ends with exit code 0 when standard input ends, or when its time is up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["CALL_SECONDS", "Test", "answer", "described", "resilience"]

MAX_SECONDS: Final = 600
CALL_SECONDS: Final = 15

Json = dict[str, Any]


class Test:
    """The other side of standard input and output."""

    def __init__(self) -> None:
        """Read from now on; call it on the event loop."""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            # Not sys.stdin: its lock, held by a waiting thread, breaks a normal exit.
            with os.fdopen(os.dup(0), encoding="utf-8") as stdin:
                for line in stdin:
                    loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

        threading.Thread(target=read, name="stdin", daemon=True).start()

    async def next_line(self) -> Json | None:
        """What is wanted next; nothing at the end."""
        line = await self._lines.get()
        return None if line is None else json.loads(line)

    def tell(self, **what: Any) -> None:
        """Say what happened."""
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    async def on_retry(self, number: int, error: BaseException, _: float) -> None:
        """Say that something will be tried again, and wait for leave."""
        self.tell(retry=number, error=described(error))
        await self.next_line()


def described(error: BaseException) -> list[Json]:
    """An error and what it came from: names, texts, and whether the message was executed."""
    chain: list[Json] = []
    while error is not None:
        told: Json = {"type": type(error).__name__, "message": str(error)}
        if hasattr(error, "executed"):
            told["executed"] = error.executed
        chain.append(told)
        error = error.__cause__
    return chain


def resilience(wanted: Json, test: Test) -> Any:
    """Holdfast's usual ways, with short waits, and the test asked for leave before a retry.

    A call's ``look`` is how many seconds to look for a message whose reply was lost.
    """
    from holdfast import ReconcilePolicy, ReconnectPolicy, Resilience, RetryPolicy

    return Resilience(
        retry=RetryPolicy(base_delay=0.01, on_retry=test.on_retry),
        reconnect=ReconnectPolicy(backoff=0.01, max_backoff=0.05),
        reconcile=ReconcilePolicy(
            backoff=0.01, max_backoff=0.05, timeout=wanted.get("look", CALL_SECONDS)
        ),
    )


async def answer(call: Callable[[Json, Test], Awaitable[Json]]) -> None:
    """Make the calls that the test wants.

    Args:
        call: Makes one call, and gives what came of it; what it raises is told as `error`.
    """
    test = Test()
    test.tell(ready=True)
    try:
        async with asyncio.timeout(MAX_SECONDS):
            while (wanted := await test.next_line()) is not None:
                try:
                    async with asyncio.timeout(CALL_SECONDS):
                        outcome = await call(wanted, test)
                except Exception as error:  # noqa: BLE001  whatever a framework raises is a result
                    outcome = {"error": described(error)}
                test.tell(outcome=outcome)
    except TimeoutError:
        return
