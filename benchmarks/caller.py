"""The calling process of a client: reads calls from standard input, and writes their outcomes.

It reads one line of JSON on standard input, the calls to make: ``{"calls": [{"call": id, "url":
address of the card, "text": message}, ...], "every": seconds from one call to the next, "limit":
seconds that a call may take}``. The first call is made alone, because it includes the time of
imports and set-up. Each call has a new client, which has the card before the call begins, so that
calls do not affect each other. Each call ends in one line on standard output: its errors, its
text, and its duration. Another line, with its port, is written for each connection just before it
is attempted: a refused connection is seen by no other process.

Only the standard library is needed, so that every Python can import this.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

__all__ = ["PATIENCE", "Caller", "Send", "Text", "run"]

PATIENCE = 5.0
"""Seconds without a byte that every client puts up with: the default of httpx."""


class Send(Protocol):
    """A function that sends a text to an agent."""

    async def __call__(self, message_id: str, text: str, /) -> str:
        """Sends a text, under a message id where the client lets its caller name one.

        Returns:
            The text that the client gives for an answer.
        """
        ...


class Caller(Protocol):
    """A client that makes calls on request."""

    def __call__(self, url: str, /) -> AbstractAsyncContextManager[Send]:
        """Create the client of the agent whose card is at an address, and pass it the card."""
        ...


class Text:
    """The text of artifacts, put together from events as the protocol says.

    An appended chunk follows the earlier ones; any other replaces them.
    """

    def __init__(self) -> None:
        self._artifacts: dict[str, str] = {}

    def add(self, artifact: str, text: str, *, append: bool) -> None:
        """Add a chunk of an artifact, or replace the artifact."""
        self._artifacts[artifact] = (self._artifacts.get(artifact, "") if append else "") + text

    def __str__(self) -> str:
        return "".join(self._artifacts.values())


def run(caller: Caller, *distributions: str, settings: Sequence[str] = ()) -> None:
    """Make the requested calls.

    Args:
        caller: The client.
        distributions: Whose versions to tell.
        settings: How the client is set, where that is not its default.
    """

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and isinstance(arguments[1], tuple):
            _write(tries=arguments[1][1])

    logging.disable()  # only standard output counts
    sys.addaudithook(watch)
    versions = {name: version(name) for name in distributions}
    _write(versions=versions, settings=settings, python=sys.version.split()[0])
    for line in sys.stdin:
        asyncio.run(_make(caller, **json.loads(line)))


async def _make(caller: Caller, calls: list[dict[str, str]], every: float, limit: float) -> None:
    first, *others = calls
    await _call(caller, limit, **first)
    async with asyncio.TaskGroup() as group:
        for call in others:
            group.create_task(_call(caller, limit, **call))
            await asyncio.sleep(every)


async def _call(caller: Caller, limit: float, call: str, url: str, text: str) -> None:
    error: BaseException | None = None
    got = ""
    async with AsyncExitStack() as stack:
        send = await stack.enter_async_context(caller(url))
        began = time.perf_counter()
        try:
            async with asyncio.timeout(limit) as bound:
                got = await send(call, text)
        except Exception as failure:  # noqa: BLE001  any exception of a client is its outcome
            error = failure
        seconds = time.perf_counter() - began
    errors = [] if error is None else _causes(error)
    if error is not None and bound.expired():
        errors = [[f"no end within {limit:g} s", ""]]
    _write(call=call, errors=errors, text=got, seconds=seconds)


def _causes(error: BaseException) -> list[list[str]]:
    """Return class and message of an error and of its causes."""
    causes: list[list[str]] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 5:
        causes.append([type(cause).__name__, str(cause)[:300]])
        cause = cause.__cause__
    return causes


def _write(**facts: object) -> None:
    print(json.dumps(facts), flush=True)
