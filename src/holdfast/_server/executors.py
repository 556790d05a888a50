"""The code that answers messages: an executor that drives its turns itself, or a function.

An `Executor` owns each turn: it reads the message, emits status updates and artifacts, and ends
the turn. `FunctionExecutor` does that for a function: it announces the task at once, and ends the
turn with what the function returns or raises.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from holdfast._server.outcomes import TurnOutcome
from holdfast._server.threads import in_thread
from holdfast.errors import A2AError
from holdfast.types import Artifact, Message, Part, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._server.agent_turns import AgentTurn

__all__ = ["Executor", "FunctionExecutor"]


class Executor(ABC):
    """Executor of tasks: each message starts a turn, and the executor ends it.

    A turn ends by `AgentTurn.complete`, `AgentTurn.requires_input` and similar methods, or by an
    exception: the result of `requires_input`, `requires_auth` or `reject`; an `A2AError`, such as
    that of `fail`, whose text the client sees; or any other exception, of which the client sees
    "internal error". A turn that `execute` leaves without an end fails.
    """

    @abstractmethod
    async def execute(self, turn: AgentTurn) -> None:
        """Answer a message.

        Turns of one task run one after the other, those of different tasks concurrently. This
        coroutine is cancelled if the client cancels the task, or if the server stops.

        Args:
            turn: The message, and the operations that answer it.
        """

    async def cancel(self, turn: AgentTurn) -> None:  # noqa: B027  overriding it is optional
        """Clean up after a task was cancelled; `execute` has ended if it was running.

        The task becomes CANCELED after this. If this raises an exception, the task fails, and the
        client sees the same as for any other turn: the text of an `A2AError`, or "internal error".

        Args:
            turn: A turn of the task, without a message.
        """


class FunctionExecutor(Executor):
    """Drives the tasks of a function.

    Args:
        function: Takes the message (or its text, if its first parameter is annotated as `str`),
            and optionally the `AgentTurn`.

    Raises:
        TypeError: The function takes other parameters.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._takes_text, self._takes_turn = _check_parameters(function)
        called = function if inspect.isroutine(function) else type(function).__call__
        self._is_async = any(
            is_async(code)
            for is_async in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
            for code in (function, called)
        )

    async def execute(self, turn: AgentTurn) -> None:
        """Call the function, and emit what it returns or yields."""
        await turn.working()
        first = turn.text if self._takes_text else turn.message
        arguments = (first, turn) if self._takes_turn else (first,)
        if self._is_async:
            result = self._function(*arguments)
        else:
            result = await in_thread(self._function, *arguments)
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, AsyncIterator):
            await _emit_all(turn, cast("AsyncIterator[Any]", result))
        elif isinstance(result, Iterator):
            await _emit_all(turn, _each_in_thread(cast("Iterator[Any]", result)))
        else:
            await _finish(turn, result)
            return
        if not turn.is_over:
            await turn.complete()


async def _emit_all(turn: AgentTurn, pieces: AsyncIterator[Any]) -> None:
    """Emit each piece that a generator yields."""
    if hasattr(pieces, "aclose"):
        async with aclosing(cast("Any", pieces)):
            async for piece in pieces:
                await _emit(turn, piece)
        return
    async for piece in pieces:
        await _emit(turn, piece)


async def _emit(turn: AgentTurn, piece: object) -> None:
    match piece:
        case str() | Part():
            await turn.write(piece)
        case Artifact():
            await turn.artifact(piece)
        case Message():
            await turn.working(piece)
        case TaskStatusUpdateEvent() | TaskArtifactUpdateEvent():
            await turn.emit(piece)
        case TurnOutcome() | A2AError():
            raise piece
        case Mapping():
            await turn.write(Part(data=dict(cast("Mapping[str, Any]", piece))))
        case _:
            raise _wrong_result("yielded", piece)


async def _finish(turn: AgentTurn, result: object) -> None:
    """Emit what a function returned, and end the turn."""
    if isinstance(result, TurnOutcome | A2AError):  # `fail` returns an A2AError
        raise result
    if turn.is_over:
        return
    match result:
        case None:
            await turn.complete()
            return
        case Message():
            await turn.complete(result)
            return
        case Mapping():
            await turn.artifact(Part(data=dict(cast("Mapping[str, Any]", result))))
        case str() | Part() | Artifact():
            await turn.artifact(result)
        case list() | tuple():
            await _emit_items(turn, cast("list[object]", result))
        case _:
            raise _wrong_result("returned", result)
    await turn.complete()


async def _emit_items(turn: AgentTurn, items: list[object] | tuple[object, ...]) -> None:
    """Emit the artifacts of a list, and the parts between them as one artifact."""
    parts: list[str | Part] = []
    for item in [*items, None]:
        if isinstance(item, str | Part):
            parts.append(item)
            continue
        if parts:
            await turn.artifact(parts)
            parts = []
        if isinstance(item, Artifact):
            await turn.artifact(item)
        elif item is not None:
            raise _wrong_result("returned a list with", item)


def _wrong_result(verb: str, value: object) -> TypeError:
    return TypeError(
        f"the function {verb} {type(value).__name__}; an answer is text, a Part, an Artifact, a "
        "list of those, a dict, a Message or None"
    )


async def _each_in_thread(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    """Yield the pieces of a blocking generator, each computed in a thread."""
    end = object()
    while (piece := await in_thread(next, pieces, end)) is not end:
        yield piece


def _check_parameters(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Return whether a function takes the text instead of the message, and whether the turn."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False, False
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    required = [p for p in positional if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    required_names = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not positional or len(required) > 2 or required_names:
        raise TypeError(
            f"{name}() must take the message, and perhaps the turn: "
            f"async def {name}(message) or async def {name}(message, turn)"
        )
    takes_text = positional[0].annotation in (str, "str")
    return takes_text, len(required) == 2
