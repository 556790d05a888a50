"""The tools stand on public seams: which private names they still import, and why.

The synchronous API, the doctor, the server and the test kit import the client from public modules,
as other people's programs do. A private name that one of them needs is a missing seam, and is
listed here with its reason. The integrations put the core below other people's clients, and their
names are listed as well.
"""

import ast

import pytest
from tests.kit.paths import ROOT

PACKAGE = ROOT / "src" / "holdfast"

HELPERS = {
    "_aio": "cancel scopes and other tools of asyncio",
    "_arguments": "checks of arguments: the same errors for every signature",
    "_asgi": "headers, bodies and short replies of ASGI applications",
    "_model.error_values": "numbers and short texts from what others send",
    "_model.extras": "the error of a missing extra",
    "_model.hosts": "hosts and IP addresses in normal form",
}
"""Private modules that every tool may use: they know nothing of calls, streams or agents."""

PURE = "a pure module, which must not import a public one that names engines"
CORE = "the layers of a call around the requests of another client"
ENGINE = "the retry engine of the client, for any transport of the SDK"
PROTOBUF = "the converter of protobuf messages, for those of the SDK"

TAKEN = {
    "_sync": {},
    "_doctor": {
        "_client.bare_client.BareClient": "single requests without policies, with the bindings",
        "_net.resolve_engine.resolve_engine": "the engine for engine= and tls=, as for connect",
        "_model.addresses.address_doubt": "the rule by which a client distrusts an address",
        "_net.proxies.Proxies": "whether a TLS connection would need a proxy",
        "_net.sockets.reason_of": "the system's words for a failed connection",
        "_pipeline.cards.verification.CardVerification": PURE,
        "_pipeline.versions.is_of_another_version": "the rule by which a client changes version",
        "_stream.fold.TaskFold": "the task that events add up to, as for a client's stream",
        "_wire.caching.http_date": "dates of HTTP, as a client reads them",
        "_wire.http.media_type": PURE,
        "_wire.network_scope.NetworkScope": PURE,
        "_wire.network_scope.scope_of_host": "the rule of SSRF protection for a host",
        "_wire.security.alternatives": "the credentials that a card requires",
        "_wire.security.describe_alternative": "their description in errors",
    },
    "_server": {
        "_model.addresses.is_http_address": "URLs of push notifications",
        "_model.codec": "JSON of the protocol with its errors",
        "_model.error_hops.as_hop": "the name of an agent in a chain of errors",
        "_model.installed_telemetry.installed_telemetry": "what HoldfastInstrumentor installs",
        "_wire.limits.check_json_size": "bounds on JSON before it is parsed",
        "_wire.network_scope.Network": "the type of allowed networks",
        "_wire.network_scope.scope_of": "the reason why a push URL is refused",
        "_wire.status.from_http_status": "the error of an HTTP status, as a client reads it",
    },
    "_testing": {
        "_integrations.raw_requests.ForeignReply": "the reply to another client's request",
        "_integrations.recognition.recognize": "the operation of another client's request",
        "_model.codec": "JSON of the protocol with its errors",
        "_model.settings.check_count": "numbers are checked as in all settings",
        "_wire.http.FRAMING": "headers of a connection, which a proxy does not pass on",
    },
    "_integrations": {
        "_client.answer.raise_for_outcome": "the errors of a task that an earlier process sent",
        "_client.client.journaling_of": "whether the journal knows a call of a crashed process",
        "_client.client.streaming": "stream_message with a complete request",
        "_client.client.subscribing": "subscribe_to_task with a limit for its first event",
        "_client.options.CALL_TIMEOUT": "the default timeout of connect",
        "_client.options.ClientOptions": "the options of connect without those of the card",
        "_journal.guard.journal_timeout": "as _client.client.journaling_of",
        "_journal.guard.wrap_journal_errors": "as above",
        "_journal.records.label_of": "as above",
        "_journal.writer.Journaling": "as above",
        "_net.resolve_engine.resolve_engine": "the engine for engine= and tls=, as for connect",
        "_model.codec.MalformedError": "JSON of the protocol with its errors",
        "_model.codec.UNREADABLE": "as above",
        "_model.error_reading.make_error_object": "an error of the SDK is read as one of an agent",
        "_model.installed_telemetry.install_telemetry": "the seam of HoldfastInstrumentor",
        "_model.installed_telemetry.installed_telemetry": "as above",
        "_pipeline.admission.Admission": CORE,
        "_pipeline.cards.resolver.FETCH_CARD": CORE,
        "_pipeline.layer_streams.OneEvent": CORE,
        "_pipeline.endpoints.KnownEndpoints": CORE,
        "_pipeline.http_binding.MAX_IDLE": CORE,
        "_pipeline.listeners.Observers": CORE,
        "_pipeline.order.layered_requests": CORE,
        "_pipeline.retry_engine.FailedAttempt": ENGINE,
        "_pipeline.retry_engine.RetryEngine": ENGINE,
        "_pipeline.transport.CallProgress": CORE,
        "_policy.budget.RetryBudget": ENGINE,
        "_policy.retry.RetryState": ENGINE,
        "_stream.artifact_texts.flattened": "the SDK's clients get events for a polled task",
        "_stream.difference.difference": "as above",
        "_version.__version__": "the version of the tracer and the meter",
        "_wire.bindings.codec_for": PURE,
        "_wire.grpc_status.NO_CONNECTION": "what a status of gRPC says about execution",
        "_wire.http.FRAMING": "headers of a connection, which the engine sets",
        "_wire.http.HttpReply": PURE,
        "_wire.limits.Limits": PURE,
        "_wire.limits.check_json_size": PURE,
        "_wire.protobuf.details.read_details": PROTOBUF,
        "_wire.protobuf.reading.reader": PROTOBUF,
        "_wire.protobuf.values.UnrepresentableError": PROTOBUF,
        "_wire.protobuf.writing.writer": PROTOBUF,
        "_wire.raw_replies.read_raw_error": "the error in a reply whose operation is not known",
        "_wire.sse.EventStreamParser": "streams that another client reads",
        "_wire.sse.ServerSentEvent": PURE,
        "_wire.status.REFUSALS": "what an HTTP status says about execution",
    },
}
"""The private names of other packages that each tool imports, and why."""


def private_imports(package):
    """The names that a package imports from the private modules of others."""
    names = set()
    for path in (PACKAGE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast._"):
                module = node.module.removeprefix("holdfast.")
                if module.split(".")[0] != package:
                    names |= {f"{module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names |= {
                    alias.name.removeprefix("holdfast.")
                    for alias in node.names
                    if alias.name.startswith("holdfast._")
                }
    return {
        name
        for name in names
        if not any(name == helper or name.startswith(f"{helper}.") for helper in HELPERS)
    }


@pytest.mark.parametrize("package", TAKEN)
def test_a_tool_imports_no_other_private_name(package):
    assert sorted(private_imports(package)) == sorted(TAKEN[package])
