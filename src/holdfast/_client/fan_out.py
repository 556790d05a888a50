"""Asking many agents at once: each result as it comes, or all together in the order asked for."""

from __future__ import annotations

import asyncio
import warnings
from functools import partial
from typing import TYPE_CHECKING, Self

from holdfast._aio.closing import ClosingContext
from holdfast._client.named_agent import given_up, listed
from holdfast._model.error_values import one_line
from holdfast._policy.deadline import Deadline
from holdfast.errors import NotEnoughResultsError

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

__all__ = ["FanOut", "in_turns"]

_SHOWN = 5
"""Failures that an error names at most."""

_LONGEST_REASON = 160
"""Characters of each of them that it tells; the results have all of it."""


class FanOut(ClosingContext):
    """The results of asking many agents; made by `Coordinator.fan_out`.

    Iterate over it for the results as they come, or await it for all of them in the order in which
    they were asked for. Both can be done again, for the same results: all are asked once. Each
    iteration begins with the first result that came. Nothing is sent before one of them begins, or
    the context is entered; who forgets that gets a `RuntimeWarning`, as with a coroutine.
    Whoever iterates and may leave early uses it as an async context manager, or says `close`.

    It is no coroutine: for a task of its own, pass it to `asyncio.ensure_future`, or its `results`
    to `asyncio.create_task`.
    """

    def __init__(
        self,
        asked: Sequence[tuple[NamedAgent, Message]],
        ask: Ask,
        *,
        min_results: int,
        within: float | None,
        begun: Callable[[FanOut], None],
        over: Callable[[FanOut], None],
    ) -> None:
        self._asked = asked
        self._ask = ask
        self._min_results = min_results
        self._within = within
        self._begun = begun
        self._over = over
        self._results = [given_up(agent.name) for agent, _ in asked]  # as long as there is none
        self._come: list[AgentResult] = []
        self._tasks: dict[asyncio.Task[AgentResult], int] = {}
        self._news = asyncio.Event()
        self._fault: BaseException | None = None
        self._is_wanted = self._is_begun = self._is_closed = False

    def __del__(self) -> None:
        if not (self._is_wanted or self._is_closed):
            text = "a fan-out was never begun: await it, or iterate over it; nothing was sent"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    @property
    def in_flight(self) -> int:
        """How many have not come to an end yet."""
        return len(self._tasks) if self._is_begun else len(self._asked)

    async def __aenter__(self) -> Self:
        """Asks all.

        Raises:
            RuntimeError: It was closed, or its coordinator.
        """
        self._begin()
        return self

    def __await__(self) -> Generator[Any, None, tuple[AgentResult, ...]]:
        return self.results().__await__()

    async def results(self) -> tuple[AgentResult, ...]:
        """Waits for all, and gives the results in the order in which they were asked for.

        Cancelled, it waits for none of them any longer.

        Raises:
            NotEnoughResultsError: Too few have answered; it has all results.
            RuntimeError: It was closed before, or its coordinator, or the client of an agent.
            Exception: What a consumer or another hook of the caller's raised.
        """
        async with self:
            while self._tasks:
                await self._next_news()
            self._check()
            return tuple(self._results)

    def __aiter__(self) -> AsyncIterator[AgentResult]:
        """All results, in the order in which they come.

        Raises:
            NotEnoughResultsError: After the last one: too few have answered.
            RuntimeError: It was closed before its end, or its coordinator, or the client of an
                agent.
            Exception: What a consumer or another hook of the caller's raised.
        """
        return _Iteration(self._after)

    async def close(self) -> None:
        """Waits no longer for those that are under way. Can be called twice."""
        if self.in_flight or not self._is_begun:
            self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── Inside ───────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        self._is_wanted = True
        if self._is_begun:
            return
        if self._is_closed:
            text = "the fan-out was closed; make another one"
            raise RuntimeError(text)
        self._begun(self)
        self._is_begun = True
        loop, deadline = asyncio.get_running_loop(), None
        if self._within is not None:
            end = loop.time() + self._within
            deadline = Deadline(name="fan-out", timeout=self._within, at=end)
        for place in in_turns([agent.name for agent, _ in self._asked]):
            agent, message = self._asked[place]
            cancelled = partial(self._results.__setitem__, place)
            task = loop.create_task(self._ask(agent, message, deadline, cancelled))
            self._tasks[task] = place
            task.add_done_callback(self._has_come)
        if not self._tasks:
            self._over(self)

    def _has_come(self, task: asyncio.Task[AgentResult]) -> None:
        place = self._tasks.pop(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._fault = self._fault or fault
            for other in self._tasks:
                other.cancel()
        else:
            if not task.cancelled():
                self._results[place] = task.result()
            self._come.append(self._results[place])
        self._news.set()
        if not self._tasks:
            self._over(self)

    async def _after(self, seen: int) -> AgentResult:
        """The result that came after so many others; see `__aiter__`."""
        self._begin()
        while seen == len(self._come):
            if not self._tasks:
                self._check()
                raise StopAsyncIteration
            await self._next_news()
        return self._come[seen]

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _check(self) -> None:
        """Looks at how it ended.

        Raises:
            NotEnoughResultsError: Too few have answered.
            BaseException: What went wrong besides.
        """
        if self._fault is not None:
            raise self._fault
        if self._is_closed:
            text = "the fan-out was closed before its end"
            raise RuntimeError(text)
        failed = [result for result in self._results if result.error is not None]
        answered = len(self._results) - len(failed)
        if answered < self._min_results:
            raise _not_enough(self._results, failed, self._min_results)


class _Iteration:
    """One walk through the results; leaving it is quiet."""

    def __init__(self, after: Callable[[int], Awaitable[AgentResult]]) -> None:
        self._after = after
        self._seen = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentResult:
        result = await self._after(self._seen)
        self._seen += 1
        return result


def in_turns(names: Sequence[str]) -> list[int]:
    """The places of names in an order in which each takes its turn, however often it is there."""
    turns: dict[str, int] = {}
    order: list[tuple[int, int]] = []
    for place, name in enumerate(names):
        turns[name] = turn = turns.get(name, -1) + 1
        order.append((turn, place))
    return [place for _, place in sorted(order)]


def _not_enough(
    results: list[AgentResult], failed: list[AgentResult], wanted: int
) -> NotEnoughResultsError:
    errors = [result.error for result in failed if result.error is not None]
    is_untouched = len(failed) == len(results) and all(e.executed is False for e in errors)
    why = [f"{one.agent}: {_reason(one.error)}" for one in failed if one.error is not None]
    answered = len(results) - len(failed)
    have = "has" if answered == 1 else "have"
    return NotEnoughResultsError(
        f"{answered} of {len(results)} {have} answered, and {wanted} should have; "
        f"{listed(why, _SHOWN)}",
        results=results,
        executed=False if is_untouched else None,
        transient=any(error.transient for error in errors),
    )


def _reason(error: A2AError) -> str:
    return one_line(error.message, _LONGEST_REASON) or type(error).__name__
