"""The rules that tests hold: ``python -m tests.rules`` writes which tests hold which.

A test says which rules it holds by ``@pytest.mark.rule("S05", "D01")``. An id is that of

- a scenario (S), in which users of some A2A client were hurt;
- a promise of SECURITY.md (P), whose table has its id and its sentence;
- a property of the design (D).

The index is `INDEX`; the last column of the table in SECURITY.md is written from the markers, too.
Both are made from the source of the tests, without running them.
"""

import ast
import functools
import re
from collections import defaultdict

from tests.kit.paths import ROOT

__all__ = ["INDEX", "PAGE", "RULES", "TESTS", "holders", "index", "page", "promises"]

TESTS = ROOT / "tests"
INDEX = TESTS / "RULES.md"
PAGE = ROOT / "SECURITY.md"

SCENARIOS = {
    "S01": "An agent whose first byte takes ten seconds is waited for with the default timeouts",
    "S02": "Ten seconds between chunks, over four minutes, cut no stream",
    "S03": "A stream that ends while its task works is resumed, and not taken for a finished one",
    "S04": "A task that ended while the client was away is fetched with GetTask",
    "S05": "A lost reply makes no second task: the task is found, or the error names the message",
    "S06": "Refused connections, then success: one task, one message id, every attempt listed",
    "S07": "A rate-limited card is waited for as long as Retry-After says; a forbidden one fails",
    "S08": "A 401 with a JSON body on a stream is an authentication error with status and body",
    "S09": "An RPC error in place of a stream is that error, and not a stream without events",
    "S10": "A FAILED task without artifacts raises an error with the reason and the task",
    "S11": "Comment lines of a stream are ignored, and count as signs of life",
    "S12": "A full Task at the end of a stream is accepted, and is no second end",
    "S13": "A status message that is null or has no parts is read",
    "S14": "Appended chunks make up the text once; a chunk that does not append replaces it",
    "S15": "A reply to INPUT_REQUIRED names its task; after the end of the task, the context only",
    "S16": "An authorization that is given out of band is noticed, and the task watched on",
    "S17": "A cancel that is not confirmed is polled until its deadline, which the error names",
    "S18": "Leaving a stream frees its socket and does not cancel the remote task",
    "S19": "A card without a protocol version works",
    "S20": "A card of protocol 0.3 works, as an address, a file or a dict",
    "S21": "A card at the older path is found; a 401 at the first path ends the search",
    "S22": "The address of an endpoint is used exactly as the card writes it",
    "S23": "Credentials do not follow a card to another origin; the error says how to allow it",
    "S24": "Credentials do not follow a redirect to another origin",
    "S25": "One client serves several event loops, one after the other",
    "S26": "An integer in a data part stays an integer",
    "S27": "A wait that ends names the deadline that ended it, and carries the last task",
    "S28": "Calls cancelled at random leave every slot free",
    "S29": "A retry that would begin after the deadline is not waited for: it fails at once",
    "S30": "An HTML page of a proxy is a typed error with its status and an excerpt",
}
"""What hurt users of other clients; each has a thread that tells of it."""

DESIGN = {
    "D01": "A message is executed at most once, unless the caller asked to send it again",
    "D02": "A stream ends where the protocol says so; an end of file anywhere else is a cut",
    "D03": "However a stream is cut, its text is neither lost nor repeated, and stays in order",
    "D04": "A deadline is kept to the moment, and covers queueing, backoff, polling and streaming",
    "D05": "Whatever is cancelled releases each slot, permit, socket and task exactly once",
    "D06": "`executed` of an error is False only if the agent cannot have executed the message",
    "D07": "Cancelling a call is neutral: no breaker and no budget counts it, no task is canceled",
    "D08": "No retry comes earlier than the server asked for, and none beyond the budget",
    "D09": "An open circuit admits one probe; results of an older generation change nothing",
    "D10": "A call that a process left behind is pending, and is not sent again by resuming it",
    "D11": "An error keeps its facts when it is pickled, copied, or written to a reply and read",
    "D12": "Protocols 1.0 and 0.3, and all bindings, look the same to the caller",
}
"""What the design promises of calls and streams."""


def promises(text=None):
    """The rows of the table of promises by their ids: promise, how, and the tests."""
    rows = (PAGE.read_text() if text is None else text).splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return {row[0]: row[1:] for row in cells if row and re.fullmatch(r"P\d\d", row[0])}


RULES = {**SCENARIOS, **{name: row[0] for name, row in promises().items()}, **DESIGN}


def marks_of(decorators):
    """The ids of the markers among some decorators."""
    for each in decorators:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.rule":
            yield from (argument.value for argument in each.args)


@functools.cache
def holders():
    """The tests that hold each rule, as files and the names of their tests."""
    found = defaultdict(lambda: defaultdict(list))
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text()
        if "mark.rule(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for name in marks_of(node.decorator_list):
                    found[name][path.relative_to(TESTS).as_posix()].append(node.name)
    return found


def index(held):
    """The page that says which tests hold which rule."""
    parts = (("Scenarios", "S"), ("Promises of SECURITY.md", "P"), ("Properties", "D"))
    lines = [
        "# Rules and their tests",
        "",
        "Written by `python -m tests.rules` from the tests' markers.",
    ]
    for heading, letter in parts:
        lines += ["", f"## {heading}"]
        for name in (each for each in RULES if each.startswith(letter)):
            lines += ["", f"**{name}** {RULES[name]}", ""]
            for path, tests in held[name].items():
                lines += [f"- `{path}`: {', '.join(f'`{test}`' for test in tests)}"]
    return "\n".join(lines) + "\n"


def page(held):
    """SECURITY.md with the files of the tests in the last column of its table."""
    lines = PAGE.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        if found := re.match(r"\| (P\d\d) \|", line):
            files = ", ".join(f"`{path}`" for path in held[found[1]])
            kept = re.split(r"(?<!\\)\|", line)[:-2]
            lines[number] = "|".join([*kept, f" {files} ", "\n"])
    return "".join(lines)


if __name__ == "__main__":
    held = holders()
    INDEX.write_text(index(held))
    PAGE.write_text(page(held))
