"""The outcome of a call by its error, and the digest of its message."""

import asyncio

import pytest

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AuthenticationError,
    DeadlineExceededError,
    Message,
    OutcomeUnknownError,
    Part,
    RateLimitedError,
    Role,
)
from holdfast._journal.outcome import outcome_of
from holdfast._model.digest import message_digest
from holdfast.errors import (
    AgentError,
    DuplicateTasksError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    JournalError,
    LimitExceededError,
    ReconnectError,
    TaskAuthRequiredError,
    VersionNotSupportedError,
)
from holdfast.types import Task


def deadline(executed):
    return DeadlineExceededError(deadline="call", timeout=1.0, executed=executed)


UNKNOWN = OutcomeUnknownError(message_id="m")
DUPLICATES = DuplicateTasksError(message_id="m", tasks=())

# An error; what it says of a message that had not been sent for certain, and of one that had.
OUTCOMES = [
    (UNKNOWN, "unknown", "unknown"),
    (DUPLICATES, "duplicated", "duplicated"),
    (A2AConnectionError(failure="refused", executed=False), "not_sent", None),
    (A2ATimeoutError(phase="connect", executed=False), "not_sent", None),
    (RateLimitedError(executed=False), "not_sent", None),
    (deadline(executed=False), "not_sent", None),
    (VersionNotSupportedError("which?", code=-32009), "refused", None),
    (InvalidParamsError("what?", code=-32602), "refused", None),
    (InvalidAgentResponseError("not I", code=-32006), "refused", None),
    (AgentError("no", code=-32042), "refused", None),
    (InternalError("oops", code=-32603, transient=True), "unknown", None),
    (AgentError("later", code=-32042, transient=True), "unknown", None),
    (AuthenticationError("who?", http_status=401, code=-32602), "refused", None),
    (InvalidAgentResponseError("the reply is not JSON"), None, None),
    (A2AHTTPError("HTTP 501", http_status=501), None, None),
    (LimitExceededError("too large", which="body", bound=1), None, None),
    (A2AConnectionError("again", failure="closed", code=-32603), None, None),
    (A2AError("what?", executed=True), None, None),
    (A2AConnectionError(failure="reset"), None, None),
    (A2ATimeoutError(phase="idle"), None, None),
    (deadline(executed=None), None, None),
    (deadline(executed=True), None, None),
    (ReconnectError("cut"), None, None),
    (TaskAuthRequiredError(task=Task(id="t")), None, None),
    (JournalError("taken over"), None, None),
    (JournalError("taken over", executed=False), None, None),
    (asyncio.CancelledError(), None, None),
    (ValueError(), None, None),
]


@pytest.mark.parametrize(
    ("error", "before", "after"), OUTCOMES, ids=[type(error).__name__ for error, *_ in OUTCOMES]
)
def test_outcome_of_each_error(error, before, after):
    assert outcome_of(error, was_sent=False) == before
    assert outcome_of(error, was_sent=True) == after


CONTENT = Message(
    message_id="m",
    role=Role.USER,
    parts=(Part(text="How far?"), Part(data={"a": 1, "b": [2]}), Part(raw=b"\x00")),
    metadata={"x": 1, "y": 2},
    extensions=("urn:e",),
    reference_task_ids=("t",),
)


def replaced(**changes):
    return message_digest(Message.from_dict({**CONTENT.to_dict(), **changes}))


def test_message_digest_covers_everything_but_the_id():
    assert replaced(messageId="n") == message_digest(CONTENT)
    assert replaced(metadata={"y": 2, "x": 1}) == message_digest(CONTENT)
    assert len(bytes.fromhex(message_digest(CONTENT))) == 8
    empty = Message(parts=CONTENT.parts, metadata={}, context_id="", task_id="")
    assert message_digest(empty) == message_digest(Message(parts=CONTENT.parts))


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [{"text": "How near?"}]},
        {"metadata": {"x": 1}},
        {"extensions": []},
        {"referenceTaskIds": ["u"]},
        {"role": "ROLE_AGENT"},
        {"contextId": "c"},
        {"taskId": "t"},
    ],
)
def test_message_digest_differs_for_another_content(change):
    assert replaced(**change) != message_digest(CONTENT)


def test_message_digest_accepts_lone_surrogates():
    assert message_digest(Message(parts=(Part(text="\ud800"),)))
