"""Fan-outs: messages to many agents at once, and their results as they complete or together."""

from __future__ import annotations

import asyncio
import warnings
from functools import partial
from typing import TYPE_CHECKING, Self

from holdfast._aio.async_only import AsyncOnly
from holdfast._aio.closing import ClosingContext
from holdfast._client.named_agent import cancelled_result, join_some
from holdfast._model.error_values import one_line
from holdfast._policy.deadline import Deadline
from holdfast.errors import NotEnoughResultsError, TaskInputRequiredError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
    from typing import Any

    from holdfast._client.named_agent import AgentResult, NamedAgent
    from holdfast.errors import A2AError
    from holdfast.types import Message

    Cancelled = Callable[[AgentResult], None]
    Ask = Callable[
        [NamedAgent, Message, Deadline | None, Cancelled], Coroutine[Any, Any, AgentResult]
    ]

__all__ = ["FanOut", "round_robin"]

_MAX_FAILURES_SHOWN = 5
"""Failures that an error names at most."""

_MAX_REASON_CHARS = 300
"""Characters of each failure's message that the error quotes; the results have all of it."""

_ADVICE_CHARS = 120
"""Characters of the end of a longer message, where the advice is."""


class FanOut(ClosingContext, AsyncOnly):
    """The results of messages to many agents; made by `Coordinator.fan_out`.

    Iterate over it for the results in the order of completion, or await it for all of them in the
    order of the messages. Both can be repeated and return the same results: each message is sent
    once. Each iteration starts with the first completed result. Nothing is sent before it is used;
    a fan-out that is never used causes a ``RuntimeWarning``, as a coroutine does. To leave an
    iteration early, use it as an async context manager, or call `close`.

    It is not a coroutine: to run it in a task of its own, pass it to ``asyncio.ensure_future``, or
    its `results` to ``asyncio.create_task``.
    """

    def __init__(
        self,
        requests: Sequence[tuple[NamedAgent, Message]],
        ask: Ask,
        *,
        min_results: int,
        within: float | None,
        on_start: Callable[[FanOut], None],
        on_end: Callable[[FanOut], None],
    ) -> None:
        self._requests = requests
        self._ask = ask
        self._min_results = min_results
        self._within = within
        self._on_start = on_start
        self._on_end = on_end
        self._results = [cancelled_result(agent.name) for agent, _ in requests]  # until they end
        self._completed: list[AgentResult] = []
        self._tasks: dict[asyncio.Task[AgentResult], int] = {}
        self._changed = asyncio.Event()
        self._fatal_error: BaseException | None = None
        self._is_used = self._is_started = self._is_closed = False

    def __del__(self) -> None:
        if not (self._is_used or self._is_closed):
            text = "a fan-out was never started: await it, or iterate over it; nothing was sent"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    @property
    def in_flight(self) -> int:
        """The number of messages without a result."""
        return len(self._tasks) if self._is_started else len(self._requests)

    async def __aenter__(self) -> Self:
        """Start all calls.

        Raises:
            RuntimeError: The fan-out or its coordinator was closed.
        """
        self._start()
        return self

    def __await__(self) -> Generator[Any, None, tuple[AgentResult, ...]]:
        return self.results().__await__()

    async def results(self) -> tuple[AgentResult, ...]:
        """Wait for all results, and return them in the order of the messages.

        If it is cancelled, all calls in flight are cancelled.

        Raises:
            NotEnoughResultsError: Fewer than ``min_results`` agents answered; the error has all
                results.
            RuntimeError: The fan-out, its coordinator or an agent's client was closed before the
                end.
            Exception: A consumer or another hook of the caller raised it.
        """
        async with self:
            while self._tasks:
                await self._wait_for_change()
            self._check()
            return tuple(self._results)

    def __aiter__(self) -> AsyncIterator[AgentResult]:
        """Iterate over all results in the order of completion.

        Raises:
            NotEnoughResultsError: After the last result: fewer than ``min_results`` agents
                answered.
            RuntimeError: The fan-out, its coordinator or an agent's client was closed before the
                end.
            Exception: A consumer or another hook of the caller raised it.
        """
        return _Iteration(self._result_at)

    async def close(self) -> None:
        """Cancel the calls in flight. Can be called twice."""
        if self.in_flight or not self._is_started:
            self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── Calls ────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self._is_used = True
        if self._is_started:
            return
        if self._is_closed:
            text = "the fan-out was closed; create another one"
            raise RuntimeError(text)
        self._on_start(self)
        self._is_started = True
        loop, deadline = asyncio.get_running_loop(), None
        if self._within is not None:
            deadline_at = loop.time() + self._within
            deadline = Deadline(name="fan-out", timeout=self._within, at=deadline_at)
        for index in round_robin([agent.name for agent, _ in self._requests]):
            agent, message = self._requests[index]
            on_cancel = partial(self._results.__setitem__, index)
            task = loop.create_task(self._ask(agent, message, deadline, on_cancel))
            self._tasks[task] = index
            task.add_done_callback(self._on_task_done)
        if not self._tasks:
            self._on_end(self)

    def _on_task_done(self, task: asyncio.Task[AgentResult]) -> None:
        index = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fatal_error = self._fatal_error or error
            for pending in self._tasks:
                pending.cancel()
        else:
            if not task.cancelled():
                self._results[index] = task.result()
            self._completed.append(self._results[index])
        self._changed.set()
        if not self._tasks:
            self._on_end(self)

    async def _result_at(self, position: int) -> AgentResult:
        """Return the result at a position in the order of completion; see `__aiter__`."""
        self._start()
        while position == len(self._completed):
            if not self._tasks:
                self._check()
                raise StopAsyncIteration
            await self._wait_for_change()
        return self._completed[position]

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _check(self) -> None:
        """Raise the error that the fan-out ended with, if any.

        Raises:
            NotEnoughResultsError: Fewer than ``min_results`` agents answered.
            RuntimeError: The fan-out was closed before its end.
            BaseException: The error that ended the fan-out.
        """
        if self._fatal_error is not None:
            raise self._fatal_error
        if self._is_closed:
            text = "the fan-out was closed before its end"
            raise RuntimeError(text)
        failed = [result for result in self._results if result.error is not None]
        answered = len(self._results) - len(failed)
        if answered < self._min_results:
            raise _not_enough(self._results, failed, self._min_results)


class _Iteration:
    """One iteration over the results; abandoning it needs no clean-up."""

    def __init__(self, result_at: Callable[[int], Awaitable[AgentResult]]) -> None:
        self._result_at = result_at
        self._position = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentResult:
        result = await self._result_at(self._position)
        self._position += 1
        return result


def round_robin(names: Sequence[str]) -> list[int]:
    """Return the indices of names, ordered so that names that repeat take turns."""
    rounds: dict[str, int] = {}
    order: list[tuple[int, int]] = []
    for index, name in enumerate(names):
        rounds[name] = number = rounds.get(name, -1) + 1
        order.append((number, index))
    return [index for _, index in sorted(order)]


def _not_enough(
    results: list[AgentResult], failed: list[AgentResult], min_results: int
) -> NotEnoughResultsError:
    errors = [(result.agent, result.error) for result in failed if result.error is not None]
    is_unexecuted = len(failed) == len(results) and all(e.executed is False for _, e in errors)
    reasons = [f"{agent}: {_reason(error)}" for agent, error in errors]
    if any(isinstance(error, TaskInputRequiredError) for _, error in errors):
        hint = "; a question (TaskInputRequiredError) is not an answer"
    else:
        hint = ""
    answered = len(results) - len(failed)
    have = "has" if answered == 1 else "have"
    return NotEnoughResultsError(
        f"{answered} of {len(results)} {have} answered, but min_results requires {min_results}; "
        f"{join_some(reasons, _MAX_FAILURES_SHOWN)}{hint}",
        results=results,
        executed=False if is_unexecuted else None,
        transient=any(error.transient for _, error in errors),
    )


def _reason(error: A2AError) -> str:
    message = error.message
    if len(message) > 4 * _MAX_REASON_CHARS:  # an agent's text has no limit
        message = message[: 2 * _MAX_REASON_CHARS] + message[-2 * _MAX_REASON_CHARS :]
    message = one_line(message, len(message))
    if len(message) > _MAX_REASON_CHARS:
        start = message[: _MAX_REASON_CHARS - _ADVICE_CHARS - len(" … ")]
        message = f"{start.rstrip()} … {message[-_ADVICE_CHARS:].lstrip()}"
    return message or type(error).__name__
