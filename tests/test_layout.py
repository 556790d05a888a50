"""The tests' own tree: a folder for each package, a kit, and nothing that reaches past them."""

import ast
import re

import pytest
from tests.kit.paths import ROOT

TESTS = ROOT / "tests"
PACKAGE = ROOT / "src" / "holdfast"
FILES = sorted(path for path in TESTS.rglob("*.py") if path.parent.name != "__pycache__")
TEST_FILES = [path for path in FILES if path.name.startswith("test_")]

OTHER_FOLDERS = {
    "agents": "programs with the SDKs of others, which run in environments of their own",
    "contract": "one set of cases for each binding, version, and fake or real agent",
    "docs": "the pages that people read, and their programs",
    "e2e": "processes, kills, and other people's clients and servers",
    "kit": "what tests share",
    "scenarios": "what hurt users of other clients",
    "typing": "what type checkers must accept",
}
"""The folders that mirror no package, and what is in them."""

GATHERS = TESTS / "docs" / "test_coming_from.py"
"""It checks that the guides in the files beside it leave out no part of their page."""

MOODS = re.compile(r"hunt|odd|worst|corner|monday|misc|various|more_|another|new_|old_tests")
"""Names of files by when or how they were written, which do not say what they cover."""

EVERYWHERE = {
    "_model.operations": "`Client.call` takes its rows, which no public module has",
}
"""Inner modules that every test may import, and why."""

REACHES = {
    "cli/test_card.py": ({"_wire.card_schema"}, "each type of the schema is too many commands"),
    "cli/test_demo_server.py": ({"_server.host_check"}, "the command makes the rules that it has"),
    "cli/test_doctor.py": ({"_doctor.checks"}, "each verdict has a text"),
    "client/test_cancellation.py": ({"_policy.limiter"}, "the rule by which it counts"),
    "client/test_connect.py": ({"_arguments", "_model.addresses"}, "both rules agree"),
    "client/test_tools.py": ({"_wire.client_tools"}, "what an agent's call is read into"),
    "contract/test_agents.py": (
        {"_pipeline.http_binding", "_testing.listening"},
        "an older binding around the real one; a proxy that loses replies",
    ),
    "docs/test_readme.py": ({"_cli.app"}, "the page names the command's options"),
    "doctor/test_examination_on_sockets.py": ({"_net.tls"}, "what it reports of certificates"),
    "e2e/test_replicas.py": ({"_testing.listening"}, "a balancer on a socket"),
    "integrations/test_httpx_stream_ends.py": (
        {
            "_stream.machine",
            "_stream.states",
            "_testing.serverwire",
            "_testing.streaming",
            "_testing.v03wire",
            "_wire.sse",
        },
        "it ends streams exactly where the state machine of streams does",
    ),
    "integrations/test_sdk_errors.py": ({"_wire.status"}, "the SDK's errors and ours agree"),
    "integrations/test_sdk_messages.py": ({"_model.codec"}, "the SDK's messages and ours agree"),
    "journal/test_outcome.py": ({"_model.digest"}, "a record's digest is that of its message"),
    "journal/test_recorded_calls.py": ({"_model.digest"}, "as in test_outcome.py"),
    "journal/test_sqlite.py": ({"_net.private_files"}, "who may read its file"),
    "model/test_grpc_addresses.py": ({"_wire.origins"}, "all who read addresses agree"),
    "model/test_hosts.py": (
        {"_cli.reference", "_net.sockets", "_wire.network_scope", "_wire.origins"},
        "all who read hosts agree",
    ),
    "net/test_aiohttp.py": ({"_wire.http"}, "the progress of a request, which callers never see"),
    "net/test_grpc_channels.py": (
        {
            "_pipeline.grpc_binding",
            "_policy.deadline",
            "_testing.listening",
            "_wire.network_scope",
        },
        "a channel is reached through its binding only",
    ),
    "pipeline/test_tracing.py": ({"_wire.http"}, "each odd value of a header, without a call"),
    "auth/test_providers.py": ({"_wire.credentials", "_wire.http"}, "each odd value likewise"),
    "server/test_closing_servers.py": (
        {"_auth.oauth.redirects", "_cli.push.serving"},
        "every server of the library closes alike",
    ),
    "server/test_protocol_errors.py": (
        {"_wire.bindings", "_wire.status"},
        "what it writes is what a client reads",
    ),
    "server/test_serving.py": ({"_integrations.a2a_sdk.messages"}, "cards of the official SDK"),
    "signatures/test_card_signatures.py": (
        {"_model.card_reading", "_wire.canonical"},
        "the form that is signed",
    ),
    "signatures/test_grpc_card_signatures.py": (
        {"_pipeline.cards.trust", "_wire.protobuf.messages"},
        "what of a message of gRPC is signed",
    ),
    "stream/test_fold.py": ({"_model.codec"}, "sizes of what is folded"),
    "testing/test_asgi.py": ({"_wire.network_scope"}, "a network obeys the reach of a request"),
    "test_error_chains.py": ({"_model.error_hops", "_wire.status"}, "errors have no folder"),
    "test_public_surface.py": ({"_client.options"}, "the options of all ways to make a client"),
    "wire/test_grpc_codec.py": (
        {"_policy.breaker", "_policy.limiter"},
        "what policies make of it",
    ),
    "wire/test_protobuf_messages.py": (
        {"_integrations.a2a_sdk.messages", "_model.codec"},
        "it agrees with protobuf's own library",
    ),
    "wire/test_v03.py": (
        {"_model.card_reading", "_testing.v03wire"},
        "it reads what agents write",
    ),
}
"""Inner modules that a test of another package imports, and why."""


def imported_by(path):
    """The modules that a file imports; those in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def inner_modules(path):
    """The modules behind an underscore that a file imports, without ``holdfast.``."""
    named = {name.removeprefix("holdfast.") for name in imported_by(path) if "holdfast._" in name}
    paths = {name: PACKAGE / name.replace(".", "/") for name in named}
    return {
        name
        for name, path in paths.items()
        if path.with_suffix(".py").exists() or ("." in name and path.is_dir())
    }


def name_of(path):
    return path.relative_to(TESTS).as_posix()


@pytest.mark.parametrize("path", [one for one in FILES if one != GATHERS], ids=name_of)
def test_no_test_is_imported(path):
    parts = [name.split(".") for name in imported_by(path)]

    assert [".".join(p) for p in parts if "tests" in p[:1] and p[-1].startswith("test_")] == []
    assert [".".join(p) for p in parts if p[0] == "" and "conftest" not in p] == []


def test_every_folder_mirrors_a_package():
    folders = {path.name for path in TESTS.iterdir() if path.is_dir()} - {"__pycache__"}
    packages = {path.name.lstrip("_") for path in PACKAGE.iterdir() if path.is_dir()}

    assert folders - packages - set(OTHER_FOLDERS) == set()


def test_files_are_named_by_what_they_cover():
    assert [name_of(path) for path in FILES if MOODS.search(path.stem)] == []


def test_helpers_are_in_the_kit():
    packages = {path.name.lstrip("_") for path in PACKAGE.iterdir() if path.is_dir()}
    folders = (packages | {"contract", "docs", "e2e", "scenarios"}) & {
        p.parent.name for p in FILES
    }

    helpers = [p for p in FILES if p.parent.name in folders and p not in TEST_FILES]
    assert [name_of(path) for path in helpers] == []


@pytest.mark.parametrize("path", TEST_FILES, ids=name_of)
def test_inner_modules_are_reached_by_their_own_tests(path):
    own = f"_{path.parent.name}"
    found = {name for name in inner_modules(path) if name.split(".")[0] != own}
    allowed, _ = REACHES.get(name_of(path), (set(), ""))

    assert found - set(EVERYWHERE) == allowed


def test_every_exception_has_a_file():
    assert set(REACHES) <= {name_of(path) for path in TEST_FILES}
