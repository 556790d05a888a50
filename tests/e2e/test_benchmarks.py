"""The benchmarks run: each is started with its least effort, and its figures are not looked at."""

import json
import os
import subprocess
import sys

import pytest
from tests.kit.paths import ROOT
from tests.kit.real_agents import sdk_python

BENCHMARKS = ROOT / "benchmarks"

LIMIT = 120
"""Seconds that one may take, on a machine with much else to do; alone it takes a few."""

LEAST = {
    "command_line.py": ["--least"],
    "dead_agent.py": ["--fan-outs=10"],
    "duplicates.py": ["--calls=20"],
    "fan_out.py": ["--agents=100", "--rounds=2", "--processes=1"],
    "hedging.py": ["--least"],
    "telemetry.py": ["--rounds", "1"],
    "journals.py": ["--rounds=1", "--seconds=0.05", "--records", "10", "20", "--processes=1"],
    "journal_cost.py": ["--rounds=2", "--seconds=0.05"],
    "outage.py": ["--least"],
    "run.py": ["--least"],
    "shared_runs.py": ["--items=20", "--recorded=10", "--results", "--work=0"],
    "walk.py": [],
}
"""The options of the least effort."""

STARTED_ELSEWHERE = {
    "ag2_caller.py": "side_by_side.py, which tests/docs/test_side_by_side.py starts",
    "aiohttp_worker.py": "run.py",
    "fan_out_agents.py": "fan_out.py",
    "holdfast_caller.py": "side_by_side.py",
    "holdfast_worker.py": "run.py",
    "journal_worker.py": "journals.py",
    "telemetry_worker.py": "telemetry.py",
    "sdk_caller.py": "side_by_side.py",
    "sdk_worker.py": "run.py where it has the environment of the SDK, and a test below",
    "side_by_side.py": "tests/docs/test_side_by_side.py",
    "static_agent.py": "run.py",
}
"""Programs that another program or test starts."""


@pytest.mark.real_time
@pytest.mark.parametrize("name", LEAST)
def test_a_benchmark_runs_with_its_least_effort(name, tmp_path):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / name, *LEAST[name]],
        env={**os.environ, "HOLDFAST_SDK_PYTHON": ""},
        cwd=tmp_path,
        timeout=LIMIT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 3
    assert "Traceback" not in done.stderr


TEXT = "20 kB"
JOBS = [
    {"job": "versions"},
    {"job": "rate", "in_flight": 1, "seconds": 0.01},
    {"job": "stream", "text": TEXT, "seconds": 0.01},
    {"job": "decode", "seconds": 0.01},
]


@pytest.mark.sdk
@pytest.mark.real_time
@pytest.mark.parametrize("argument", ["task", "holdfast"])
def test_sdk_worker_does_its_jobs(argument):
    python = sys.executable if argument == "holdfast" else sdk_python()
    with subprocess.Popen(
        [sys.executable, BENCHMARKS / "static_agent.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        jobs = [{"job": "open", "url": agent.stdout.readline().strip()}, *JOBS]
        done = subprocess.run(
            [python, BENCHMARKS / "sdk_worker.py", argument],
            input="".join(f"{json.dumps(job)}\n" for job in jobs),
            timeout=LIMIT,
            capture_output=True,
            text=True,
            check=False,
        )
        agent.stdin.close()

    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    opened, versions, rate, stream, decode = results
    assert opened == {}
    assert "a2a-sdk" in versions
    assert rate["calls"] >= 1
    assert stream["events"] >= 1
    assert decode["protobuf json_format"]


def test_each_benchmark_is_started_by_a_test():
    programs = {
        path.name for path in BENCHMARKS.glob("*.py") if "\nif __name__ ==" in path.read_text()
    }

    assert programs == set(LEAST) | set(STARTED_ELSEWHERE)
