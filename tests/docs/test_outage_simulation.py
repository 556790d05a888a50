"""The simulation behind the figures of an outage: it is Holdfast's policies that it measures."""

import importlib
import json
import math
from dataclasses import replace

import pytest
from tests.kit.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
SEEDS = (0, 1)


@pytest.fixture
def outage(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("outage")
    monkeypatch.setattr(module, "AFTERWARDS", 20.0)
    return module


def outcomes(outage, strategy, *, kind="stalling", load=0.8, seconds=15.0):
    """A few short days of few clients."""
    few = outage.Outage("few", load, kind, seconds=seconds, clients=20)
    strategy = next(one for one in outage.STRATEGIES if one.name == strategy)
    return [outage.simulate((few, strategy, seed)) for seed in SEEDS]


@pytest.mark.parametrize("kind", ["stalling", "refusing"])
def test_without_retries_each_call_is_one_attempt(outage, kind):
    assert [one.amplification for one in outcomes(outage, "no retry", kind=kind)] == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["stalling", "refusing"])
def test_retries_alone_make_an_outage_worse_and_keep_it_up(outage, kind):
    for one in outcomes(outage, "3 retries", kind=kind):
        assert one.amplification > 2
        assert one.recovery == math.inf


@pytest.mark.parametrize("kind", ["stalling", "refusing"])
def test_with_a_budget_retries_all_but_stop(outage, kind):
    for one in outcomes(outage, "3 retries, budget", kind=kind):
        assert 1 < one.amplification <= 1.05
        assert one.detection == math.inf


@pytest.mark.parametrize("kind", ["stalling", "refusing"])
@pytest.mark.parametrize("load", [0.8, 0.9])
def test_with_a_breaker_the_server_is_relieved_and_recovers(outage, kind, load):
    for one in outcomes(outage, "3 retries, budget, breaker", kind=kind, load=load):
        assert one.amplification <= 0.5
        assert one.detection < 3
        assert one.recovery <= 10
        assert set(one.goodput[-5:]) == {1.0}


def test_a_call_that_was_tried_waits_for_its_circuit(outage):
    first_second = int(outage.WARM_UP)
    for one in outcomes(outage, "3 retries, budget, breaker", kind="refusing", seconds=3.0):
        assert one.goodput[first_second] > 0
        assert one.goodput[first_second + 2] == 0  # begun later, and refused at once


@pytest.mark.parametrize("strategy", ["no retry", "3 retries, budget, breaker"])
def test_before_the_outage_all_calls_go_well(outage, strategy):
    for one in outcomes(outage, strategy, load=0.5):
        assert set(one.goodput[: int(outage.WARM_UP) - 1]) == {1.0}


def test_a_seed_is_a_run(outage):
    first, second = (outcomes(outage, "3 retries, budget, breaker") for _ in range(2))
    assert first == second
    assert first[0] != first[1]


def test_what_is_promised_and_missed_is_named(outage):
    stalling, *_, few_calls = outage.OUTAGES
    *_, budget, breaker = outage.STRATEGIES
    well = outage.Outcome(amplification=0.5, detection=1.0, recovery=10.0, goodput=())
    loud, slow = replace(well, amplification=1.06), replace(well, recovery=11.0)

    assert outage.failures(stalling, breaker, [well]) == []
    assert outage.failures(stalling, budget, [well, slow]) == []
    assert outage.failures(stalling, budget, [well, loud]) == [
        "missed: 15 s stalling, 80 % load, 3 retries, budget: amplification 1.06"
    ]
    assert outage.failures(stalling, breaker, [well, slow]) == [
        "missed: 15 s stalling, 80 % load, 3 retries, budget, breaker: recovery 11.0 s"
    ]
    assert outage.failures(few_calls, breaker, [loud, slow]) == []


def test_curves_of_the_picture_are_those_of_the_simulation(outage):
    shown = json.loads((ROOT / "docs" / "pictures" / "outage_curves.json").read_text())
    assert list(shown) == [each.name for each in outage.OUTAGES]
    strategies = [each.name for each in outage.STRATEGIES]
    assert all(list(lines) == strategies for lines in shown.values())

    goodput = (1.0, 0.5, *[0.0] * 150)
    made = json.loads(outage.curves({("o", "s"): [outage.Outcome(1, 1, 1, goodput)] * 2}))

    assert made == {"o": {"s": [100, 50, *[0] * 98]}}
    lengths = {len(line) for lines in shown.values() for line in lines.values()}
    assert lengths == {len(made["o"]["s"])}
