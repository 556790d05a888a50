"""The public names: all there, all documented, cheap to import, and changed only on purpose."""

import ast
import builtins
import enum
import functools
import importlib
import inspect
import itertools
import pydoc
import re
import subprocess
import sys
import typing
from pathlib import Path

import msgspec
import pytest
from tests.kit.docstrings import (
    entries,
    inherited_entries,
    is_a_public_name,
    option_names,
    parameters,
    public_texts,
    section,
    spellings,
)
from tests.kit.public_names import PUBLIC, SUBJECTS

import holdfast
import holdfast.auth.oauth
import holdfast.integrations.a2a_sdk
import holdfast.integrations.dbos
import holdfast.integrations.httpx
import holdfast.integrations.httpx2
import holdfast.integrations.opentelemetry
import holdfast.integrations.temporal
import holdfast.server
import holdfast.testing
from holdfast._client.options import CreateOptions
from holdfast.protocol import Operation

PACKAGE = Path(holdfast.__file__).parent
HOMES = [
    *SUBJECTS,
    holdfast.auth.oauth,
    holdfast.integrations.a2a_sdk,
    holdfast.integrations.dbos,
    holdfast.integrations.httpx,
    holdfast.integrations.httpx2,
    holdfast.integrations.opentelemetry,
    holdfast.integrations.temporal,
    holdfast.server,
    holdfast.testing,
]
ALL = [holdfast, *HOMES]


def imported_names(tree, *, under_type_checking):
    """The names that a module imports: all of them, or those for type checkers."""
    found = []
    for node in tree.body:
        guarded = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if guarded == under_type_checking:
            imports = node.body if guarded else [node]
            found += [
                alias.asname or alias.name
                for statement in imports
                if isinstance(statement, ast.ImportFrom)
                for alias in statement.names
            ]
    return found


# ── Names ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("module", ALL)
def test_the_names_are_sorted_and_there_once(module):
    constants_first = sorted(set(module.__all__), key=lambda name: (not name.isupper(), name))

    assert list(module.__all__) == constants_first


@pytest.mark.parametrize("module", ALL)
def test_every_name_resolves(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_type_checkers_see_the_same_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    modules = {path.stem for path in PACKAGE.glob("*") if not path.name.startswith("_")}
    modules -= {"cli", "integrations", "py"}

    names = sorted(imported_names(tree, under_type_checking=True))
    assert names == sorted([*holdfast.__all__, *modules])
    assert {getattr(holdfast, name).__name__ for name in modules} == {
        f"holdfast.{name}" for name in modules
    }


def test_a_name_is_in_one_public_module_and_the_everyday_ones_in_the_root_too():
    of_other_libraries = {holdfast.integrations.httpx, holdfast.integrations.httpx2}
    own = [module for module in HOMES if module not in of_other_libraries]
    homes = [name for module in own for name in module.__all__]

    assert sorted(homes) == sorted(set(homes))
    assert set(holdfast.__all__) - set(homes) == {"__version__"}
    assert len(holdfast.__all__) <= 55


OTHER_MODULES = {
    "holdfast.cli": "the command line's entry point",
    "holdfast.integrations": "has modules, and no names",
    "holdfast.sync": "blocking twins of the other modules' names",
    "holdfast.testing.pytest_plugin": "pytest loads it",
}
"""Modules without an underscore that are not in `ALL`, and why."""


def test_every_module_without_an_underscore_is_a_public_one():
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")]
    parts = [[part for part in path.parts if part != "__init__"] for path in paths]
    public = {".".join(p) for p in parts if not any(part.startswith("_") for part in p)}

    assert public == {module.__name__ for module in ALL} | set(OTHER_MODULES)


@pytest.mark.parametrize("module", HOMES)
def test_what_is_public_names_its_public_module(module):
    named = {
        name: value.__module__
        for name in module.__all__
        if inspect.isclass(value := getattr(module, name)) or inspect.isfunction(value)
    }

    assert named == dict.fromkeys(named, module.__name__)


def test_type_checkers_see_each_name_where_it_is_found():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    for statement in block.body:
        home = importlib.import_module(statement.module)
        for alias in statement.names:
            if statement.module == "holdfast":
                continue
            assert alias.name in home.__all__
            assert getattr(home, alias.name) is getattr(holdfast, alias.name)


def test_the_testing_kit_exports_what_it_imports():
    tree = ast.parse((PACKAGE / "testing" / "__init__.py").read_text())

    assert sorted(imported_names(tree, under_type_checking=True)) == holdfast.testing.__all__


def test_dir_lists_the_names():
    assert dir(holdfast) == list(holdfast.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'nothing'"):
        _ = holdfast.nothing


ONE_PER_BINDING = {"decode", "encode", "reader"}
ONE_PER_EXTRA = {"check_library"}


def test_no_two_modules_export_different_things_by_one_name():
    homes = {}
    for path in PACKAGE.rglob("*.py"):
        # What is for other people's libraries has their names, and blocking twins have ours.
        if {
            "testing",
            "_testing",
            "_cli",
            "v03",
            "integrations",
            "_integrations",
            "sync",
            "_sync",
        } & set(path.relative_to(PACKAGE).parts) or path.stem == "__main__":
            continue
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(("holdfast", *(part for part in parts if part != "__init__")))
        module = importlib.import_module(name)
        for exported in set(getattr(module, "__all__", ())) - ONE_PER_BINDING - ONE_PER_EXTRA:
            homes.setdefault(exported, {})[name] = getattr(module, exported)

    shared = {name: found for name, found in homes.items() if len({*map(id, found.values())}) > 1}
    assert shared == {}


# ── Imports ──────────────────────────────────────────────────────────────────────────────────


def modules_after(code):
    """Which modules a fresh interpreter has after running some code."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )
    return set(done.stdout.split())


HEAVY = {"aiohttp", "click", "rich", "grpc", "google.protobuf", "ssl", "email", "uvicorn", "a2a"}


def test_importing_the_package_imports_nothing_heavy():
    loaded = modules_after("import holdfast")

    assert "holdfast" in loaded
    assert {name for name in loaded if name.startswith("holdfast.")} == set()
    assert not loaded & (HEAVY | {"asyncio", "msgspec"})


@pytest.mark.parametrize(
    "name",
    ["extend.HttpRequest", "observe.AttemptFinished", "policies.RetryPolicy", "protocol.GET_TASK"],
)
def test_a_name_for_those_who_extend_imports_no_client(name):
    loaded = modules_after(f"import holdfast\nholdfast.{name}")

    assert not {module for module in loaded if module.startswith("holdfast._client")}


def test_a_class_that_is_loaded_with_another_name_has_its_public_module():
    modules_after(
        "import holdfast\nholdfast.connect\n"
        "from holdfast._client.event_stream import EventStream\n"
        "assert EventStream.__module__ == 'holdfast.client'"
    )


def test_threads_may_load_names_at_once():
    modules_after(
        "import sys, threading, holdfast\n"
        "sys.setswitchinterval(1e-6)\n"
        "def load(module, step):\n"
        "    loaded.append([getattr(module, name) for name in module.__all__[::step]])\n"
        "loaded, modules = [], [holdfast.extend, holdfast.observe, holdfast.client] * 4\n"
        "threads = [\n"
        "    threading.Thread(target=load, args=[module, 1 if index < 6 else -1])\n"
        "    for index, module in enumerate(modules)\n"
        "]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert len(loaded) == len(modules)"
    )


@pytest.mark.parametrize("name", ["Task", "A2AError", "Resilience", "Client", "connect"])
def test_using_a_name_imports_no_http_library_and_no_command_line(name):
    assert not modules_after(f"import holdfast\nholdfast.{name}") & {"aiohttp", "click", "a2a"}


def test_a_client_over_another_engine_needs_no_aiohttp():
    code = (
        "import holdfast, holdfast.testing as t\n"
        "agent = t.FakeAgent()\n"
        "client = holdfast.connect(agent.url, engine=t.FakeNetwork(agent))\n"
        "assert t.run(client.ask('hello')).text == 'hello'\n"
    )

    assert "aiohttp" not in modules_after(code)


RARELY_NEEDED = (
    "_client.batch _client.client_tools _client.conversation _client.pending _client.reconcile "
    "_journal.protocol _journal.writer _model.v03.card _pipeline.replicas _signatures _wire.v03"
)


def test_a_client_imports_only_what_most_clients_need():
    code = "import holdfast\nholdfast.connect('https://agent.example')"

    loaded = modules_after(code)

    assert "holdfast._client.client" in loaded
    assert loaded & {f"holdfast.{name}" for name in RARELY_NEEDED.split()} == set()


def test_those_who_serve_an_agent_need_no_client():
    loaded = modules_after("import holdfast.server")

    assert not loaded & {
        "aiohttp",
        "holdfast._client.client",
        "holdfast._push.receiver",
        "holdfast._testing.agent",
    }


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


# ── Signatures ───────────────────────────────────────────────────────────────────────────────

# "name" is positional, "*name" by keyword only, "name=…" has that default. Whoever changes a line
# here changes what callers have written.
SIGNATURES = {
    "ask": "agent message *tools=() **options",
    "connect": (
        "agent *auth=None *timeout=900.0 *card_ttl=300.0 *card_verifier=None "
        "*require_signature=False *resilience=None *limits=None "
        "*engine=None *tls=None *shared=None *env=None *url=None *tenant=None *bindings=() "
        "*supported_protocol_bindings=() *protocol_version=None *allow_legacy=False "
        "*transport_producers=None *grpc_channel_factory=None *configuration=None "
        "*streaming=True *on_unknown='reconcile' *context_ids='agent' *journal=None "
        "*shared_store=None *headers=None *extensions=() *credential_origins=() "
        "*allowed_networks=() *reach='any' *interceptors=() *consumers=() *observers=() "
        "*telemetry=None *call_layers=() *attempt_layers=()"
    ),
    "diagnose": (
        "agent *send=None *twice=False *auth=None *headers=None *timeout=120.0 "
        "*protocol_version=None *bindings=() *limits=None *engine=None *env=None "
        "*card_verifier=None *tls=None"
    ),
    "connection_error": "request failure reason=None *sent *transient=True",
    "excerpt": "body length=200",
    "is_same_agent": "name other",
    "limit_error": "limit limits problem **facts",
    "make_error": "code message data=None",
    "media_type": "headers",
    "origin": "url",
    "presentable": "url",
    "reach_error": "url address reach=None",
    "spoken_version": "declared",
    "timeout_error": "request phase *sent",
    "to_message": "content *new_id *task_id=None *context_id=None *metadata=None",
    "NetworkReach.refuses": "self address",
    "SystemEnv.new_id": "self",
    "SystemEnv.random": "self",
    "SystemEnv.wall": "self",
    "TokenJournal.close": "self",
    "TokenJournal.use_token": "self name use / *expires_in *most",
    "TlsConfig.context": "self",
    "TlsConfig.pem": "self",
    "wrap_downstream": "error *current *agent=None *nested=False",
    "create_text_message_object": "role=<Role.USER: 'ROLE_USER'> content=''",
    "minimal_agent_card": "url transports=None",
    "sign_card": "card key *key_id *algorithm='ES256' *key_url=None",
    "text_part": "text *media_type=None",
    "Answer.from_dict": "data",
    "Message.from_dict": "data",
    "WireValue.from_dict": "data",
    "WireValue.to_dict": "self",
    "WireValue.to_json": "self *indent=0",
    "data_part": "data *media_type=None",
    "file_part": "path *media_type=None *filename=None *max_bytes=1073741824",
    "url_part": "url *media_type=None *filename=None",
    "A2ACardResolver.close": "self",
    "A2ACardResolver.get_agent_card": ("self relative_card_path=None *headers=None *timeout=None"),
    "ClientFactory.create": "self agent / consumers=None interceptors=None **options",
    "ClientFactory.create_from_url": "self agent / interceptors=None **options",
    "ClientFactory.register": "self label producer",
    "Client.add_event_consumer": "self consumer",
    "Client.add_interceptor": "self interceptor",
    "Client.add_request_middleware": "self interceptor",
    "Client.agent_card": "self *timeout=None",
    "Client.ask": (
        "self message *task_id=None *context_id=None *metadata=None *message_metadata=None "
        "*accepted_output_modes=None "
        "*push_notification_config=None *tools=() *poll_interval=2.0 *cancel_on_abandon=False "
        "*key=None **options"
    ),
    "Client.call": "self operation params **options",
    "Client.cancel_task": (
        "self task_id *confirm=True *metadata=None *poll_interval=2.0 **options"
    ),
    "Client.close": "self",
    "Client.conversation": (
        "self *context_id=None *task=None *on_input=None *on_auth=None *input_timeout=None "
        "*tools=() *timeout=86400.0 *max_turns=32 *poll_interval=2.0"
    ),
    "Client.create_task_push_notification_config": "self config **options",
    "Client.delete_task_push_notification_config": "self task_id config_id **options",
    "Client.discover": "self *timeout=None",
    "Client.get_extended_agent_card": "self **options",
    "Client.get_task": "self task_id *history_length=None **options",
    "Client.get_task_push_notification_config": "self task_id config_id **options",
    "Client.iter_tasks": (
        "self context_id=None *status=None *limit=50 *history_length=None "
        "*status_timestamp_after=None *include_artifacts=False **options"
    ),
    "Client.list_task_push_notification_configs": (
        "self task_id *limit=None *page_token=None **options"
    ),
    "Client.list_tasks": (
        "self context_id=None *status=None *limit=50 *page_token=None *history_length=None "
        "*status_timestamp_after=None *include_artifacts=False **options"
    ),
    "Client.pending": "self *message_id=None",
    "Client.resume_pending": "self *concurrency=8 *poll_interval=2.0 **options",
    "Client.send_message": (
        "self message *task_id=None *context_id=None *metadata=None *message_metadata=None "
        "*return_immediately=None "
        "*history_length=None *accepted_output_modes=None *push_notification_config=None "
        "*key=None **options"
    ),
    "Client.stream_message": (
        "self message *task_id=None *context_id=None *metadata=None *message_metadata=None "
        "*accepted_output_modes=None "
        "*push_notification_config=None *tools=() *poll_interval=2.0 *cancel_on_abandon=False "
        "*key=None **options"
    ),
    "Client.subscribe_to_task": (
        "self task_id *force_subscription=False *poll_interval=2.0 **options"
    ),
    "Client.wait": ("self task_id *until=None *poll_interval=2.0 **options"),
    "Conversation.ask": (
        "self message *metadata=None *message_metadata=None *accepted_output_modes=None "
        "*cancel_on_abandon=False *key=None **options"
    ),
    "Conversation.stream_message": (
        "self message *metadata=None *message_metadata=None *accepted_output_modes=None "
        "*cancel_on_abandon=False *key=None **options"
    ),
    "Conversation.wait": "self **options",
    "ClientTaskManager.get_task": "self",
    "ClientTaskManager.get_task_or_raise": "self",
    "ClientTaskManager.process": "self event",
    "ClientTaskManager.save_task_event": "self event",
    "ClientTaskManager.update_with_message": "self message task",
    "BulkRun.close": "self",
    "BulkRun.stop": "self",
    "PendingCall.dismiss": "self",
    "PendingCall.resume": "self *poll_interval=2.0 **options",
    "PendingCall.stream": "self *poll_interval=2.0 **options",
    "Client.run": (
        "self messages *run_id=None *concurrency=32 *rate=None *poll_interval=2.0 *shared=False "
        "**options"
    ),
    "Journal.begin": "self record /",
    "Journal.claim": "self message_id /",
    "Journal.close": "self",
    "Journal.find": "self message_id /",
    "Journal.find_label": "self label /",
    "Journal.renew": "self held /",
    "Journal.unfinished": "self agent=None /",
    "Journal.update": "self message_id generation update /",
    "PostgresJournal.check": "self",
    "PostgresJournal.begin": "self record /",
    "PostgresJournal.claim": "self message_id /",
    "PostgresJournal.close": "self",
    "PostgresJournal.find": "self message_id /",
    "PostgresJournal.find_label": "self label /",
    "PostgresJournal.find_labels": "self labels /",
    "PostgresJournal.renew": "self held /",
    "PostgresJournal.unfinished": "self agent=None /",
    "PostgresJournal.use_token": "self name use / *expires_in *most",
    "PostgresJournal.update": "self message_id generation update /",
    "SqliteJournal.check": "self",
    "SqliteJournal.begin": "self record /",
    "SqliteJournal.claim": "self message_id /",
    "SqliteJournal.close": "self",
    "SqliteJournal.find": "self message_id /",
    "SqliteJournal.find_label": "self label /",
    "SqliteJournal.find_labels": "self labels /",
    "SqliteJournal.dismiss_damaged": "self message_id /",
    "SqliteJournal.renew": "self held /",
    "SqliteJournal.unfinished": "self agent=None /",
    "SqliteJournal.use_token": "self name use / *expires_in *most",
    "SqliteJournal.update": "self message_id generation update /",
    "Diagnosis.hiding": "self hide",
    "Diagnosis.of": "self check",
    "Diagnosis.to_dict": "self",
    "EventStream.close": "self",
    "EventStream.result": "self",
    "EventStream.text_changes": "self *raise_on_failure=True",
    "EventStream.text_deltas": "self *raise_on_failure=True",
    "Interruption.to_error": "self reason",
    "PushReceiver.close": "self",
    "PushReceiver.config": "self task_id=None *authentication=None",
    "PushReceiver.expect": "self task config=None",
    "PushReceiver.forget": "self task_id",
    "PushReceiver.get_task": "self task_id",
    "PushReceiver.wait": (
        "self task_id *client=None *until=None *timeout=900.0 *poll_interval=60.0"
    ),
    "Resilience.standard": "",
    "Resilience.off": "",
    "Interceptor.before": "self call",
    "Interceptor.after": "self call outcome",
    "AuthProvider.credentials": "self call /",
    "AuthProvider.on_unauthorized": "self call error /",
    "AuthInterceptor.credentials": "self call /",
    "AuthInterceptor.on_unauthorized": "self call _error /",
    "CardVerifier.opened": "self engine env",
    "CredentialService.get_credentials": "self scheme context /",
    "InMemoryContextCredentialStore.forget_session": "self session_id",
    "InMemoryContextCredentialStore.get_credentials": "self security_scheme_name context",
    "InMemoryContextCredentialStore.set_credentials": (
        "self session_id security_scheme_name credential"
    ),
    "SchemeCredentials.get_credentials": "self scheme _context /",
    "HttpEngine.request": "self request",
    "HttpEngine.stream": "self request",
    "HttpEngine.close": "self",
    "ServerSpan.attached": "self",
    "ServerSpan.headers": "self",
    "ServerSpan.end": "self activity error=None",
    "ServerTelemetry.start_span": "self activity parent=None /",
    "TelemetrySource.observe": "self observation /",
    "TelemetrySource.layer": "self inner /",
    "Transport.unary": "self call /",
    "Transport.close": "self",
    "Transport.stream": "self call /",
    "Stream.close": "self",
    "StreamWrapper.close": "self",
    "UnaryOnly.stream": "self call /",
    "Env.wall": "self",
    "Env.random": "self",
    "Env.new_id": "self",
    "A2AError.facts": "self",
    "A2AError.from_jsonrpc": "error",
    "A2AError.to_jsonrpc": "self *nested=False *request_id=None",
    "A2AError.to_rest": "self *request_id=None",
    "AiohttpEngine.close": "self",
    "AiohttpEngine.request": "self request",
    "AiohttpEngine.stream": "self request",
    "Credentials.joined": "self other",
    "Deadline.remaining": "self now",
    "AgentResult.unwrap": "self",
    "Circuit.close": "self",
    "Circuit.open": "self",
    "Circuit.reset": "self",
    "Client.stats": "self",
    "AgentHealth.to_dict": "self",
    "ClientStats.to_dict": "self",
    "Coordinator.add": "self name agent",
    "Coordinator.client": "self name",
    "Coordinator.close": "self",
    "Coordinator.delegate": "self agent message *cancel_on_abandon=False *key=None **options",
    "Coordinator.fan_out": (
        "self message *agents=None *min_results=1 *within=None *cancel_on_abandon=False *key=None "
        "**options"
    ),
    "Coordinator.health": "self",
    "Coordinator.remove": "self name",
    "FanOut.close": "self",
    "FanOut.results": "self",
    "BreakerPolicy.simple": "failures=3 open_for=30.0",
    "Endpoint.breaker": "self policy",
    "Endpoint.retry_after_gates": "self",
    "Endpoint.hedging": "self policy",
    "Endpoint.known_breaker": "self policy",
    "Endpoint.tokens": "self policy",
    "Endpoint.charge": "self policy *now",
    "Endpoint.retry_after_gate": "self operation",
    "Endpoint.on_retry_after": "self operation seconds *started *draw",
    "Endpoint.learn": "self operation",
    "Endpoint.learn_file_form": "self error",
    "Endpoint.spoken": "self operation",
    "Endpoint.succeeded": "self policy",
    "Endpoints.of": "self interface",
    "HttpStream.chunks": "self",
    "HttpStream.read": "self",
    "BaseLayer.close": "self",
    "BaseLayer.stream": "self call /",
    "BaseLayer.handle": "self call call_next /",
    "BaseLayer.unary": "self call /",
    "StaticAuth.credentials": "self _call /",
    "StaticAuth.on_unauthorized": "self call error /",
}


# Errors that are not here take a message and facts.
CONSTRUCTORS = {
    "A2ACardResolver": (
        "base_url agent_card_path=None *auth=None *headers=None *timeout=900.0 "
        "*resilience=None *limits=None *allowed_networks=() *reach='any' *engine=None *tls=None "
        "*card_verifier=None *require_signature=False *env=None"
    ),
    "A2AConnectionError": "message='' *failure **facts",
    "NetworkReach": "*inward='public' *allowed=() *is_strict=False",
    "SystemEnv": "",
    "TokenUse": "body receiver",
    "A2ATimeoutError": "message='' *phase *timeout=None **facts",
    "AgentCapabilities": (
        "*streaming=None *push_notifications=None *extensions=() *extended_agent_card=None"
    ),
    "AgentCard": (
        "*name='' *description='' *supported_interfaces=() *provider=None *version='' "
        "*documentation_url=None *capabilities=AgentCapabilities() *security_schemes=dict() "
        "*security_requirements=() *default_input_modes=() *default_output_modes=() *skills=() "
        "*signatures=() *icon_url=None"
    ),
    "AgentExtension": "*uri='' *description=None *required=False *params=None",
    "AgentHealth": (
        "*url *healthy=True *consecutive_failures=0 *last_failure=None *cause=None "
        "*open_until=None"
    ),
    "AgentInterface": "*url='' *protocol_binding='' *tenant=None *protocol_version=None",
    "AgentProvider": "*url='' *organization=''",
    "AgentResult": "*agent *answer=None *error=None *duration=0.0 *attempts=0",
    "AgentSkill": (
        "*id='' *name='' *description='' *tags=() *examples=() *input_modes=() "
        "*output_modes=() *security_requirements=()"
    ),
    "AiohttpEngine": (
        "*max_connections=100 *max_streams=1000 *ssl=True *proxies=True *session=None"
    ),
    "Answer": "*task=None *message=None *extensions=()",
    "Artifact": (
        "*artifact_id='' *name=None *description=None *parts=() *metadata=None *extensions=()"
    ),
    "Attempt": "*number *agent *started *duration *error=None *executed=None *wait=None "
    "*method=''",
    "AuthInterceptor": "credential_service",
    "AuthenticationError": "message='' *schemes=() *missing=() **facts",
    "AuthenticationInfo": "*scheme='' *credentials=None",
    "BreakerPolicy": (
        "*failures=5 *failure_rate=0.5 *min_calls=10 *window=10.0 *slow_after=inf "
        "*min_wait_to_count=5.0 *open_for=5.0 *backoff_factor=1.2 *max_open_for=60.0"
    ),
    "BudgetPolicy": "*tokens=10 *success_gives=0.1 *seconds_per_token=10.0",
    "CallRecord": (
        "*message_id *agent *began=0.0 *context_id=None *task_id=None *state=None "
        "*is_own_context=False *request=None *label=None *digest=None *outcome=None *detail=None "
        "*result=None *generation=1 *lease_until=0.0 *lease_left=0.0 *damage=None "
        "*traceparent=None"
    ),
    "RecordUpdate": (
        "*context_id=None *task_id=None *state=None *outcome=None *detail=None *result=None "
        "*releases=False"
    ),
    "Call": (
        "*operation *params *request_id *deadline *timeouts=None *headers=dict() *query=dict() "
        "*extensions=() *context=None *endpoint=None *reach=None *card=None *auth=None "
        "*attempt=1 *is_trusted=True *is_retried=True *progress=CallProgress()"
    ),
    "CardSignatureError": "message='' *outcome='invalid' *key_id=None **facts",
    "CardVerification": (
        "*outcome *reason='' *key_id=None *key_url=None *algorithm=None *number=None *unsigned=() "
        "*is_for_now=False"
    ),
    "CardVerifier": (
        "keys=None *jku_hosts=() *algorithms=('ES256', 'ES384', 'ES512', 'EdDSA', 'PS256', "
        "'PS384', 'PS512', 'RS256', 'RS384', 'RS512')"
    ),
    "CancelUnconfirmedError": "message='' *task=None **facts",
    "CallEndedError": "message='' *message_id *outcome *detail=None **facts",
    "ClientCallContext": "*state=dict()",
    "ClientConfig": (
        "*streaming=True *polling=False *engine=None *grpc_channel_factory=None "
        "*supported_protocol_bindings=() *use_client_preference=False "
        "*accepted_output_modes=() *push_notification_configs=()"
    ),
    "ClientStats": "*url=None *endpoints=() *in_flight=None *waiting=0",
    "ClientTools": "functions *max_turns=16 *max_tool_calls=100 *raises=False",
    "ClientToolsNotSupportedError": "message='' *extensions **facts",
    "ClientFactory": "config=None consumers=None",
    "ClientTaskManager": "*limits=None",
    "Coordinator": "agents=() *concurrency=100 **options",
    "CredentialOriginError": "message='' *origin **facts",
    "Credentials": "*headers=dict() *query=dict() *cookies=dict()",
    "Deadline": "*name *timeout *at *ends_at_first_event=False",
    "DuplicateTasksError": "message='' *message_id *tasks **facts",
    "DeadlineExceededError": "message='' *deadline *timeout *task=None **facts",
    "EndpointStats": (
        "*url *binding *version *answered=0 *attempts=0 *circuit='closed' *failures=0 "
        "*retry_after=0.0 *retry_tokens=None *is_rate_limited=False *waiting=0"
    ),
    "Endpoints": "",
    "ExtensionNotSupportedError": "message='' *extensions **facts",
    "ExtensionSupportRequiredError": "message='' *extensions=() **facts",
    "Finding": "check level saw means='' do='' about='' binding='' version=''",
    "HedgePolicy": "*quantile=0.95 *max_extra=0.05 *min_samples=20 *min_delay=0.01",
    "HttpReply": "*status *headers=dict() *body=b'' *address=None",
    "HttpRequest": (
        "*method *url *headers=dict() *body=b'' *timeouts=Timeouts() *max_idle=4.0 "
        "*limits=Limits() *reach=None *progress=Progress()"
    ),
    "InMemoryContextCredentialStore": "",
    "Interceptor": "",
    "Interruption": "*task",
    "InvalidAgentCardError": "message='' *field=None **facts",
    "JournalError": ("message='' *reason='unusable' *message_id=None *held_until=None **facts"),
    "JwtPolicy": (
        "*algorithms=('ES256', 'ES384', 'ES512', 'EdDSA', 'PS256', 'PS384', 'PS512', 'RS256', "
        "'RS384', 'RS512') *issuer=None *audience=None *max_age=300.0 *leeway=60.0 "
        "*body_digest=True *max_tokens=10000"
    ),
    "LimitExceededError": "message='' *which *bound *task=None **facts",
    "Limits": (
        "*body=33554432 *headers=65536 *event=33554432 *card=1048576 *json_depth=100 "
        "*json_values=500000 *inflation_ratio=100 *parts=100000 *artifacts=10000 *history=10000"
    ),
    "ListTaskPushNotificationConfigsResponse": "*configs=() *next_page_token=''",
    "ListTasksResponse": "*tasks=() *next_page_token='' *page_size=0 *total_size=0",
    "Message": (
        "*message_id='' *role=<Role.UNSPECIFIED: 'ROLE_UNSPECIFIED'> *parts=() "
        "*context_id=None *task_id=None *metadata=None *extensions=() *reference_task_ids=()"
    ),
    "NetworkPolicyError": "message='' *address=None **facts",
    "NotEnoughResultsError": "message='' *results=() **facts",
    "Operation": (
        "*name *request *response *safety *verb *path *other_verb=None *streaming=False "
        "*capability=None *method_v03='' *path_v03='' *method_grpc_v03=''"
    ),
    "OutcomeUnknownError": (
        "message='' *message_id *context_id=None *searched=() *search_error=None **facts"
    ),
    "Part": (
        "*text=None *raw=None *url=None *data=UNSET *metadata=None *filename=None *media_type=None"
    ),
    "BaseLayer": "inner",
    "StreamWrapper": "inner",
    "UnaryOnly": "",
    "PushReceiver": (
        "url *keys=None *jwt=None *journal=None *limits=None *max_tasks=10000 "
        "*max_bytes=268435456 *engine=None *telemetry=None *env=None"
    ),
    "ServerActivity": (
        "*kind *method=None *endpoint=None *version=None *tenant=None *message_id=None "
        "*task_id=None *context_id=None *state=None *http_status=None *headers=dict()"
    ),
    "ReconcilePolicy": "*timeout=30.0 *backoff=0.5 *max_backoff=5.0 *max_pages=20",
    "ReconnectError": "message='' *task=None *task_id=None **facts",
    "ReconnectPolicy": (
        "*max_reconnects=8 *backoff=0.5 *max_backoff=15.0 *max_outage=300.0 *max_quiet=3600.0"
    ),
    "Reply": "*value *headers=dict() *raw=b'' *endpoint=None *attempts=()",
    "Resilience": (
        "*timeouts=Timeouts() *retry=RetryPolicy() *budget=BudgetPolicy() "
        "*breaker=BreakerPolicy() *retry_after=RetryAfterPolicy() *concurrency=None "
        "*hedge=None "
        "*reconnect=ReconnectPolicy() *reconcile=ReconcilePolicy() "
        "*refusals=[401, 403, 404, 405, 411, 413, 414, 415, 421, 422, 425, 429, 503]"
    ),
    "PostgresJournal": (
        "dsn *store_messages=False *lease=30.0 *retention=604800.0 *retry_for=10.0 "
        "*read_only=False"
    ),
    "SqliteJournal": (
        "path *store_messages=False *lease=30.0 *retention=604800.0 *busy_timeout=5.0 "
        "*read_only=False *mode=384"
    ),
    "RunItem": "*key *content",
    "KeyConflictError": "message='' *key *message_id=None *other_agent=None **facts",
    "ResumedCall": "*message_id *answer=None *error=None *duration=0.0 *remaining=0",
    "RunResult": "*key *answer=None *error=None *duration=0.0 *was_resumed=False *agent=None",
    "RetryPolicy": (
        "*max_retries=3 *base_delay=1.0 *backoff_factor=2.0 *max_delay=30.0 *jitter=True "
        "*max_retry_after=60.0 *retry_predicate=None *on_retry=None"
    ),
    "ConcurrencyPolicy": "*limit *queue=1000",
    "RetryAfterPolicy": "*queue=1000",
    "SchemeCredentials": "credentials",
    "BreakerFailure": "*at *cause",
    "SendMessageConfiguration": (
        "*accepted_output_modes=() *task_push_notification_config=None *history_length=None "
        "*return_immediately=False"
    ),
    "StaticAuth": "headers",
    "StreamResponse": "*task=None *message=None *status_update=None *artifact_update=None",
    "Task": "*id *context_id=None *status=TaskStatus() *artifacts=() *history=() *metadata=None",
    "TaskArtifactUpdateEvent": (
        "*task_id='' *context_id=None *artifact=Artifact() *append=False *last_chunk=False "
        "*metadata=None"
    ),
    "TaskAuthRequiredError": "message='' *task **facts",
    "TaskCanceledError": "message='' *task **facts",
    "TaskFailedError": "message='' *task **facts",
    "TaskInputRequiredError": "message='' *task **facts",
    "TaskInterruptedError": "message='' *task **facts",
    "TaskNotCancelableError": "message='' *task_id=None *state=None **facts",
    "TaskNotFoundError": "message='' *task_id=None **facts",
    "TaskPushNotificationConfig": (
        "*tenant=None *id=None *task_id=None *url='' *token=None *authentication=None"
    ),
    "TaskRejectedError": "message='' *task **facts",
    "TaskStatus": (
        "*state=<TaskState.UNSPECIFIED: 'TASK_STATE_UNSPECIFIED'> *message=None *timestamp=None"
    ),
    "TaskStatusUpdateEvent": "*task_id='' *context_id=None *status=TaskStatus() *metadata=None",
    "TaskTerminalError": "message='' *task **facts",
    "TextDelta": "text artifact_id=None",
    "TextReset": "artifact_id",
    "ToolError": "reason",
    "APIKeySecurityScheme": "*description=None *location='' *name=''",
    "AgentCardSignature": "*protected='' *signature='' *header=None",
    "AuthorizationCodeOAuthFlow": (
        "*authorization_url='' *token_url='' *refresh_url=None *scopes=dict() *pkce_required=False"
    ),
    "CancelTaskRequest": "*tenant=None *id *metadata=None",
    "ClientCredentialsOAuthFlow": "*token_url='' *refresh_url=None *scopes=dict()",
    "DeleteTaskPushNotificationConfigRequest": "*tenant=None *task_id *id",
    "DeviceCodeOAuthFlow": (
        "*device_authorization_url='' *token_url='' *refresh_url=None *scopes=dict()"
    ),
    "Empty": "",
    "GetExtendedAgentCardRequest": "*tenant=None",
    "GetTaskPushNotificationConfigRequest": "*tenant=None *task_id *id",
    "GetTaskRequest": "*tenant=None *id *history_length=None",
    "HTTPAuthSecurityScheme": "*description=None *scheme='' *bearer_format=None",
    "ImplicitOAuthFlow": "*authorization_url='' *refresh_url=None *scopes=dict()",
    "ListTaskPushNotificationConfigsRequest": (
        "*tenant=None *task_id *page_size=None *page_token=None"
    ),
    "ListTasksRequest": (
        "*tenant=None *context_id=None *status=None *page_size=None *page_token=None "
        "*history_length=None *status_timestamp_after=None *include_artifacts=None"
    ),
    "MutualTlsSecurityScheme": "*description=None",
    "OAuth2SecurityScheme": "*description=None *flows=OAuthFlows() *oauth2_metadata_url=None",
    "OAuthFlows": (
        "*authorization_code=None *client_credentials=None *implicit=None *password=None "
        "*device_code=None"
    ),
    "OpenIdConnectSecurityScheme": "*description=None *open_id_connect_url=''",
    "PasswordOAuthFlow": "*token_url='' *refresh_url=None *scopes=dict()",
    "Request": "*tenant=None",
    "SecurityRequirement": "*schemes=dict()",
    "SecurityScheme": (
        "*api_key_security_scheme=None *http_auth_security_scheme=None "
        "*oauth2_security_scheme=None *open_id_connect_security_scheme=None "
        "*mtls_security_scheme=None"
    ),
    "SendMessageRequest": "*tenant=None *message *configuration=None *metadata=None",
    "SendMessageResponse": "*task=None *message=None",
    "StringList": "*list=()",
    "SubscribeToTaskRequest": "*tenant=None *id",
    "WireValue": "",
    "Timeouts": "*pool=10.0 *connect=5.0 *write=30.0 *first_byte=120.0 *idle=120.0",
    "TlsConfig": "*ca_file=None *cert_file=None *key_file=None *key_password=None *verify=True",
}

_OBSERVATION = (
    "*operation_id *parent_id *request_id *operation *method *agent *endpoint *message_id "
    "*task_id *context_id"
)
_OBSERVATIONS = {
    "AttemptFinished": "*attempt_id *number *duration *error",
    "AttemptStarted": "*attempt_id *number",
    "CardChecked": "*verification",
    "CircuitChanged": "*state *failures *retry_after",
    "EventReceived": "*kind *state",
    "GapDetected": "",
    "HedgeStarted": "*delay",
    "JournalWritten": "*step *duration *error *traceparent=None",
    "Observation": "",
    "OperationFinished": (
        "*outcome *error *duration *requests *attempts *retries *reconnects *has_gap "
        "*executed *state *events *time_to_first_event"
    ),
    "OperationStarted": "",
    "ReconcileStarted": "*timeout *error",
    "Reconciled": "*searched *duration *error",
    "Reconnected": "*number *error=None",
    "RequestFinished": "*attempts *duration *error *retry_tokens=None",
    "RequestStarted": "",
    "RetryScheduled": "*number *wait *reason *error *retry_tokens=None",
    "RetryStopped": "*reason *error",
    "StreamInterrupted": "*error",
    "WaitFinished": "*reason *duration",
    "WaitStarted": "*reason *seconds",
}
CONSTRUCTORS |= {name: f"{_OBSERVATION} {own}".strip() for name, own in _OBSERVATIONS.items()}

CLASSES = [name for name, value in PUBLIC.items() if inspect.isclass(value)]
MADE_BY_THE_LIBRARY = {
    "BulkRun",
    "Circuit",
    "Client",
    "Conversation",
    "Breaker",
    "Diagnosis",
    "Endpoint",
    "EventStream",
    "FanOut",
    "PendingCall",
}
CONSTRUCTED = [
    name
    for name in CLASSES
    if name not in MADE_BY_THE_LIBRARY
    and not issubclass(PUBLIC[name], enum.Enum | dict)
    and not getattr(PUBLIC[name], "_is_protocol", False)
]


def written(signature):
    """A signature in the notation of the table."""
    words = []
    for parameter in signature.parameters.values():
        prefix = {
            inspect.Parameter.KEYWORD_ONLY: "*",
            inspect.Parameter.VAR_KEYWORD: "**",
        }.get(parameter.kind, "")
        default = parameter.default
        suffix = "" if default is inspect.Parameter.empty else f"={default!r}"
        words.append(f"{prefix}{parameter.name}{suffix}")
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        words.insert(kinds.count(inspect.Parameter.POSITIONAL_ONLY), "/")
    return " ".join(words)


def written_constructor(owner):
    """How a class is called, in the same notation; of a default that is a struct its name."""
    if not issubclass(owner, msgspec.Struct):
        return written(inspect.signature(owner))
    fields, defaults = owner.__struct_fields__, owner.__struct_defaults__
    words = [name if name in owner.__match_args__ else f"*{name}" for name in fields]
    for number, default in enumerate(defaults, len(fields) - len(defaults)):
        match default:
            case msgspec.Struct():
                assert default == type(default)()
                words[number] += f"={type(default).__name__}()"
            case frozenset():
                words[number] += f"={sorted(default)}"
            case _ if default is not msgspec.NODEFAULT:
                factory = getattr(default, "factory", None)
                words[number] += f"={default!r}" if factory is None else f"={factory.__name__}()"
    return " ".join(words)


def public_methods(owner):
    return sorted(
        name
        for name, value in vars(owner).items()
        if not name.startswith("_") and callable(getattr(value, "__func__", value))
    )


@pytest.mark.parametrize("path", SIGNATURES)
def test_a_signature_is_as_promised(path):
    owner, _, name = path.rpartition(".")
    function = getattr(PUBLIC[owner], name) if owner else PUBLIC[name]

    assert written(inspect.signature(function)) == SIGNATURES[path]


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_is_in_the_table(name):
    promised = sorted(p.rpartition(".")[2] for p in SIGNATURES if p.startswith(f"{name}."))

    assert public_methods(PUBLIC[name]) == promised


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_a_constructor_is_as_promised(name):
    owner = PUBLIC[name]
    default = "message='' **facts" if issubclass(owner, BaseException) else "in no table"

    assert written_constructor(owner) == CONSTRUCTORS.get(name, default)


def test_every_constructor_in_the_table_is_one_that_callers_call():
    assert sorted(CONSTRUCTORS.keys() - CONSTRUCTED) == []


def test_every_public_function_is_in_the_table():
    functions = [name for name, value in PUBLIC.items() if inspect.isfunction(value)]

    assert sorted(functions) == sorted(path for path in SIGNATURES if "." not in path)


TRANSPORT = (
    "*resilience=None *timeout=900.0 *limits=None *engine=None *shared=None *env=None "
    "*observers=() *telemetry=None"
)
INTEGRATIONS = {
    "a2a_sdk": {
        "CallFailedError": "message=None data=None",
        "CallTimeoutError": "message=None data=None",
        "HoldfastClientFactory": "config=None *retry_config=None **options",
        "HoldfastTransport": (
            "card url config=None *protocol_binding=None *retry_config=None **options"
        ),
        "OnRetry": None,
        "RetryConfig": (
            "*max_retries=3 *base_delay=1.0 *max_delay=30.0 *retry_predicate=None *on_retry=None "
            "*resend_ambiguous=False *max_retry_after=60.0 *timeout=None *budget='standard'"
        ),
        "RetryFacts": "*attempts *reason *executed=None *retry_after=None",
        "RetryPredicate": None,
        "RetryTransport": (
            "transport *max_retries=3 *base_delay=1.0 *max_delay=30.0 *retry_predicate=None "
            "*on_retry=None *resend_ambiguous=False *max_retry_after=60.0 *timeout=None "
            "*budget='standard' *env=None"
        ),
        "SharedBudget": "policy=None",
        "TransportOptions": None,
        "client_factory": "config=None *retry_config=None **options",
        "default_retry_predicate": "exc",
        "retry_facts": "error",
        "to_proto": "value message_type",
        "to_value": "message kind",
    },
    "httpx": {"Transport": TRANSPORT},
    "httpx2": {"Transport": TRANSPORT},
    "dbos": {
        "ask_agent": (
            "agent message *task_id=None *context_id=None *metadata=None *message_metadata=None "
            "*accepted_output_modes=None *key=None *step=None **options"
        )
    },
    "temporal": {
        "AgentFailure": (
            "*type *message *executed=None *transient=False *retry_after=None *message_id=None "
            "*task_id=None *context_id=None *task_state=None *details=<factory>"
        ),
        "HoldfastPlugin": "agents=None **options",
        "WorkflowAgent": "name *cancel_task=False **options",
        "agent_failure": "error",
    },
}


def is_called(value):
    """Whether a public name is one that callers call, and not a type that they write."""
    return (inspect.isclass(value) or inspect.isfunction(value)) and not typing.is_typeddict(value)


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_what_is_for_other_libraries_is_as_promised(name):
    module = importlib.import_module(f"holdfast.integrations.{name}")
    found = {exported: getattr(module, exported) for exported in module.__all__}

    assert undocumented(module) == []
    assert list(found) == list(INTEGRATIONS[name])
    assert {
        exported: written(inspect.signature(value)) if is_called(value) else None
        for exported, value in found.items()
    } == INTEGRATIONS[name]


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_help_tells_all_of_a_transport(name):
    module = importlib.import_module(f"holdfast.integrations.{name}")

    for word in ("ReadTimeout", "http2", "verify", "Proxies", "resilience:", "observers:"):
        assert word in module.Transport.__doc__


CALL_OPTIONS = ["timeout", "headers", "extensions", "context", "tenant", "timeouts"]


def test_the_options_of_a_call_are_as_promised():
    assert list(holdfast.client.CallOptions.__annotations__) == CALL_OPTIONS


def test_the_options_of_connect_are_its_own_keywords():
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(holdfast.connect).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    options = holdfast.client.ConnectOptions.__annotations__

    assert {name: kind.__forward_arg__ for name, kind in options.items()} == keywords
    assert holdfast.client.ConnectOptions.__required_keys__ == frozenset()


def test_a_factory_takes_every_option_of_connect():
    own = set(inspect.signature(holdfast.compat.ClientFactory.create).parameters)

    assert (
        set(CreateOptions.__annotations__)
        == set(holdfast.client.ConnectOptions.__annotations__) - own
    )


# ── Types ────────────────────────────────────────────────────────────────────────────────────

SHARED = "state of an address, which layers of the client share"
PRIVATE_TYPES = {
    "AnyOperation": "short for Operation[Any, Any]",
    "AsgiExchange": "a network returns it to itself",
    "Breaker": SHARED,
    "CardChecker": "the client opens a verifier",
    "Exchange": "a network asks the agent for it",
    "Hedging": SHARED,
    "PemFiles": "gRPC gets it",
    "RetryAfterGate": SHARED,
    "Store": "taken from another agent: FakeAgent(store=other.store)",
}
"""Types in public signatures that are not public, and why callers never write them."""


def definitions(path):
    """The names that a module defines or imports: each with the module that defines it."""
    defined = {}
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            defined |= {alias.asname or alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            defined[node.name] = module
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not is_type_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {t.id: module for t in targets if isinstance(t, ast.Name)}
    return defined


def is_type_variable(value):
    makers = {"ParamSpec", "TypeVar", "TypeVarTuple"}
    return isinstance(value, ast.Call) and getattr(value.func, "id", "") in makers


@functools.cache
def definitions_of(function):
    return definitions(Path(inspect.getsourcefile(function)))


def type_names(function):
    """The names in a function's annotations that Holdfast defines, with their modules."""
    annotations = inspect.unwrap(function).__annotations__.values()
    texts = [text.lstrip("*") for text in annotations if isinstance(text, str)]
    trees = [ast.parse(text, mode="eval") for text in texts]
    names = {n.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Name)}
    defined = definitions_of(inspect.unwrap(function))
    own = {name for name in names if (defined.get(name) or "").startswith("holdfast")}
    return own - set(vars(builtins))


def is_constructed(module, name):
    """Whether callers make values of a class."""
    is_tool = module in {holdfast.server, holdfast.testing}
    return name not in PRODUCED if is_tool else name in CONSTRUCTORS


PRODUCED = {"AgentTurn", "Requester", "Running", "Serving"}
"""Classes of the tools that callers get, and do not make."""


def public_functions():
    """The functions and methods that callers call, by name."""
    for module in HOMES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield name, value
            elif inspect.isclass(value):
                for method, member in vars(value).items():
                    plain = getattr(member, "__func__", getattr(member, "fget", member))
                    is_called = method == "__init__" and is_constructed(module, name)
                    if inspect.isfunction(plain) and (is_called or not method.startswith("_")):
                        yield f"{name}.{method}", plain


def test_every_type_in_a_public_signature_is_public():
    public = {name for module in HOMES for name in module.__all__}
    private = {}
    for name, function in public_functions():
        if "holdfast" in (inspect.getsourcefile(inspect.unwrap(function)) or ""):
            for kind in type_names(function) - public:
                private.setdefault(kind, []).append(name)

    assert sorted(private) == sorted(PRIVATE_TYPES), private


def test_everything_public_is_typed():
    untyped = [
        f"{name}({parameter.name})"
        for name, function in public_functions()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation is parameter.empty and parameter.name not in {"self", "cls"}
    ]

    assert untyped == []


# ── Documentation ────────────────────────────────────────────────────────────────────────────


def undocumented(module):
    """The public classes, functions and methods of a module without a text of their own."""
    found = []
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not value.__doc__ or (inspect.isclass(value) and "__doc__" not in vars(value)):
            found.append(name)
        if not inspect.isclass(value) or not value.__module__.startswith("holdfast"):
            continue
        for method, member in vars(value).items():
            plain = getattr(member, "__func__", getattr(member, "fget", member))
            stands_in = getattr(plain, "__name__", method) != method  # for one of a base class
            if method.startswith("_") or not inspect.isfunction(plain) or stands_in:
                continue
            bases = (getattr(base, method, None) for base in value.__mro__)
            if not any(getattr(base, "__doc__", None) for base in bases):
                found.append(f"{name}.{method}")
    return found


@pytest.mark.parametrize("module", ALL)
def test_everything_public_is_documented(module):
    assert undocumented(module) == []


RELATIVE = re.compile(r"(What|Whether|Which|Who|Whose|When|Where|Why|How)(ever)?\b")
"""How no docstring begins: its first words are a noun or a verb."""


def undocumented_values(module):
    """The constants and type aliases of a module that have no such text where they are defined."""
    values = {
        name
        for name in module.__all__
        if not (inspect.isclass(value := getattr(module, name)) or inspect.isfunction(value))
        and not isinstance(value, Operation | str)  # named after itself
    }
    sources = definitions(Path(module.__file__))
    for name in sorted(values):
        path = PACKAGE.parent / f"{sources[name].replace('.', '/')}.py"
        body = ast.parse(path.read_text()).body
        texts = [
            node
            for target, node in itertools.pairwise(body)
            if name in ast.unparse(target).split(" = ")[0].partition(":")[0].split()
        ]
        text = texts[0].value.value if texts and isinstance(texts[0], ast.Expr) else ""
        if not text or RELATIVE.match(text):
            yield name


@pytest.mark.parametrize("module", HOMES)
def test_every_constant_and_type_alias_is_documented(module):
    assert list(undocumented_values(module)) == []


def test_every_module_says_what_it_owns():
    silent = [
        path
        for path in PACKAGE.rglob("*.py")
        if not path.read_text().startswith(('"""', 'r"""'))  # to parse them all takes seconds
    ]

    assert silent == []


TEXTS = {text.name: text for text in public_texts()}
RETURNED = (
    MADE_BY_THE_LIBRARY
    | PRODUCED
    | {
        "AgentHealth",
        "AgentResult",
        "CallRecord",
        "ClientStats",
        "DevicePrompt",
        "EndpointStats",
        "ListTasksResponse",
        "OAuthProvider",
        "ResumedCall",
        "RunResult",
        "Token",
    }
)
"""Classes whose values callers get: their members have no defaults that matter."""


def test_a_docstring_begins_with_a_noun_or_a_verb():
    assert [name for name, text in TEXTS.items() if RELATIVE.match(text.doc)] == []


def test_a_docstring_describes_every_argument():
    missing = {
        name: [each for each in parameters(text, RETURNED) if each not in inherited_entries(text)]
        for name, text in TEXTS.items()
    }

    assert {name: names for name, names in missing.items() if names} == {}


def test_a_docstring_names_every_option_that_is_passed_by_keyword():
    missing = {
        name: [each for each in options if f"``{each}``" not in entries(text.doc)[parameter]]
        for name, text in TEXTS.items()
        for parameter, options in option_names(text)
    }

    assert len(missing) >= 30
    assert {name: options for name, options in missing.items() if options} == {}


def test_a_docstring_states_every_default_that_is_not_empty():
    wrong = [
        f"{name}: {parameter}={default!r}"
        for name, text in TEXTS.items()
        for parameter, default in parameters(text, RETURNED).items()
        if (words := spellings(default))
        and not any(word in inherited_entries(text)[parameter] for word in words)
    ]

    assert wrong == []


def test_a_docstring_says_what_is_returned_and_not_its_type():
    types = re.compile(r"[^:]*: |.*:$")  # before a colon, readers of the format expect a type
    returned = {
        name: section(text.doc, "Returns").partition("\n")[0] for name, text in TEXTS.items()
    }

    assert [name for name, line in returned.items() if types.match(line)] == []


def test_single_backticks_of_a_docstring_lead_to_a_public_name():
    wrong = {
        name: [
            link
            for link in re.findall(r"`([^`]+)`", re.sub(r"``.+?``", "", text.doc, flags=re.DOTALL))
            if not is_a_public_name(link, text.owner)
        ]
        for name, text in TEXTS.items()
    }

    assert {name: links for name, links in wrong.items() if links} == {}


def test_a_docstring_lists_the_errors_that_its_function_raises_itself():
    raised = re.compile(r"\braise ([A-Z]\w+Error)\(")
    missing = {
        name: sorted(
            error
            for error in set(raised.findall(own_source(text.thing)))
            if error not in text.doc and (error in PUBLIC or hasattr(builtins, error))
        )
        for name, text in TEXTS.items()
        if not name.endswith(".__call__")
    }

    assert {name: errors for name, errors in missing.items() if errors} == {}


def own_source(thing):
    """The source of a function; empty for what is none."""
    plain = getattr(thing, "__func__", getattr(thing, "fget", thing))
    return inspect.getsource(inspect.unwrap(plain)) if inspect.isfunction(plain) else ""


def test_code_in_a_docstring_is_marked_as_a_literal_block():
    unmarked = [
        name
        for name, text in TEXTS.items()
        if re.search(r"^(?!- )\S.*[^:\n]\n\n {4}\S", text.doc.partition("Args:")[0], re.MULTILINE)
    ]

    assert unmarked == []


def test_help_of_a_call_shows_its_options_with_unit_and_default():
    shown = " ".join(pydoc.plain(pydoc.render_doc(holdfast.Client.ask)).split())

    assert "``timeout`` (seconds; the client's own, 900, by default)" in shown


def test_pydoc_renders_all_that_is_public():
    assert "the A2A client" in pydoc.render_doc(holdfast)
    for thing in PUBLIC.values():
        if isinstance(thing, type):
            pydoc.render_doc(thing)
