"""benchmarks/side_by_side.py makes the faults and docs/explanation/side-by-side.md."""

import importlib
import re
import subprocess
import sys

import pytest
from tests.kit.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
PAGE = ROOT / "docs" / "explanation" / "side-by-side.md"

LIMIT = 120
"""Seconds after which it hangs."""


@pytest.fixture
def side_by_side(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("side_by_side")


def tables(text):
    """Heading and rows of each table, by the heading above it."""
    found = {}
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        name, *lines = section.splitlines()
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in lines
            if line.startswith("| ")
        ]
        if rows:
            found[name] = [rows[0], *rows[2:]]
    return found


def outcome(side_by_side, text="", errors=(), executions=1):
    return side_by_side.Outcome(
        errors=list(errors), text=text, seconds=1.0, executions=executions, requests=1
    )


@pytest.mark.sdk
@pytest.mark.real_time
def test_the_same_faults_reach_the_sdk_and_holdfast(tmp_path, side_by_side):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{side_by_side.BEGIN}\nof yesterday\n{side_by_side.END}\nafter\n")
    faults = [
        fault
        for fault in side_by_side.faults(side_by_side.CHUNKS)
        if not fault.name.startswith("stall")
    ]

    subprocess.run(
        [
            *(sys.executable, BENCHMARKS / "side_by_side.py"),
            *("--calls=1", "--pause=0.02", "--search-timeout=0.5", "--clients=a2a-sdk;Holdfast"),
            f"--faults={';'.join(fault.name for fault in faults)}",
            f"--page={page}",
        ],
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )

    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "of yesterday" not in text
    rows_by_fault = {
        heading: {client: figures for client, *figures in rows}
        for heading, [_, *rows] in tables(text).items()
    }
    columns = [name.lower() for name in side_by_side.COLUMNS]
    lost = columns.index("text lost")
    assert rows_by_fault.pop("All faults together")["Holdfast"][1:5] == ["-"] * 4
    assert len(rows_by_fault) == len(faults)
    successes = {
        client: [heading for heading, rows in rows_by_fault.items() if rows[client][0] == "1 of 1"]
        for client in ("a2a-sdk", "Holdfast")
    }
    assert successes == {
        "a2a-sdk": ["No fault", "Stream ended early in good order"],
        "Holdfast": [
            "No fault",
            "Connection refused",
            "Reset after execution, the reply lost",
            "429, Retry-After: 1",
            "503, Retry-After: 1",
            "Stream cut by a reset",
            "Stream ended early in good order",
            "Stream cut just before its end",
        ],
    }
    assert rows_by_fault["Stream ended early in good order"]["a2a-sdk"][lost] == "1"
    for heading in ("Reset before execution", "Stream cut by a reset"):
        assert (
            "ReadError" in rows_by_fault[heading]["a2a-sdk"][-1]
        )  # an end of file is another one


def test_the_page_has_what_the_script_makes(side_by_side):
    on_page = tables(PAGE.read_text().partition(side_by_side.BEGIN)[2])

    columns = list(side_by_side.COLUMNS)
    clients = [client.name for client in side_by_side.CLIENTS]
    faults = side_by_side.faults(side_by_side.CHUNKS)
    names = [fault.name[0].upper() + fault.name[1:] for fault in faults]
    assert list(on_page) == ["All faults together", *names]
    for name, [heading, *rows] in on_page.items():
        assert [row[0] for row in rows] == clients
        if name == "All faults together":
            assert heading == ["client", *columns[:-3]]
        else:
            assert heading == ["client", *columns, "errors of failed calls"]


def test_text_is_compared_only_where_there_was_no_error(side_by_side):
    text = side_by_side.WHOLE
    cases = {
        "whole": outcome(side_by_side, text),
        "short": outcome(side_by_side, text.replace("chunk 2\n", "")),
        "twice": outcome(side_by_side, text + "chunk 2\n"),
        "mixed": outcome(side_by_side, text.replace("chunk 2\n", "") + "chunk 2\n"),
        "nothing": outcome(side_by_side),
        "failed": outcome(side_by_side, "chunk 2\nchunk 2\n", errors=[["ReadError", "cut"]]),
    }

    assert [name for name, one in cases.items() if one.has_lost] == ["short", "mixed", "nothing"]
    assert [name for name, one in cases.items() if one.has_repeated] == ["twice"]


def test_a_fault_that_did_not_happen_is_an_error(side_by_side):
    paths = importlib.import_module("faulty_paths")
    [client] = [one for one in side_by_side.CLIENTS if one.name == "Holdfast"]
    good, executed_twice = (
        outcome(side_by_side, side_by_side.WHOLE, executions=times) for times in (1, 2)
    )
    for fault in side_by_side.faults(side_by_side.CHUNKS):
        path = paths.Path("call-1", fault, tried=1, accepted=1)
        if fault == paths.NO_FAULT:
            side_by_side.check(client, path, good)
            bad = executed_twice
        else:
            bad = good
        with pytest.raises(RuntimeError, match=r"Holdfast.*call-1.*did not happen"):
            side_by_side.check(client, path, bad)
