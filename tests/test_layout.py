"""The tests' own tree: a folder for each package, a kit, and nothing that reaches past them."""

import ast
import functools
import re

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

REACHES = {
    "test_error_chains.py": ("_model _wire", "errors have no folder"),
    "test_public_surface.py": ("_client", "the options of all ways to make a client"),
    "auth/test_providers.py": ("_wire", "each odd value likewise"),
    "cli/test_card.py": ("_wire", "each type of the schema is too many commands"),
    "cli/test_demo_server.py": ("_server", "the command makes the rules that it has"),
    "cli/test_doctor.py": ("_doctor", "each verdict has a text"),
    "client/test_cancellation.py": ("_policy", "the rule by which it counts"),
    "client/test_connect.py": ("_arguments _model", "both rules agree"),
    "client/test_tools.py": ("_wire", "what an agent's call is read into"),
    "contract/test_compat.py": ("_pipeline", "a custom binding around the real one"),
    "contract/test_lost_replies.py": ("_testing", "a proxy that loses replies"),
    "docs/test_tutorial.py": ("_cli", "what the demo agent answers, in virtual time"),
    "e2e/test_replicas.py": ("_testing", "a balancer on a socket"),
    "integrations/test_httpx_stream_ends.py": (
        "_stream _testing _wire",
        "it ends streams exactly where the state machine of streams does",
    ),
    "integrations/test_sdk_errors.py": ("_wire", "the SDK's errors and ours agree"),
    "integrations/test_sdk_messages.py": ("_model", "the SDK's messages and ours agree"),
    "journal/test_outcome.py": ("_model", "a record's digest is that of its message"),
    "journal/test_recorded_calls.py": ("_model", "as in test_outcome.py"),
    "journal/test_sqlite.py": ("_net", "who may read its file"),
    "model/test_grpc_addresses.py": ("_wire", "all who read addresses agree"),
    "model/test_hosts.py": ("_cli _net _wire", "all who read hosts agree"),
    "net/test_aiohttp.py": ("_wire", "the progress of a request, which callers never see"),
    "net/test_grpc_channels.py": (
        "_pipeline _policy _testing _wire",
        "a channel is reached through its binding only",
    ),
    "pipeline/test_tracing.py": ("_wire", "each odd value of a header, without a call"),
    "server/test_closing_servers.py": ("_auth _cli", "every server of the library closes alike"),
    "server/test_protocol_errors.py": ("_wire", "what it writes is what a client reads"),
    "server/test_serving.py": ("_integrations", "cards of the official SDK"),
    "signatures/test_card_signatures.py": ("_model _wire", "the form that is signed"),
    "signatures/test_grpc_card_signatures.py": (
        "_pipeline _wire",
        "what of a message of gRPC is signed",
    ),
    "stream/test_fold.py": ("_model", "sizes of what is folded"),
    "testing/test_asgi.py": ("_wire", "a network obeys the reach of a request"),
    "wire/test_grpc_codec.py": ("_policy", "what policies make of it"),
    "wire/test_protobuf_messages.py": (
        "_integrations _model",
        "it agrees with protobuf's own library",
    ),
    "wire/test_v03.py": ("_model _testing", "it reads what agents write"),
}
"""Packages behind an underscore that a test of another one imports from, and why."""


@functools.cache
def imports_of(path):
    """The modules that a file imports; those in functions too."""
    return frozenset(_imported_by(path))


def _imported_by(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def name_of(path):
    return path.relative_to(TESTS).as_posix()


def inner_modules(path):
    """The modules behind an underscore that a file imports, without ``holdfast.``."""
    named = {name.removeprefix("holdfast.") for name in imports_of(path) if "holdfast._" in name}
    paths = {name: PACKAGE / name.replace(".", "/") for name in named}
    return {
        name
        for name, path in paths.items()
        if path.with_suffix(".py").exists() or ("." in name and path.is_dir())
    }


def is_test(name):
    parts = name.split(".")
    return parts[0] == "tests" and parts[-1].startswith("test_")


def test_no_test_is_imported():
    importing = {
        name_of(path): [name for name in imports_of(path) if is_test(name) or name.startswith(".")]
        for path in FILES
        if path != GATHERS
    }

    assert {name: found for name, found in importing.items() if found} == {}


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


def test_inner_modules_are_reached_by_their_own_tests():
    reached = {}
    for path in TEST_FILES:
        own = f"_{path.parent.name}"
        packages = {name.split(".")[0] for name in inner_modules(path)}
        if others := packages - {own}:
            reached[name_of(path)] = " ".join(sorted(others))

    assert reached == {name: packages for name, (packages, _) in REACHES.items()}
