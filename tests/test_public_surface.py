"""The public names: all there, all documented, cheap to import, and changed only on purpose."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
import holdfast.testing
from holdfast.options import CreateOptions

PACKAGE = Path(holdfast.__file__).parent


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


@pytest.mark.parametrize("module", [holdfast, holdfast.testing])
def test_the_names_are_sorted_and_there_once(module):
    assert list(module.__all__) == sorted(set(module.__all__))


@pytest.mark.parametrize("module", [holdfast, holdfast.testing])
def test_every_name_resolves(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_type_checkers_see_the_same_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())

    assert sorted(imported_names(tree, under_type_checking=True)) == list(holdfast.__all__)


def test_type_checkers_see_each_name_where_it_is_found():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    for statement in block.body:
        home = importlib.import_module(statement.module)
        for alias in statement.names:
            assert alias.name in home.__all__
            assert getattr(home, alias.name) is getattr(holdfast, alias.name)


def test_the_testing_kit_exports_what_it_imports():
    tree = ast.parse((PACKAGE / "testing" / "__init__.py").read_text())
    names = imported_names(tree, under_type_checking=False)

    assert sorted(name for name in names if name != "annotations") == holdfast.testing.__all__


def test_dir_lists_the_names():
    assert dir(holdfast) == list(holdfast.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'nothing'"):
        _ = holdfast.nothing


def test_no_two_modules_export_different_things_by_one_name():
    homes = {}
    for path in PACKAGE.rglob("*.py"):
        if {"testing", "cli"} & set(path.relative_to(PACKAGE).parts) or path.stem == "__main__":
            continue
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(("holdfast", *(part for part in parts if part != "__init__")))
        if name == "holdfast":
            continue
        module = importlib.import_module(name)
        for exported in set(getattr(module, "__all__", ())) & set(holdfast.__all__):
            homes.setdefault(exported, set()).add(id(getattr(module, exported)))

    assert [name for name, values in homes.items() if len(values) > 1] == []


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


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


# ── Signatures ───────────────────────────────────────────────────────────────────────────────

# "name" is positional, "*name" by keyword only, "name=…" has that default. Whoever changes a line
# here changes what callers have written.
SIGNATURES = {
    "ask": "agent message **options",
    "connect": (
        "agent *auth=None *timeout=900.0 *card_ttl=300.0 *resilience=None *limits=None "
        "*engine=None *shared=None *env=None *url=None *tenant=None *bindings=() "
        "*supported_protocol_bindings=() *transport_producers=None *configuration=None "
        "*headers=None *credential_origins=() *allowed_networks=() *interceptors=() *consumers=() "
        "*observers=() *call_layers=() *attempt_layers=()"
    ),
    "make_error": "code message data=None",
    "create_text_message_object": "role=<Role.USER: 'ROLE_USER'> content=''",
    "minimal_agent_card": "url transports=None",
    "text_part": "text *media_type=None",
    "data_part": "data *media_type=None",
    "file_part": "path *media_type=None *filename=None",
    "url_part": "url *media_type=None *filename=None",
    "A2ACardResolver.close": "self",
    "A2ACardResolver.get_agent_card": ("self relative_card_path=None *headers=None *timeout=None"),
    "ClientFactory.create": "self agent / consumers=None interceptors=None **options",
    "ClientFactory.register": "self label producer",
    "Client.add_event_consumer": "self consumer",
    "Client.add_request_middleware": "self interceptor",
    "Client.agent_card": "self *timeout=None",
    "Client.ask": (
        "self message *task_id=None *context_id=None *metadata=None *accepted_output_modes=None "
        "*push_notification_config=None *poll_interval=2.0 **options"
    ),
    "Client.call": "self operation params **options",
    "Client.cancel_task": (
        "self task_id *confirm=True *metadata=None *poll_interval=2.0 **options"
    ),
    "Client.close": "self",
    "Client.create_task_push_notification_config": "self config **options",
    "Client.delete_task_push_notification_config": "self task_id config_id **options",
    "Client.discover": "self",
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
    "Client.send_message": (
        "self message *task_id=None *context_id=None *metadata=None *return_immediately=None "
        "*history_length=None *accepted_output_modes=None *push_notification_config=None "
        "**options"
    ),
    "Client.wait": ("self task_id *until=None *poll_interval=2.0 **options"),
    "Resilience.standard": "",
    "Resilience.off": "",
    "Interceptor.before": "self call",
    "Interceptor.after": "self call outcome",
    "AuthProvider.credentials": "self call /",
    "AuthProvider.on_unauthorized": "self call error /",
    "AuthInterceptor.credentials": "self call /",
    "AuthInterceptor.on_unauthorized": "self call _error /",
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
    "Transport.unary": "self call /",
    "Transport.close": "self",
    "Env.wall": "self",
    "Env.random": "self",
    "Env.new_id": "self",
}


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


def public_methods(owner):
    return sorted(
        name
        for name, value in vars(owner).items()
        if not name.startswith("_") and callable(getattr(value, "__func__", value))
    )


@pytest.mark.parametrize("path", SIGNATURES)
def test_a_signature_is_as_promised(path):
    owner, _, name = path.rpartition(".")
    function = getattr(getattr(holdfast, owner) if owner else holdfast, name)

    assert written(inspect.signature(function)) == SIGNATURES[path]


@pytest.mark.parametrize(
    "owner",
    [
        "A2ACardResolver",
        "AuthInterceptor",
        "AuthProvider",
        "Client",
        "ClientFactory",
        "CredentialService",
        "Env",
        "HttpEngine",
        "InMemoryContextCredentialStore",
        "Interceptor",
        "SchemeCredentials",
        "Transport",
    ],
)
def test_every_method_is_in_the_table(owner):
    promised = sorted(p.rpartition(".")[2] for p in SIGNATURES if p.startswith(f"{owner}."))

    assert public_methods(getattr(holdfast, owner)) == promised


def test_every_public_function_is_in_the_table():
    functions = [name for name in holdfast.__all__ if inspect.isfunction(getattr(holdfast, name))]

    assert sorted(functions) == sorted(path for path in SIGNATURES if "." not in path)


CALL_OPTIONS = ["timeout", "headers", "extensions", "context"]


def test_the_options_of_a_call_are_as_promised():
    assert list(holdfast.CallOptions.__annotations__) == CALL_OPTIONS


def test_the_options_of_connect_are_its_own_keywords():
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(holdfast.connect).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    options = holdfast.ConnectOptions.__annotations__

    assert {name: kind.__forward_arg__ for name, kind in options.items()} == keywords
    assert holdfast.ConnectOptions.__required_keys__ == frozenset()


def test_a_factory_takes_every_option_of_connect():
    own = set(inspect.signature(holdfast.ClientFactory.create).parameters)

    assert set(CreateOptions.__annotations__) == set(holdfast.ConnectOptions.__annotations__) - own


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


@pytest.mark.parametrize("module", [holdfast, holdfast.testing])
def test_everything_public_is_documented(module):
    assert undocumented(module) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_every_module_says_what_it_owns(path):
    assert ast.get_docstring(ast.parse(path.read_text()))
