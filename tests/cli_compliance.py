"""Make the compliance report of the command line: ``python -m tests.cli_compliance``.

It runs the tests of the command line whose names contain the identifier of a requirement, as
``test_send_001_…`` contains that of ``A2ACLI_SEND_001``, records their outcomes beside this file,
and writes the report from these. A requirement passes if its tests passed, and passes partially
where `PARTIAL` says what is missing. The forms of the report are those of the a2a-cli
specification (COMPLIANCE.md): a page to read, and one YAML file.
"""

import ast
import functools
import json
import sys
from collections import Counter
from typing import NamedTuple

import pytest
from tests.kit.paths import ROOT

from holdfast import __version__
from holdfast._wire.bindings import BINDINGS, PROTOCOL_VERSIONS

TESTS = sorted([*ROOT.glob("tests/cli/test_*.py"), *ROOT.glob("tests/e2e/test_grpc.py")])
PAGE = ROOT / "docs" / "reference" / "cli-compliance.md"
FILE = ROOT / "docs" / "reference" / "cli-compliance.yaml"

SPECIFICATION = "0.2"
REVISION = "2026-08-17"
COMMIT = "0ea888225b77dede6f5daa3a448fb7e7c53679db"
"""The commit of the specification's repository that the requirements are measured against."""
MEASURED = "2026-11-23"
OUTCOMES = ROOT / "tests" / "cli_compliance_outcomes.json"
"""The outcomes of the last run of the tests: passed, failed, and passed at a live agent."""

NOT_BUILT = "not claimed: not built"
MARKS = {"pass": "✅ Pass", "partial": "◐ Partial", "fail": "❌ Fail", "na": "— N/A"}


REMARKS = {
    "CARD_GET_001": "the card is cached between commands as its headers allow, for a day at most; "
    "not if it was fetched with credentials or over plain http from another machine",
    "CONFIG_002": "a found file may only name the agent, set the form of the output, and make a "
    "command stricter. This is stricter than §8.3; see configuration.md",
    "VER_001": "the card decides the version, 0.3 included, with a warning; --a2a-version 1.0 "
    "refuses 0.3. The text contradicts itself: this commit removed the minimum of 1.0 from §13.2, "
    "but not from §6.5 and this row of the registry. holdfast follows §13.2: the registry says "
    "that the section which a row cites governs the row, and §6 that §7 to §14 are operative",
    "DEFAULT_001": "the version follows §13.2, as in A2ACLI_VER_001",
    "DEMO_SERVER_001": "server and demo-server run a demo that echoes on request. §7.1 names "
    "'echo-demo, proxying or command execution', the registry 'demo-server / mock agent mode'. "
    "This is read as a choice, and the first is built; §3 leaves the behaviour of servers open",
    "AUTH_008": "a server that --credential-origin names gets a token if it requests one",
}
"""Notes on requirements that are met."""

PARTIAL: dict[str, str] = {}
"""What is missing from requirements that are met in part."""


OF_THE_TOOL = frozenset({"CLI_001", "CLI_002", "SKILL_001", "SKILL_002"})
"""Requirements on the tool alone, without an agent."""


class Requirement(NamedTuple):
    """A requirement in our words."""

    name: str
    tier: int
    spec: str
    what: str

    @property
    def identifier(self) -> str:
        return f"A2ACLI_{self.name}"

    @property
    def area(self) -> str:
        return self.name.rpartition("_")[0]

    @property
    def status(self) -> str:
        told = outcomes().get(self.identifier)
        if told is None or told["failed"] or not told["passed"]:
            return "fail"
        return "partial" if self.name in PARTIAL else "pass"

    @property
    def note(self) -> str | None:
        notes = {"pass": REMARKS, "partial": PARTIAL}.get(self.status)
        return NOT_BUILT if notes is None else notes.get(self.name)

    @property
    def live(self) -> int:
        """How many of its tests passed at the live agent."""
        return outcomes().get(self.identifier, {}).get("live", 0)


def one(name, spec, what):
    return Requirement(name, 1, spec, what)


def two(name, spec, what):
    return Requirement(name, 2, spec, what)


def three(name, spec, what):
    return Requirement(name, 3, spec, what)


REQUIREMENTS = (
    one("CARD_GET_001", "§10.1, §13", "card get takes a host, URL or file; selects a transport"),
    one("SEND_001", "§10.2", "send starts an interaction"),
    one("SEND_002", "§10.2, §6.5", "send waits; --async gives the identifiers at once"),
    one("SEND_003", "§10.2, §9.2", "--stream follows events; a bare Message ends it cleanly"),
    one("SEND_004", "§10.2", "artifacts are shown with all their parts"),
    one("SEND_005", "§10.2", "--media-type is for the part before it; otherwise it is guessed"),
    one("SEND_006", "§10.2", "--text, --file and --data can be repeated and keep their order"),
    one("TASK_GET_001", "§10.3", "task get shows state, artifacts and history"),
    one("TASK_CANCEL_001", "§10.4", "task cancel is idempotent and reports the resulting state"),
    one("INTERACT_001", "§8.1", "--context-id continues a context"),
    one("INTERACT_002", "§8.1", "--task-id continues a task; a refusal makes no new task"),
    one("INTERACT_003", "§4.1, §4", "the tool invents no identifiers of the server"),
    one("INTERACT_004", "§8.2", "identifiers and state to copy, and the next command"),
    one("INTERACT_005", "§6.3, §4.1, §8.3", "no state is kept between two commands"),
    one("TASK_POLL_001", "§9.3", "task get reads a task once, or with --wait until it settles"),
    one("TASK_POLL_002", "§9.3", "--poll-interval, --timeout, backoff, and Ctrl-C loses no task"),
    one("TASK_POLL_003", "§9.1, §9.3", "a wait ends when a person must act, not before"),
    one("TASK_POLL_004", "§9.3", "a wait on a stream falls back to polling"),
    one("OUT_001", "§11.1, §11.5, §8.2", "context, task and state in each answer; stdout, stderr"),
    one("OUT_002", "§11.3, App. B", "-o json prints one document, the outcome"),
    one("OUT_003", "§11.3, §11.4, App. B", "-o json --stream prints one object a line"),
    one("OUT_004", "§11.4, App. B, App. D", "errors in one envelope, the same on every transport"),
    one("OUT_005", "§11.2, §6.1", "text has fields and blocks, and no control sequences"),
    one("OUT_006", "§11.5", "--async prints a result with its identifiers"),
    one("EXIT_001", "§11.6, App. D", "exit statuses match the errors"),
    one("EXIT_002", "§6.6, §11.6", "the state of a task does not change the exit status"),
    one("AUTH_001", "§12.1", "bearer token, API key as the card declares; --svc-param apart"),
    one("AUTH_002", "§12.1, §6.5", "a variable for each credential; help warns of the exposure"),
    one("AUTH_003", "§12.1, §6.5", "--insecure warns, with a stronger warning for credentials"),
    one("AUTH_004", "§12.1, §7.2", "diagnostics show no credentials"),
    one("TX_001", "§13.1", "the transport is chosen in the order of the card"),
    one("TX_002", "§13.1, §6.5", "--transport is repeatable and ordered"),
    one("TX_003", "§13.1", "every request has the tenant of its interface"),
    one("VER_001", "§13.2", "every request has the version, which is never lowered silently"),
    one("DEFAULT_001", "§6.5", "the defaults, each with a flag that overrides it"),
    one("CONFIG_001", "§8.3", "configuration at its path, private; config show shows it"),
    one("CLI_001", "§7.1, §7.2, §6.5", "help and version; help shows the settings in effect"),
    one("SKILL_001", "§14.1, §14.2", "one Agent Skill"),
    one("SKILL_002", "§14.3", "the skill is separate from rules"),
    two("CARD_GET_002", "§10.1", "card get --validate"),
    two("TASK_LIST_001", "§7.1, App. A", "task list"),
    two("TASK_SUBSCRIBE_001", "§7.1, §9.2", "task subscribe"),
    two("TASK_SUBSCRIBE_002", "§9.4, §9.2", "a stream that was cut is resumed"),
    two("AUTH_005", "§12.2", "auth login with a device code"),
    two("AUTH_006", "§12.2", "auth login with client credentials"),
    two("AUTH_007", "§12.2", "tokens are stored safely and used automatically"),
    two("TX_004", "§13.1", "two transports are supported"),
    two("VER_003", "§13.3", "operations that need a declared capability check the card"),
    two("CONFIG_002", "§8.3", "precedence of sources; config show names them"),
    two("DOWNLOAD_001", "§7.1", "task download"),
    two("OUT_007", "§7.2", "--debug shows the messages on the wire"),
    two("CONFORM_001", "§7.1", "conformance"),
    two("CLI_002", "§7.1", "completion"),
    two("PUSH_001", "§7.1, App. A", "task push-config"),
    three("CARD_GET_003", "§10.1, §12.4", "the extended card"),
    three("AUTH_008", "§12.4", "no credential goes to a card's server that declares no scheme"),
    three("CARD_GET_004", "§10.1", "signatures of cards"),
    three("CARD_GET_005", "§10.1", "catalogs and registries"),
    three("PUSH_002", "§9.2", "a receiver of push notifications"),
    three("CHAT_001", "§8.1, §7.1, §11.2", "chat keeps context and task"),
    three("TX_005", "§13.1", "gRPC"),
    three("AUTH_009", "§12.3", "mutual TLS"),
    three("AUTH_010", "§12.3", "OpenID Connect"),
    three("AUTH_011", "§12.3", "an authorization during a task"),
    three("DEMO_SERVER_001", "§7.1, §3", "demo-server"),
    three("VER_002", "§13.3, A2A §4.6", "extensions that the server requires"),
)  # fmt: skip

DEFAULTS = {
    "transport_server_preference_order": "--transport",
    "task_completion_wait_by_default": "--async",
    "output_human_readable_text": "--output",
    "detail_level_concise": "--verbose",
    "protocol_version_highest_mutual": "--a2a-version",
    "transport_security_tls_on": "--insecure, which warns",
}
"""The rows of DEFAULT_001; each has a test of that name."""

ERROR_CODES = (
    "A2ACLI_ERR_USAGE",
    "A2ACLI_ERR_CARD_NOT_FOUND",
    "A2ACLI_ERR_CARD_INVALID",
    "A2ACLI_ERR_UNREACHABLE",
    "A2ACLI_ERR_CREDENTIALS_MISSING",
    "A2ACLI_ERR_AUTH_FAILED",
    "A2ACLI_ERR_TIMEOUT",
    "A2ACLI_ERR_INTERNAL",
)

AGENTS = (
    "the fake agent of holdfast.testing, and one on the official SDK (a2a-sdk 1.3) on loopback"
)
SPELLED = {"JSONRPC": "JSON-RPC", "GRPC": "gRPC"}
TOTALS = {1: 39, 2: 15, 3: 12}
TIERS = {1: "Core", 2: "Standard", 3: "Advanced"}


@functools.cache
def tests_by_requirement():
    """The tests, each as file and name, by the identifier in their names."""
    found = {}
    for path in TESTS:
        for node in ast.parse(path.read_text()).body:
            identifier = _identifier(node.name) if _is_test(node) else None
            if identifier is not None:
                found.setdefault(identifier, []).append((path.relative_to(ROOT), node.name))
    return found


@functools.cache
def outcomes():
    """The outcomes of the tests when they were run last, by identifier."""
    return json.loads(OUTCOMES.read_text())


class _Recorder:
    """A plugin that runs the tests with an identifier, and records their outcomes."""

    def __init__(self):
        self.found = {}

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if _identifier(item.originalname)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        if report.when == "call" or not report.passed:
            counts = {"functions": 0, "passed": 0, "failed": 0, "live": 0}
            told = self.found.setdefault(_identifier(item.originalname), counts)
            told["failed" if not report.passed else "passed"] += 1
            told["live"] += report.passed and item.get_closest_marker("sdk") is not None
        return report


def record():
    """Run the tests and record their outcomes."""
    recorder = _Recorder()
    quiet = ["-q", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    pytest.main([*quiet, *map(str, TESTS)], plugins=[recorder])
    for identifier, tests in tests_by_requirement().items():
        recorder.found.get(identifier, {})["functions"] = len(tests)
    OUTCOMES.write_text(json.dumps(recorder.found, indent=1, sort_keys=True) + "\n")
    outcomes.cache_clear()


def _identifier(name):
    """The identifier in the name of a test, if it is one of the specification."""
    words = name.removeprefix("test_").split("_")
    number = next((at for at, word in enumerate(words) if word.isdigit()), None)
    if number is None or len(words[number]) != 3:
        return None
    area = "_".join(words[:number]).upper()
    is_one = area in {requirement.area for requirement in REQUIREMENTS}
    return f"A2ACLI_{area}_{words[number]}" if is_one else None


def _is_test(node):
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return is_function and node.name.startswith("test_")


def report():
    """The files of the report, by path."""
    return {PAGE: _page(), FILE: _file()}


def _tier(number):
    return [requirement for requirement in REQUIREMENTS if requirement.tier == number]


def _counts(number):
    counts = Counter(requirement.status for requirement in _tier(number))
    assert counts.total() == TOTALS[number]
    return counts


def _is_satisfied(number):
    below = [requirement for tier in range(1, number + 1) for requirement in _tier(tier)]
    return all(requirement.status in {"pass", "na"} for requirement in below)


def _claimed():
    shown = [number for number in TIERS if _is_satisfied(number) and not _not_live(number)]
    return str(max(shown)) if shown else "none"


def _not_live(number):
    """The requirements of a tier, and of those below it, without a test at a live agent."""
    below = [requirement for tier in range(1, number + 1) for requirement in _tier(tier)]
    return [one.identifier for one in below if not one.live and one.name not in OF_THE_TOOL]


# ── The page ─────────────────────────────────────────────────────────────────────────────────


def _page():
    shown = tests_by_requirement()
    parts = [_head(), _glance()]
    for number, name in TIERS.items():
        rows = [
            f"| `{r.identifier}` | {r.what} | {r.spec} | {MARKS[r.status]} | "
            f"{len(shown.get(r.identifier, ()))} | {r.live} | {r.note or ''} |"
            for r in _tier(number)
        ]
        head = [
            "| ID | Requirement | Spec | Status | Tests | Live | Notes |",
            "|---|---|---|---|---|---|---|",
        ]
        parts.append("\n".join([f"## Tier {number}: {name}", "", *head, *rows]))
        if number == 1:
            parts.append(_defaults())
    parts += [_codes(), _evidence()]
    return "\n\n".join(parts) + "\n"


def _head():
    return f"""# Compliance of the command line

How `holdfast` meets the [a2a-cli specification](https://github.com/a2aproject/a2a-cli)
{SPECIFICATION}, revision {REVISION}, in the text of commit `{COMMIT}`.
Made from the outcomes of the tests by `python -m tests.cli_compliance`; the same in machine form
is [cli-compliance.yaml](cli-compliance.yaml).

| Field | Value |
|---|---|
| Tool | holdfast {__version__}, in Python |
| Report date | {MEASURED} |
| Specification | {SPECIFICATION}, revision {REVISION}, commit {COMMIT} |
| Tier claimed | {_claimed()} |
| A2A protocol version | {", ".join(PROTOCOL_VERSIONS)} |
| Agents exercised against | {AGENTS} |
| Those agents are TCK-conformant? | unknown |
| Transports | {", ".join(BINDINGS)} |

A tier is satisfied when each requirement of it and of the tiers below is met or does not apply.
It is claimed when each of them was also tested at a live agent, as the specification requires,
except those about the tool alone: {", ".join(sorted(OF_THE_TOOL))}.
{_missing()}*Live* counts the test runs that passed at the live agent, on the official SDK, over
sockets; all others ran against the fake agent. The text of the specification is authoritative, not
the summaries in these tables."""


def _missing():
    """The requirements that prevent the next claim."""
    satisfied = [number for number in TIERS if _is_satisfied(number)]
    missing = _not_live(max(satisfied)) if satisfied else []
    if not missing:
        return ""
    return f"Without a live run: {', '.join(missing)}.\n"


def _glance():
    rows = []
    for number, name in TIERS.items():
        counts = _counts(number)
        numbers = " | ".join(str(counts[status]) for status in MARKS)
        satisfied = "yes" if _is_satisfied(number) else "no"
        rows.append(f"| Tier {number}: {name} | {TOTALS[number]} | {numbers} | {satisfied} |")
    marks = " | ".join(MARKS.values())
    head = [f"| Tier | Requirements | {marks} | Satisfied? |", f"|---|{'---|' * (len(MARKS) + 2)}"]
    return "\n".join(["## At a glance", "", *head, *rows])


def _defaults():
    rows = [f"| {name.replace('_', ' ')} | yes | {flag} |" for name, flag in DEFAULTS.items()]
    head = ["| Default | Shipped? | Overridden by |", "|---|---|---|"]
    return "\n".join(["### `A2ACLI_DEFAULT_001`, row by row", "", *head, *rows])


def _codes():
    rows = [f"| `{code}` | yes |" for code in ERROR_CODES]
    head = ["| Code | Emitted |", "|---|---|"]
    more = (
        "Errors that neither the protocol nor the specification names have codes with the prefix"
        "\n`HOLDFAST_ERR_`."
    )
    return "\n".join(["## Error codes", "", *head, *rows, "", more])


def _evidence():
    lines = (
        "## Evidence",
        "",
        "The name of each test contains the identifier of its requirement. `make test` runs them,",
        "with an agent on the official SDK in a separate process, on Linux with Python 3.11 to",
        "3.13. They are in these files:",
        "",
        *(f"- `{path}`" for path in _evidence_files()),
    )
    return "\n".join(lines)


def _evidence_files():
    return sorted({path for tests in tests_by_requirement().values() for path, _ in tests})


# ── The file ─────────────────────────────────────────────────────────────────────────────────


def _file():
    shown = tests_by_requirement()
    lines = [
        "# Made from the outcomes of the tests by `python -m tests.cli_compliance`.",
        "report:",
        "  tool: holdfast",
        f"  tool_version: {__version__}",
        "  language: Python",
        "  repository: not published",
        "  maintainer: the authors of holdfast",
        f"  report_date: {MEASURED}",
        f'  spec_version: "{SPECIFICATION}"',
        f"  spec_revision: {REVISION}",
        f"  spec_commit: {COMMIT}",
        f"  a2a_versions: {json.dumps(PROTOCOL_VERSIONS)}",
        f'  agent_tested: "{AGENTS}"',
        "  agent_tck_conformant: unknown",
        f"  transports_covered: [{', '.join(SPELLED.get(one, one) for one in BINDINGS)}]",
        f"  tier_claimed: {_claimed()}",
        "",
        "summary:",
    ]
    for number in TIERS:
        counts, satisfied = _counts(number), str(_is_satisfied(number)).lower()
        numbers = (f"{status}: {counts[status]}" for status in (*MARKS, "not_measured"))
        total = TOTALS[number]
        lines.append(
            f"  tier_{number}: {{total: {total}, {', '.join(numbers)}, satisfied: {satisfied}}}"
        )
    lines += ["", "requirements:"]
    for requirement in REQUIREMENTS:
        note = f'"{requirement.note}"' if requirement.note else "null"
        tests = shown.get(requirement.identifier, ())
        files = ", ".join(sorted({str(path) for path, _ in tests}))
        live = f", {requirement.live} runs at the live agent" if requirement.live else ""
        where = f'"{len(tests)} tests in {files}{live}"' if tests else "null"
        lines += [
            f"  {requirement.identifier}:",
            f"    tier: {requirement.tier}",
            f"    area: {requirement.area}",
            f'    spec: "{requirement.spec}"',
            f'    requirement: "{requirement.what}"',
            f"    status: {requirement.status}",
            f"    note: {note}",
            f"    evidence: {where}",
        ]
    lines += ["", "default_001_breakdown:"]
    lines += [
        f'  {name}: {{shipped: yes, overridable: yes, note: "{flag}"}}'
        for name, flag in DEFAULTS.items()
    ]
    lines += ["", "error_codes:"]
    lines += [f"  {code}: {{emitted: yes, note: null}}" for code in ERROR_CODES]
    lines += [
        "",
        "attestation:",
        "  reported_by: the authors of holdfast",
        f"  date: {MEASURED}",
        '  statement: "The statuses above are those of the tests named as evidence."',
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--as-recorded" not in sys.argv:
        record()
    PAGE.parent.mkdir(exist_ok=True)
    for path, content in report().items():
        path.write_text(content)
