"""Metrics of OpenTelemetry: what they count, and that their attributes have no ids."""

import asyncio
import contextlib

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from holdfast import A2AError, OutcomeUnknownError, SqliteJournal, connect
from holdfast.integrations.opentelemetry import Telemetry
from holdfast.observe import WaitFinished
from holdfast.policies import (
    BreakerPolicy,
    ConcurrencyPolicy,
    HedgePolicy,
    ReconcilePolicy,
    Resilience,
    RetryPolicy,
)
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    completes,
    rate_limited,
    streams,
    unavailable,
)


class Measured:
    """A provider, and what it has measured so far."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def points(self, name):
        """Return the points of a metric: their attributes, without the agent, and the point."""
        found = []
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "holdfast"
                for metric in scope.metrics:
                    if metric.name == name:
                        found.extend(metric.data.data_points)
        return [
            ({k: v for k, v in point.attributes.items() if k != "gen_ai.agent.name"}, point)
            for point in found
        ]

    def values(self, name):
        return [(attributes, point.value) for attributes, point in self.points(name)]

    def total(self, name):
        return sum(value for _, value in self.values(name))

    def names(self):
        data = self._reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def measured():
    measured = Measured()
    yield measured
    measured.provider.shutdown()


def connected(agent, measured, **options):
    options.setdefault("engine", FakeNetwork(agent))
    telemetry = Telemetry(meter_provider=measured.provider)
    return connect(agent.url, telemetry=telemetry, **options)


async def test_an_operation_is_measured_with_its_stream_and_its_task(measured):
    agent = FakeAgent(streams(*"abc", every=2))
    async with connected(agent, measured) as client:
        assert (await client.ask("hi")).text == "abc"

    ((attributes, point),) = measured.points("a2a.client.operation.duration")
    assert attributes == {
        "holdfast.operation": "ask",
        "holdfast.outcome": "succeeded",
        "a2a.method.name": "SendStreamingMessage",
    }
    assert point.count == 1
    assert point.sum == pytest.approx(8, abs=0.5)
    assert point.explicit_bounds[-1] == 3600
    ((attributes, point),) = measured.points("a2a.client.task.duration")
    assert attributes == {"a2a.task.state": "TASK_STATE_COMPLETED"}
    assert point.sum == pytest.approx(8, abs=0.5)
    ((attributes, point),) = measured.points("a2a.client.stream.events")
    assert (attributes, point.sum) == ({"holdfast.operation": "ask"}, 6)
    ((_, point),) = measured.points("a2a.client.stream.time_to_first_event")
    assert point.sum < 2
    assert measured.total("holdfast.streams.open") == 0


async def test_an_open_stream_is_counted_until_it_is_closed(measured):
    agent = FakeAgent(streams(*"abc", every=2))
    async with connected(agent, measured) as client:
        async with client.stream_message("hi") as events:
            await anext(events)
            assert measured.total("holdfast.streams.open") == 1
        assert measured.total("holdfast.streams.open") == 0


async def test_failures_are_counted_by_what_the_client_does_about_them(measured):
    agent = FakeAgent(streams(*"abcd", every=1))
    agent.inject(rate_limited(retry_after=3), on="SendStreamingMessage")
    agent.inject(Cut(after_events=2))
    async with connected(agent, measured) as client:
        await client.ask("hi")

    retried = {
        "a2a.method.name": "SendStreamingMessage",
        "error.type": "RateLimitedError",
        "holdfast.wait.reason": "retry_after",
    }
    assert measured.values("holdfast.retries") == [(retried, 1)]
    assert measured.values("holdfast.reconnects") == [({}, 1)]
    attempts = {of["a2a.method.name"]: n for of, n in measured.values("holdfast.attempts")}
    assert attempts.pop("GetTask") > 0
    assert attempts == {"GetAgentCard": 1, "SendStreamingMessage": 2, "SubscribeToTask": 1}


async def test_the_tokens_of_a_retry_budget_are_shown_as_they_change(measured):
    agent = FakeAgent("42", streaming=False)
    rpc = {"holdfast.endpoint": "http://agent.test/rpc"}
    async with connected(agent, measured) as client:
        await client.send_message("hi")
        full = client.stats().endpoints[-1].retry_tokens
        assert (rpc, full) in measured.values("holdfast.retry.tokens")
        agent.inject(unavailable(), on="GetTask", times=2)
        await client.get_task("task-1")
        left = client.stats().endpoints[-1].retry_tokens
        assert left < full
        assert (rpc, left) in measured.values("holdfast.retry.tokens")


async def test_an_unknown_outcome_and_its_search_are_counted(measured):
    agent = FakeAgent("42", streaming=False, lists_tasks=False)
    agent.inject(Reset(), on="SendMessage")
    resilience = Resilience(reconcile=ReconcilePolicy(timeout=5))
    async with connected(agent, measured, resilience=resilience) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.ask("hi")
    assert measured.values("holdfast.outcome_unknown") == [({"holdfast.operation": "ask"}, 1)]
    assert measured.values("holdfast.reconciliations") == [({}, 1)]
    ((attributes, _),) = measured.points("a2a.client.operation.duration")
    assert (attributes["holdfast.outcome"], attributes["error.type"]) == (
        "failed",
        "OutcomeUnknownError",
    )


async def test_an_open_circuit_and_what_it_refuses_are_shown(measured):
    agent = FakeAgent("42", streaming=False)
    policies = Resilience(breaker=BreakerPolicy(failures=2), retry=RetryPolicy(max_retries=0))
    async with connected(agent, measured, resilience=policies) as client:
        await client.agent_card()
        agent.inject(Refuse(), on="SendMessage", times=2)
        for _ in range(3):
            with pytest.raises(A2AError):
                await client.send_message("hi")
        rpc = {"holdfast.endpoint": "http://agent.test/rpc"}
        card = {"holdfast.endpoint": "http://agent.test:80"}
        assert measured.values("holdfast.circuit.state") == [(card, 0), (rpc, 2)]
        assert measured.total("holdfast.circuit.refused") == 1
        await asyncio.sleep(600)
        await client.send_message("hi")
        assert measured.values("holdfast.circuit.state") == [(card, 0), (rpc, 0)]


async def test_the_state_of_a_circuit_is_what_the_last_client_has_seen(measured):
    agent, rpc = FakeAgent("42", streaming=False), {"holdfast.endpoint": "http://agent.test/rpc"}
    policies = Resilience(breaker=BreakerPolicy(failures=1), retry=RetryPolicy(max_retries=0))
    telemetry = Telemetry(meter_provider=measured.provider)
    for faults, state in ((0, 0), (1, 2), (0, 0)):
        options = {"engine": FakeNetwork(agent), "telemetry": telemetry}
        async with connect(agent.url, resilience=policies, **options) as client:
            agent.inject(Refuse(), on="SendMessage", times=faults) if faults else None
            with contextlib.suppress(A2AError):
                await client.send_message("hi")
        assert (rpc, state) in measured.values("holdfast.circuit.state")


async def test_the_count_of_unknown_outcomes_begins_at_0(measured):
    agent = FakeAgent("42", streaming=False, lists_tasks=False)
    async with connected(agent, measured) as client:
        for count in (0, 1, 1):
            if count != measured.total("holdfast.outcome_unknown"):
                agent.inject(Reset(), on="SendMessage")
            with contextlib.suppress(OutcomeUnknownError):
                await client.ask("hi", timeout=60)
            series = [({"holdfast.operation": "ask"}, count)]
            assert measured.values("holdfast.outcome_unknown") == series


async def test_the_queue_for_concurrency_slots_is_measured(measured):
    agent = FakeAgent(completes("42", after=5))
    policies = Resilience(concurrency=ConcurrencyPolicy(limit=1))
    waits = []

    def observe(observation):
        if isinstance(observation, WaitFinished) and observation.reason == "concurrency":
            waits.append(observation.duration)

    async with connected(agent, measured, resilience=policies, observers=[observe]) as client:
        calls = [asyncio.create_task(client.ask("hi")) for _ in range(3)]
        await asyncio.sleep(1)
        assert measured.total("holdfast.queue.waiting") == 2
        await asyncio.gather(*calls)
    assert measured.total("holdfast.queue.waiting") == 0
    ((_, point),) = measured.points("holdfast.queue.wait.duration")
    assert (point.count, point.sum) == (len(waits), pytest.approx(sum(waits)))
    assert point.sum > 10


async def test_hedges_are_counted(measured):
    class Latent(FakeNetwork):
        async def request(self, request):
            if b"GetTask" in request.body:
                await asyncio.sleep(seconds.pop(0))
            return await super().request(request)

    agent, seconds = FakeAgent("42"), [0.1, 60.0, 0.1]
    policies = Resilience(hedge=HedgePolicy(min_samples=1, max_extra=0.9))
    network = Latent(agent)
    async with connected(agent, measured, resilience=policies, engine=network) as client:
        task = await client.send_message("hi")
        for _ in range(2):
            await client.get_task(task.id)
    assert measured.values("holdfast.hedges") == [({"a2a.method.name": "GetTask"}, 1)]


async def test_calls_in_a_journal_are_counted_until_their_outcome_is_recorded(measured, tmp_path):
    agent = FakeAgent(completes("42", after=5))
    async with connected(agent, measured, journal=SqliteJournal(tmp_path / "calls.db")) as client:
        call = asyncio.create_task(client.ask("hi"))
        await asyncio.sleep(1)
        assert measured.total("holdfast.journal.open") == 1
        await call
    assert measured.total("holdfast.journal.open") == 0
    steps = {
        a["holdfast.journal.step"] for a, _ in measured.points("holdfast.journal.write.duration")
    }
    assert steps >= {"begin", "outcome"}


async def test_an_operation_that_requests_nothing_is_not_measured(measured):
    async with connected(FakeAgent(), measured) as client:
        for _ in range(3):
            await client.agent_card()  # the later ones come from the cache
    ((_, point),) = measured.points("a2a.client.operation.duration")
    assert point.count == 1


async def test_no_attribute_of_a_metric_is_an_id(measured, tmp_path):
    """Two runs of the same calls make the same time series."""

    def series():
        return {
            (name, tuple(sorted(point.attributes.items())))
            for name, metric in measured.names().items()
            for point in metric.data.data_points
        }

    agent = FakeAgent(streams(*"abcd", every=1))
    seen = []
    async with connected(agent, measured, journal=tmp_path / "calls.db") as client:
        for _ in range(2):
            agent.inject(rate_limited(retry_after=3), on="SendStreamingMessage")
            agent.inject(Cut(after_events=2))
            await client.ask("hi")
            seen.append(series())
    assert seen[0] == seen[1]


async def test_a_meter_that_raises_ends_no_call_and_is_reported_once(caplog):
    class Broken(MeterProvider):
        def get_meter(self, *args, **kwargs):
            meter = super().get_meter(*args, **kwargs)
            meter.create_counter = lambda *_a, **_k: Raises()
            return meter

    class Raises:
        def add(self, *_args):
            raise RuntimeError("out of order")

    agent = FakeAgent("42")
    telemetry = Telemetry(meter_provider=Broken([]))
    async with connect(agent.url, engine=FakeNetwork(agent), telemetry=telemetry) as client:
        assert [(await client.ask("hi")).text for _ in range(2)] == ["42", "42"]
    (warning,) = [each for each in caplog.records if "out of order" in each.getMessage()]
    assert warning.levelname == "WARNING"
