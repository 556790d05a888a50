"""What does the work: an executor that leads its task itself, or a function that answers.

An `Executor` owns the life of each turn: it reads the message, tells how it goes and what comes of
it, and ends the turn. A function is led: its task is announced at once, and ends in what it
returns or raises.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from holdfast._server.outcomes import Ending
from holdfast._server.threads import in_thread
from holdfast.errors import A2AError
from holdfast.types import Artifact, Message, Part, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._server.agent_turns import AgentTurn

__all__ = ["Executor", "FunctionExecutor"]


class Executor(ABC):
    """Leads tasks: each message is a turn, and the executor ends it.

    It ends by `AgentTurn.complete`, `AgentTurn.requires_input` and the like, or by raising: what
    `requires_input`, `requires_auth` and `reject` make, an `A2AError` (see `fail`), which is told
    as it is, or anything else, of which the client sees "internal error". A turn that is left
    without an end fails.
    """

    @abstractmethod
    async def execute(self, turn: AgentTurn) -> None:
        """Does what a message asks for.

        Turns of one task come one after the other, those of others at the same time. It is
        cancelled where the client cancels the task, and where the server stops.

        Args:
            turn: The message, and how to answer.
        """

    async def cancel(self, turn: AgentTurn) -> None:  # noqa: B027  nothing has to be done
        """Is told that a task was cancelled, `execute` having ended if it was running.

        The task is CANCELED after this. Where this raises an exception the task fails, and the
        client is told as of any other: an `A2AError` as it is.

        Args:
            turn: Without a message; of the task.
        """


class FunctionExecutor(Executor):
    """Leads a function's tasks.

    Args:
        function: Takes the message (or its text, where its first parameter is declared as `str`),
            and perhaps the `AgentTurn`.

    Raises:
        TypeError: It takes something else.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._takes_text, self._takes_turn = _takes(function)
        called = function if inspect.isroutine(function) else type(function).__call__
        self._is_async = any(
            is_async(one)
            for is_async in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
            for one in (function, called)
        )

    async def execute(self, turn: AgentTurn) -> None:
        """Runs the function, and tells what it gives."""
        await turn.working()
        first = turn.text if self._takes_text else turn.message
        arguments = (first, turn) if self._takes_turn else (first,)
        if self._is_async:
            given = self._function(*arguments)
        else:
            given = await in_thread(self._function, *arguments)
        if inspect.isawaitable(given):
            given = await given
        if isinstance(given, AsyncIterator):
            await _tell_all(turn, cast("AsyncIterator[Any]", given))
        elif isinstance(given, Iterator):
            await _tell_all(turn, _each_in_thread(cast("Iterator[Any]", given)))
        else:
            await _finish(turn, given)
            return
        if not turn.is_over:
            await turn.complete()


async def _tell_all(turn: AgentTurn, pieces: AsyncIterator[Any]) -> None:
    """Tells what a generator yields, as it comes."""
    if hasattr(pieces, "aclose"):
        async with aclosing(cast("Any", pieces)):
            async for piece in pieces:
                await _tell(turn, piece)
        return
    async for piece in pieces:
        await _tell(turn, piece)


async def _tell(turn: AgentTurn, piece: object) -> None:
    match piece:
        case str() | Part():
            await turn.write(piece)
        case Artifact():
            await turn.artifact(piece)
        case Message():
            await turn.working(piece)
        case TaskStatusUpdateEvent() | TaskArtifactUpdateEvent():
            await turn.emit(piece)
        case Ending() | A2AError():
            raise piece
        case Mapping():
            await turn.write(Part(data=dict(cast("Mapping[str, Any]", piece))))
        case _:
            raise _unfit("yielded", piece)


async def _finish(turn: AgentTurn, result: object) -> None:
    """Tells what a function returned, and ends the turn."""
    if isinstance(result, Ending | A2AError):  # what `fail` makes, too
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
            await _tell_items(turn, cast("list[object]", result))
        case _:
            raise _unfit("returned", result)
    await turn.complete()


async def _tell_items(turn: AgentTurn, items: list[object] | tuple[object, ...]) -> None:
    """Tells a list: artifacts each by itself, the parts between them as one artifact."""
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
            raise _unfit("returned a list with", item)


def _unfit(what: str, thing: object) -> TypeError:
    return TypeError(
        f"the function {what} {type(thing).__name__}; an answer is text, a Part, an Artifact, a "
        "list of those, a dict, a Message or None"
    )


async def _each_in_thread(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    """What a generator that blocks yields, each piece made in a thread."""
    nothing = object()
    while (piece := await in_thread(next, pieces, nothing)) is not nothing:
        yield piece


def _takes(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether a function takes the text instead of the message, and whether it takes the turn."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some are written in C
        return False, False
    by_place = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    needed = [p for p in by_place if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not by_place or len(needed) > 2 or by_name:
        raise TypeError(
            f"{name}() must take the message, and perhaps the turn: "
            f"async def {name}(message) or async def {name}(message, turn)"
        )
    takes_text = by_place[0].annotation in (str, "str")
    return takes_text, len(needed) == 2
