"""Holdfast's errors as the SDK's: every kind, what the SDK itself would give, and the facts."""

import copy
import inspect
import pickle

import pytest
from a2a.client import errors as client_errors
from a2a.client.transports import jsonrpc
from a2a.client.transports.rest import _parse_rest_error
from a2a.utils import errors as sdk

from holdfast import errors
from holdfast._integrations.a2a_sdk.errors import to_sdk_error
from holdfast._wire.status import from_rest_status
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    Attempt,
    DuplicateTasksError,
    InvalidAgentResponseError,
    OutcomeUnknownError,
    RateLimitedError,
    TaskNotFoundError,
)
from holdfast.extend import HttpReply
from holdfast.integrations.a2a_sdk import CallFailedError, CallTimeoutError
from holdfast.types import Task

TASK = Task(id="t-1")
TREE = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, A2AError)
}

# What the constructors ask for.
ARGUMENTS = {
    "failure": "refused",
    "phase": "first_byte",
    "origin": "https://elsewhere.example:443",
    "extensions": ("urn:x",),
    "which": "max_body",
    "bound": 1.0,
    "task": TASK,
    "tasks": (TASK,),
    "deadline": "call",
    "timeout": 5.0,
    "message_id": "m-1",
    "outcome": "unknown",
    "key": "k",
}

# What becomes of each kind that the agent or a card names; a new kind has to be put somewhere.
BY_NAME = {
    "TaskNotFoundError": sdk.TaskNotFoundError,
    "TaskNotCancelableError": sdk.TaskNotCancelableError,
    "PushNotificationNotSupportedError": sdk.PushNotificationNotSupportedError,
    "UnsupportedOperationError": sdk.UnsupportedOperationError,
    "ContentTypeNotSupportedError": sdk.ContentTypeNotSupportedError,
    "InvalidAgentResponseError": sdk.InvalidAgentResponseError,
    "ExtendedAgentCardNotConfiguredError": sdk.ExtendedAgentCardNotConfiguredError,
    "ExtensionSupportRequiredError": sdk.ExtensionSupportRequiredError,
    "VersionNotSupportedError": sdk.VersionNotSupportedError,
    "ParseError": getattr(sdk, "JSONParseError", CallFailedError),  # not in 1.0
    "InvalidRequestError": sdk.InvalidRequestError,
    "MethodNotFoundError": sdk.MethodNotFoundError,
    "InvalidParamsError": sdk.InvalidParamsError,
    "InternalError": sdk.InternalError,
    "AgentCardResolutionError": client_errors.AgentCardResolutionError,
    "InvalidAgentCardError": client_errors.AgentCardResolutionError,
}
TIMEOUTS = {"A2ATimeoutError", "DeadlineExceededError"}
FAILURES = {
    "A2AError",
    "AgentError",
    "A2AConnectionError",
    "A2AHTTPError",
    "AuthenticationError",
    "PermissionDeniedError",
    "RateLimitedError",
    "CardSignatureError",
    "CredentialOriginError",
    "NetworkPolicyError",
    "ExtensionNotSupportedError",
    "ClientToolsNotSupportedError",
    "LimitExceededError",
    "TaskTerminalError",
    "TaskFailedError",
    "TaskRejectedError",
    "TaskCanceledError",
    "TaskInterruptedError",
    "TaskInputRequiredError",
    "TaskAuthRequiredError",
    "CircuitOpenError",
    "QueueFullError",
    "OutcomeUnknownError",
    "DuplicateTasksError",
    "CallEndedError",
    "KeyConflictError",
    "ReconnectError",
    "CancelUnconfirmedError",
    "NotEnoughResultsError",
    "JournalError",
}


def made(kind, **facts):
    """An error of a kind, with whatever its constructor wants."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    needed = {
        parameter.name: ARGUMENTS[parameter.name]
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }
    return kind("it broke", **needed, **facts)


# ── Every kind ───────────────────────────────────────────────────────────────────────────────


def test_every_kind_of_the_tree_has_its_place():
    assert set(TREE) == set(BY_NAME) | TIMEOUTS | FAILURES


@pytest.mark.parametrize("name", BY_NAME)
def test_what_the_protocol_names_is_the_class_of_that_name(name):
    kind = TREE[name]
    error = made(kind, code=kind.entry.code, agent="http://a/")

    told = to_sdk_error(error)

    assert type(told) is BY_NAME[name]
    assert str(told) == told.message == str(error) == "it broke (agent http://a/)"


@pytest.mark.parametrize("name", sorted(TIMEOUTS))
def test_a_wait_that_was_over_is_a_timeout_of_the_client(name):
    told = to_sdk_error(made(TREE[name]))

    assert type(told) is CallTimeoutError
    assert isinstance(told, client_errors.A2AClientTimeoutError)


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_everything_else_is_a_failed_call(name):
    error = made(TREE[name], agent="http://a/")

    told = to_sdk_error(error)

    assert type(told) is CallFailedError
    assert str(told) == told.message == str(error) == "it broke (agent http://a/)"
    assert isinstance(told, client_errors.A2AClientError)
    assert not isinstance(told, client_errors.A2AClientTimeoutError)


def test_a_kind_of_a_programs_own_is_what_its_base_is():
    class MineError(TaskNotFoundError):
        pass

    assert type(to_sdk_error(MineError("gone"))) is sdk.TaskNotFoundError


def test_a_reply_that_cannot_be_read_is_no_answer_of_the_agent():
    assert type(to_sdk_error(InvalidAgentResponseError("no JSON"))) is CallFailedError
    told = to_sdk_error(InvalidAgentResponseError("so it says", code=-32006))
    assert type(told) is sdk.InvalidAgentResponseError


@pytest.mark.parametrize("name", ["OutcomeUnknownError", "ReconnectError"])
def test_what_was_lost_for_lateness_is_a_timeout(name):
    late, broken = made(TREE[name]), made(TREE[name])
    late.__cause__ = made(A2ATimeoutError)
    broken.__cause__ = made(A2AConnectionError)

    assert type(to_sdk_error(late)) is CallTimeoutError
    assert type(to_sdk_error(broken)) is CallFailedError


# ── What the SDK itself would give ───────────────────────────────────────────────────────────

INFO = "type.googleapis.com/google.rpc.ErrorInfo"
DETAILS = [
    [],
    [{"@type": INFO, "reason": "X", "domain": "a2a-protocol.org"}],
    [{"@type": INFO, "reason": "X", "metadata": {}}],
    [{"@type": INFO, "reason": "X", "metadata": {"taskId": "t-1"}}],
    [{"@type": INFO}, {"@type": INFO, "metadata": {"second": "one"}}],
    [{"@type": "x/google.rpc.RetryInfo"}, 7, {"@type": INFO, "metadata": {"a": "b"}}],
    [{"@type": "elsewhere/google.rpc.ErrorInfo", "metadata": {"a": "b"}}],
    {"some": "object"},
    "text",
    None,
]
# Over JSON-RPC the SDK's first versions gave data as received; over HTTP none of them did.
READS_DETAILS = hasattr(jsonrpc, "_ERROR_INFO_TYPE")
CODES = sorted(sdk.JSON_RPC_ERROR_CODE_MAP.values())


@pytest.mark.parametrize("details", DETAILS, ids=str)
@pytest.mark.parametrize("code", [*CODES, -32050])
def test_an_error_over_json_rpc_is_what_the_sdk_makes_of_it(code, details):
    answer = {"code": code, "message": "no", "data": details}
    theirs = jsonrpc.JsonRpcTransport._create_jsonrpc_error(object(), answer)

    ours = to_sdk_error(A2AError.from_jsonrpc(answer))

    assert isinstance(ours, type(theirs))
    assert ours.data == theirs.data or not READS_DETAILS
    assert "no" in ours.message


@pytest.mark.parametrize("metadata", [None, {}, {"taskId": "t-1"}], ids=str)
@pytest.mark.parametrize("reason", sorted(sdk.A2A_REASON_TO_ERROR))
def test_an_error_over_http_is_what_the_sdk_makes_of_it(reason, metadata):
    info = {"@type": INFO, "reason": reason, "domain": "a2a-protocol.org"}
    if metadata is not None:
        info["metadata"] = metadata
    status = {"code": 400, "status": "INVALID_ARGUMENT", "message": "no", "details": [info]}
    theirs = _parse_rest_error({"error": status}, "")

    ours = to_sdk_error(from_rest_status(status, HttpReply(status=400), now=0.0))

    assert type(ours) is type(theirs)
    assert ours.data == theirs.data


# ── The facts ────────────────────────────────────────────────────────────────────────────────

ATTEMPTS = (
    Attempt(number=1, agent="http://a/", started=0.0, duration=0.5, error="503", wait=1.0),
    Attempt(number=2, agent="http://a/", started=1.5, duration=0.5, error="429"),
)
FACTS = {
    "executed": False,
    "transient": True,
    "retry_after": 7.0,
    "attempts": ATTEMPTS,
    "http_status": 429,
}


def facts_of(error):
    return {name: getattr(error, name) for name in [*FACTS, "message_id"]}


def test_a_failed_call_has_the_facts():
    told = to_sdk_error(RateLimitedError("slow down", **FACTS))

    assert facts_of(told) == {**FACTS, "message_id": None}


def test_a_timeout_has_the_facts():
    told = to_sdk_error(A2ATimeoutError("late", phase="connect", **FACTS))

    assert facts_of(told) == {**FACTS, "message_id": None}


@pytest.mark.parametrize("kind", [OutcomeUnknownError, DuplicateTasksError])
def test_what_is_about_a_message_names_it(kind):
    assert to_sdk_error(made(kind)).message_id == "m-1"


def test_a_card_that_was_not_found_tells_its_status():
    told = to_sdk_error(errors.AgentCardResolutionError("none", http_status=404))

    assert told.status_code == 404


def test_one_that_a_program_raises_itself_knows_nothing():
    assert facts_of(CallFailedError("no")) == {
        "executed": None,
        "transient": False,
        "retry_after": None,
        "attempts": (),
        "http_status": None,
        "message_id": None,
    }


@pytest.mark.parametrize("name", sorted(TREE))
@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_they_go_through_pickle_and_copy_with_their_facts(name, through):
    details = [{"@type": INFO, "metadata": {"taskId": "t-1"}}]
    told = to_sdk_error(made(TREE[name], code=TREE[name].entry.code, details=details, **FACTS))

    again = through(told)

    assert type(again) is type(told)
    assert (str(again), again.message, again.data) == (str(told), told.message, told.data)
    assert vars(again) == vars(told)


def test_cause_is_holdfasts_error_whichever_layer_raises_it():
    error = A2AHTTPError("no", http_status=503)

    with pytest.raises(client_errors.A2AClientError) as caught:
        raise to_sdk_error(error) from error

    assert caught.value.__cause__ is error
