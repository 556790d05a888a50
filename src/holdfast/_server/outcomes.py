"""Ends of a turn other than an answer: it needs input or authorization, is rejected, or fails.

    raise requires_input("Which city?")

Each is an exception that a function of the same name creates; agents may raise or return it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from holdfast._arguments import check_kind, check_not_empty, check_seconds
from holdfast.client import to_message
from holdfast.errors import InternalError
from holdfast.types import Role, TaskState

if TYPE_CHECKING:
    from holdfast.client import Content
    from holdfast.errors import A2AError
    from holdfast.types import Message

__all__ = [
    "AuthRequired",
    "InputRequired",
    "Rejected",
    "TurnOutcome",
    "agent_message",
    "fail",
    "reject",
    "requires_auth",
    "requires_input",
]


class TurnOutcome(Exception):  # noqa: N818  an end is not an error
    """The end of a turn, which leaves the task in a state; raised or returned.

    Attributes:
        state: The state of the task.
        content: The status message, as it was passed.
    """

    state: ClassVar[TaskState]

    def __init__(self, content: Content) -> None:
        agent_message(content, new_id="-")  # raises here, where the mistake was made
        super().__init__(content)
        self.content = content


class InputRequired(TurnOutcome):
    """The task waits for another message: INPUT_REQUIRED."""

    state = TaskState.INPUT_REQUIRED


class AuthRequired(TurnOutcome):
    """The task waits for an authorization: AUTH_REQUIRED (A2A 7.6)."""

    state = TaskState.AUTH_REQUIRED


class Rejected(TurnOutcome):
    """The agent refuses the task: REJECTED."""

    state = TaskState.REJECTED


def requires_input(prompt: Content) -> InputRequired:
    """Return the end of a turn that needs input from the user; raise it.

    The task becomes INPUT_REQUIRED. The next message of the task goes to the same function or
    executor, with the question in `AgentTurn.asked` and earlier messages in `AgentTurn.history`.

    Args:
        prompt: The question: text, parts or a message.

    Raises:
        ValueError: The prompt is empty, or a part of it is not valid.
        TypeError: It is not text, parts or a message.

    Example:
        Ask the caller for a city::

            from holdfast.server import requires_input


            def answer(message):
                if "Paris" not in message.text:
                    raise requires_input("Which city?")
                return "It rains."
    """
    return InputRequired(prompt)


def requires_auth(prompt: Content) -> AuthRequired:
    """Return the end of a turn that needs an authorization; raise it.

    The task becomes AUTH_REQUIRED (A2A 7.6).

    Args:
        prompt: Instructions for the authorization: text, parts or a message; never a secret.

    Raises:
        ValueError: The prompt is empty, or a part of it is not valid.
        TypeError: It is not text, parts or a message.
    """
    return AuthRequired(prompt)


def reject(reason: Content) -> Rejected:
    """Return the end of a turn that the agent refuses; raise it.

    The task becomes REJECTED.

    Args:
        reason: Reason for the refusal: text, parts or a message.

    Raises:
        ValueError: The reason is empty, or a part of it is not valid.
        TypeError: It is not text, parts or a message.
    """
    return Rejected(reason)


def fail(text: str, *, retryable: bool = False, retry_after: float | None = None) -> A2AError:
    """Return a failure whose text the client sees; raise it.

    The task becomes FAILED with this text. Of an exception that is not an `A2AError`, the client
    sees only "internal error".

    Args:
        text: The status message.
        retryable: Whether a retry may succeed; always so if ``retry_after`` is given. False by
            default.
        retry_after: Seconds after which to retry; None for no advice.

    Raises:
        ValueError: The text is empty, or ``retry_after`` is not a positive number.
        TypeError: An argument has the wrong type.

    Example:
        Fail, and advise a retry after a minute::

            from holdfast.server import fail


            def answer(message):
                raise fail("The shop is closed.", retry_after=60)
    """
    check_kind("text", text, str)
    check_not_empty("text", text)
    check_kind("retryable", retryable, bool)
    if retry_after is not None:
        check_seconds("retry_after", retry_after)
    return InternalError(
        text, transient=retryable or retry_after is not None, retry_after=retry_after
    )


def agent_message(
    content: Content, *, new_id: str, task_id: str | None = None, context_id: str | None = None
) -> Message:
    """Return a message of the agent.

    Raises:
        ValueError: The content is empty, or a part of it is not valid.
        TypeError: It is not text, parts or a message.
    """
    message = to_message(content, new_id=new_id)
    return msgspec.structs.replace(
        message, role=Role.AGENT, task_id=task_id, context_id=context_id
    )
