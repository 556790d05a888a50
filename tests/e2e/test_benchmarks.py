"""The benchmarks run: each is started with its least effort, and its figures are not looked at."""

import os
import subprocess
import sys

import pytest
from tests.kit.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"

LIMIT = 120
"""Seconds that one may take, on a machine with much else to do; alone it takes a few."""

LEAST = {
    "command_line.py": ["--least"],
    "dead_agent.py": ["--fan-outs=10"],
    "duplicates.py": ["--calls=20"],
    "fan_out.py": ["--agents=100", "--rounds=2", "--processes=1"],
    "hedging.py": ["--least"],
    "journal_cost.py": ["--rounds=2", "--seconds=0.05"],
    "run.py": ["--least"],
    "walk.py": [],
}
"""The options of the least effort."""

STARTED_ELSEWHERE = {
    "ag2_caller.py": "side_by_side.py, which tests/docs/test_side_by_side.py starts",
    "aiohttp_worker.py": "run.py",
    "fan_out_agents.py": "fan_out.py",
    "holdfast_caller.py": "side_by_side.py",
    "holdfast_worker.py": "run.py",
    "outage.py": "tests/docs/test_outage_simulation.py",
    "sdk_caller.py": "side_by_side.py",
    "sdk_worker.py": "run.py, where it has the environment of the SDK",
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


def test_each_benchmark_is_started_by_a_test():
    programs = {
        path.name for path in BENCHMARKS.glob("*.py") if "\nif __name__ ==" in path.read_text()
    }

    assert programs == set(LEAST) | set(STARTED_ELSEWHERE)
