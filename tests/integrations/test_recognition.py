"""Which operation a foreign request is, and above all: which one must not run twice."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast._integrations.recognition import recognize
from holdfast.protocol import OPERATIONS

HOST = "http://agent.test"
RPC = [
    (name, operation, version)
    for operation in OPERATIONS.values()
    for name, version in ((operation.name, "1.0"), (operation.method_v03, "0.3"))
    if name
]
REST = [
    (verb, re.sub(r"\{\w+\}", "a%2Fb", template), operation, version)
    for operation in OPERATIONS.values()
    for template, version in ((operation.path, "1.0"), (operation.path_v03, "0.3"))
    for verb in (operation.verb, operation.other_verb)
    if verb and template
]
SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}


def call(method, **more):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}, **more}).encode()


@pytest.mark.parametrize(("name", "operation", "version"), RPC)
def test_a_method_of_either_version_is_its_operation(name, operation, version):
    found = recognize("POST", f"{HOST}/a2a/v1?key=1", call(name))

    assert found.operation is operation
    assert (found.binding, found.version, found.base) == ("JSONRPC", version, "/a2a/v1")


@pytest.mark.parametrize("prefix", ["", "/base", "/base/tenant"])
@pytest.mark.parametrize(("verb", "path", "operation", "version"), REST)
def test_a_path_of_either_version_is_its_operation_wherever_it_begins(
    verb, path, operation, version, prefix
):
    found = recognize(verb, f"{HOST}{prefix}{path}?historyLength=1", b"")

    assert found.operation is operation
    assert (found.binding, found.version, found.base) == ("HTTP+JSON", version, prefix)


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/x/.well-known/agent.json"])
def test_a_card_is_read(path):
    found = recognize("GET", HOST + path, b"")

    assert (found.operation.name, found.operation.safety) == ("GetAgentCard", "read")
    assert not found.operation.streaming


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" + call("GetTask") + b"]", "a batch may hold anything"),
        (call("tasks/unheardOf"), "nobody knows the method"),
        (call("GetTask", jsonrpc="1.0"), "another protocol"),
        (b'{"method": "GetTask"}', "no envelope"),
        (call(7), "no method"),
        (call("GetTask")[:-1], "no JSON"),
        (b"\xef\xbb\xbf" + call("GetTask"), "a mark that not all take"),
        (b"[" * 100_000, "nested"),
        (b"", "nothing"),
    ],
)
def test_call_with_unknown_outcome_is_not_sent_again(body, why):
    found = recognize("POST", f"{HOST}/rpc", body)

    assert found.operation.safety == "conditional", why
    assert not found.is_known


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST", "QUERY", "get-it"])
def test_other_verbs_are_not_taken_at_their_word(method):
    assert recognize(method, f"{HOST}/anything", b"").operation.safety == "conditional"


@pytest.mark.parametrize("method", sorted(SAFE))
def test_http_itself_says_what_changes_nothing(method):
    found = recognize(method, f"{HOST}/anything", call("SendMessage"))

    assert found.operation.safety == "read"
    assert found.operation.name == f"HTTP {method}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tasks/1:cancel", call("SendMessage")),
        ("/tasks/1:subscribe", call("message/stream")),
        ("/tasks/1:cancel", call("unheardOf")),
        ("/tasks/1:cancel", b"[" + call("SendMessage") + b"]"),
        ("/message:send", call("GetTask")),
        ("/message:stream", call("CancelTask")),
    ],
)
def test_where_path_and_body_differ_it_must_not_run_twice(path, body):
    assert recognize("POST", HOST + path, body).operation.safety == "conditional"


def test_parameters_of_rest_are_no_envelope():
    body = b'{"metadata": {"jsonrpc": "2.0", "method": "SendMessage"}}'

    assert recognize("POST", f"{HOST}/tasks/1:cancel", body).operation.name == "CancelTask"


names = st.sampled_from([name for name, _, _ in RPC]) | st.text(max_size=20)
documents = st.dictionaries(
    st.sampled_from(["jsonrpc", "method", "id", "params"]) | st.text(max_size=5),
    st.just("2.0") | names | st.none() | st.integers(),
)
bodies = st.binary(max_size=200) | st.one_of(
    documents, st.lists(documents), names.map(lambda name: json.loads(call(name)))
).map(lambda document: json.dumps(document).encode())
paths = st.sampled_from([path for _, path, _, _ in REST]) | st.text(max_size=40)
verbs = st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "post"]) | st.text(max_size=8)
HARMLESS = {name for name, operation, _ in RPC if operation.safety != "conditional"}


@given(verbs, st.sampled_from([HOST, "", "http://["]), st.text(max_size=10) | paths, paths, bodies)
@example("POST", HOST, "", "/tasks/1:cancel", call("SendMessage"))
@example("DELETE", HOST, "/tasks/1/pushNotificationConfigs", "/message:send", b"")
def test_nothing_breaks_it_and_nothing_harmful_passes_for_harmless(verb, host, prefix, path, body):
    found = recognize(verb, host + prefix + path, body)

    if found.operation.safety == "conditional" or verb.upper() in SAFE:
        return
    if verb.upper() == "DELETE":
        assert "/pushNotificationConfigs/" in prefix + path
        return
    assert verb.upper() == "POST"
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and "jsonrpc" in document:
        assert document["method"] in HARMLESS
    else:
        assert re.search(r"/tasks/[^/]+:(cancel|subscribe)($|[?#])", prefix + path)
        assert isinstance(document, dict) or not body.strip()
