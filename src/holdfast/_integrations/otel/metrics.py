"""Metrics of what clients do, made from observations.

Their attributes are names of agents, methods and errors: never an id, and nothing of a message, so
that the number of time series stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import Observation as Measurement

from holdfast._integrations.otel.attributes import STREAMING_METHODS, type_of
from holdfast.errors import CircuitOpenError, OutcomeUnknownError
from holdfast.observe import (
    AttemptStarted,
    CircuitChanged,
    HedgeStarted,
    JournalWritten,
    OperationFinished,
    ReconcileStarted,
    Reconnected,
    RequestFinished,
    RequestStarted,
    RetryScheduled,
    WaitFinished,
    WaitStarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.metrics import CallbackOptions, Meter

    from holdfast.observe import BreakerState, Observation

__all__ = ["Metrics"]

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600)
"""Buckets of what an agent does: it may take minutes, and tasks take hours."""

_SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""Buckets of what a disk or a database does."""

_EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

_MAX_ENDPOINTS = 10_000
"""Largest number of endpoints in a gauge; the one that was seen first is dropped."""

_STATES: dict[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}


class Metrics:
    """The instruments, and what they measure that has not ended.

    Args:
        meter: Makes the instruments.

    Attributes:
        handlers: For each class of observations, the method that measures it.
    """

    def __init__(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(
            "a2a.client.operation.duration",
            "s",
            "Duration of operations, such as ask, until their result or the end of their stream.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._first_event = meter.create_histogram(
            "a2a.client.stream.time_to_first_event",
            "s",
            "Time from the start of an operation to the first event of its stream.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._events = meter.create_histogram(
            "a2a.client.stream.events",
            "{event}",
            "Number of events of a stream.",
            explicit_bucket_boundaries_advisory=_EVENTS,
        )
        self._task = meter.create_histogram(
            "a2a.client.task.duration",
            "s",
            "Time from sending a message to the end of its task.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._attempts = meter.create_counter(
            "holdfast.attempts", "{attempt}", "Attempts of requests."
        )
        self._retries = meter.create_counter(
            "holdfast.retries", "{attempt}", "Attempts that repeat a failed one."
        )
        self._reconnects = meter.create_counter(
            "holdfast.reconnects", "{reconnect}", "Streams that were cut and resumed."
        )
        self._hedges = meter.create_counter(
            "holdfast.hedges", "{attempt}", "Second attempts beside a slow one."
        )
        self._searches = meter.create_counter(
            "holdfast.reconciliations", "{search}", "Searches for a message with a lost reply."
        )
        self._unknown = meter.create_counter(
            "holdfast.outcome_unknown",
            "{operation}",
            "Operations that failed with an unknown outcome: the agent may have executed them.",
        )
        self._refused = meter.create_counter(
            "holdfast.circuit.refused", "{request}", "Requests that an open circuit refused."
        )
        self._circuits, self._tokens = _LastValues(), _LastValues()
        meter.create_observable_gauge(
            "holdfast.circuit.state",
            [self._circuits.observe],
            "1",
            "State of a circuit: 0 closed, 1 half-open, 2 open.",
        )
        meter.create_observable_gauge(
            "holdfast.retry.tokens",
            [self._tokens.observe],
            "{token}",
            "Tokens left in the retry budget of an endpoint.",
        )
        self._open_streams = meter.create_up_down_counter(
            "holdfast.streams.open", "{stream}", "Streaming requests in progress."
        )
        self._waiting = meter.create_up_down_counter(
            "holdfast.queue.waiting", "{request}", "Requests that wait for a concurrency slot."
        )
        self._waited = meter.create_histogram(
            "holdfast.queue.wait.duration",
            "s",
            "Time that a request waited for a concurrency slot.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._open_calls = meter.create_up_down_counter(
            "holdfast.journal.open",
            "{call}",
            "Calls in progress that a journal has recorded without an outcome.",
        )
        self._written = meter.create_histogram(
            "holdfast.journal.write.duration",
            "s",
            "Duration of the writes to the journal.",
            explicit_bucket_boundaries_advisory=_SHORT_SECONDS,
        )
        self._counts_unknown: set[tuple[str, str]] = set()
        self._journaled: dict[str, dict[str, Any]] = {}

        self.handlers: Mapping[type[Observation], Callable[[Any], None]] = {
            OperationFinished: self._end_operation,
            RequestStarted: self._start_request,
            RequestFinished: self._end_request,
            AttemptStarted: self._count_attempt,
            RetryScheduled: self._count_retry,
            Reconnected: self._count_reconnect,
            HedgeStarted: self._count_hedge,
            ReconcileStarted: self._count_search,
            CircuitChanged: self._set_circuit,
            WaitStarted: self._start_wait,
            WaitFinished: self._end_wait,
            JournalWritten: self._measure_journal,
        }

    # ── Operations and requests ──────────────────────────────────────────────────────────────

    def _end_operation(self, finished: OperationFinished) -> None:
        if (agent := self._journaled.pop(finished.operation_id, None)) is not None:
            self._open_calls.add(-1, agent)
        if not finished.requests and finished.error is None:
            return  # nothing was requested: the result was in the journal, for example
        attributes = _of_agent(finished) | {
            "holdfast.operation": finished.operation,
            "holdfast.outcome": finished.outcome,
        }
        if finished.method is not None:
            attributes["a2a.method.name"] = finished.method
        if finished.error is not None:
            attributes["error.type"] = type_of(finished.error)
        self._duration.record(finished.duration, attributes)
        if finished.time_to_first_event is not None:
            self._first_event.record(finished.time_to_first_event, _of_operation(finished))
            self._events.record(finished.events, _of_operation(finished))
        state = finished.state
        if finished.message_id is not None and state is not None and state.is_terminal:
            attributes = _of_agent(finished) | {"a2a.task.state": state.value}
            self._task.record(finished.duration, attributes)
        self._count_unknown(finished)

    def _count_unknown(self, finished: OperationFinished) -> None:
        """Count an unknown outcome; the series begins at 0, so that its first increase is seen."""
        place = finished.agent, finished.operation
        is_unknown = isinstance(finished.error, OutcomeUnknownError)
        if finished.message_id is None or (place in self._counts_unknown and not is_unknown):
            return
        if len(self._counts_unknown) < _MAX_ENDPOINTS:
            self._counts_unknown.add(place)
        self._unknown.add(int(is_unknown), _of_operation(finished))

    def _start_request(self, started: RequestStarted) -> None:
        if started.method in STREAMING_METHODS:
            self._open_streams.add(1, _of_agent(started))

    def _end_request(self, finished: RequestFinished) -> None:
        if finished.method in STREAMING_METHODS:
            self._open_streams.add(-1, _of_agent(finished))
        if not finished.attempts and isinstance(finished.error, CircuitOpenError):
            self._refused.add(1, _of_request(finished))
        if finished.attempts and finished.error is None:
            self._circuits.set(finished, _STATES["closed"])
        self._set_tokens(finished)

    def _count_attempt(self, started: AttemptStarted) -> None:
        self._attempts.add(1, _of_request(started))

    def _count_retry(self, scheduled: RetryScheduled) -> None:
        facts = {"error.type": type_of(scheduled.error), "holdfast.wait.reason": scheduled.reason}
        self._retries.add(1, _of_request(scheduled) | facts)
        self._set_tokens(scheduled)

    def _count_reconnect(self, reconnected: Reconnected) -> None:
        self._reconnects.add(1, _of_agent(reconnected))

    def _count_hedge(self, started: HedgeStarted) -> None:
        self._hedges.add(1, _of_request(started))

    def _count_search(self, started: ReconcileStarted) -> None:
        self._searches.add(1, _of_agent(started))

    # ── Limits ───────────────────────────────────────────────────────────────────────────────

    def _set_circuit(self, changed: CircuitChanged) -> None:
        self._circuits.set(changed, _STATES[changed.state])

    def _set_tokens(self, observation: RequestFinished | RetryScheduled) -> None:
        if observation.retry_tokens is not None:
            self._tokens.set(observation, observation.retry_tokens)

    def _start_wait(self, started: WaitStarted) -> None:
        if started.reason == "concurrency":
            self._waiting.add(1, _of_agent(started))

    def _end_wait(self, finished: WaitFinished) -> None:
        if finished.reason == "concurrency":
            self._waiting.add(-1, _of_agent(finished))
            self._waited.record(finished.duration, _of_agent(finished))

    # ── The journal ──────────────────────────────────────────────────────────────────────────

    def _measure_journal(self, written: JournalWritten) -> None:
        attributes: dict[str, Any] = {"holdfast.journal.step": written.step}
        if written.error is not None:
            attributes["error.type"] = type_of(written.error)
        self._written.record(written.duration, _of_agent(written) | attributes)
        if written.error is not None:
            return
        if written.step in {"begin", "claim"} and written.operation_id not in self._journaled:
            self._journaled[written.operation_id] = agent = _of_agent(written)
            self._open_calls.add(1, agent)
        elif written.step in {"outcome", "release"}:
            known = self._journaled.pop(written.operation_id, None)
            if known is not None:
                self._open_calls.add(-1, known)


class _LastValues:
    """The last value of each endpoint, for a gauge that is read when metrics are exported.

    A gauge that is written costs each request more, and exporters with delta temporality show it
    once, and not again until its next change.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], float] = {}

    def set(self, observation: Observation, value: float) -> None:
        """Set the value of the endpoint of an observation."""
        if observation.endpoint is not None:
            self._values[observation.agent, observation.endpoint] = value
            if len(self._values) > _MAX_ENDPOINTS:
                del self._values[next(iter(self._values))]

    def observe(self, _options: CallbackOptions) -> list[Measurement]:
        """Return all values; called in the thread of an exporter."""
        return [
            Measurement(value, {"gen_ai.agent.name": agent, "holdfast.endpoint": endpoint})
            for (agent, endpoint), value in [*self._values.items()]
        ]


def _of_agent(observation: Observation) -> dict[str, Any]:
    return {"gen_ai.agent.name": observation.agent}


def _of_operation(finished: OperationFinished) -> dict[str, Any]:
    return _of_agent(finished) | {"holdfast.operation": finished.operation}


def _of_request(observation: Observation) -> dict[str, Any]:
    return _of_agent(observation) | {"a2a.method.name": observation.method or ""}
