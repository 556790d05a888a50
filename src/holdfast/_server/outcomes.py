"""How a turn ends other than by an answer: it asks, refuses, or fails in words of its own.

    raise requires_input("Which city?")

Each is an exception, made by a function of its name; a function may return it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from holdfast._arguments import check_kind, check_seconds, not_empty
from holdfast._client.content import to_message
from holdfast.errors import InternalError
from holdfast.types import Role, TaskState

if TYPE_CHECKING:
    from holdfast._client.content import Content
    from holdfast.errors import A2AError
    from holdfast.types import Message

__all__ = [
    "AuthRequired",
    "Ending",
    "InputRequired",
    "Rejected",
    "agent_message",
    "fail",
    "reject",
    "requires_auth",
    "requires_input",
]


class Ending(Exception):  # noqa: N818  none of them is an error
    """The end of a turn, in a state of the task's; raised, or returned.

    Attributes:
        state: The state.
        content: What the agent says with it, as it was given.
    """

    state: ClassVar[TaskState]

    def __init__(self, content: Content) -> None:
        agent_message(content, new_id="-")  # so that what is wrong shows where it was written
        super().__init__(content)
        self.content = content


class InputRequired(Ending):
    """The task waits for another message: INPUT_REQUIRED."""

    state = TaskState.INPUT_REQUIRED


class AuthRequired(Ending):
    """The task waits for an authorization: AUTH_REQUIRED (A2A 7.6)."""

    state = TaskState.AUTH_REQUIRED


class Rejected(Ending):
    """The agent does not do it: REJECTED."""

    state = TaskState.REJECTED


def requires_input(prompt: Content) -> InputRequired:
    """The end of a turn that needs to know more; raise it.

        raise requires_input("Which city?")

    The task goes to INPUT_REQUIRED. The next message on it comes to the same function or executor,
    with what was asked in `AgentTurn.asked`, and what was said before in `AgentTurn.history`.

    Args:
        prompt: What is asked: text, parts or a message.

    Raises:
        ValueError: There is nothing in it, or a part is not right.
        TypeError: It is nothing that can be said.
    """
    return InputRequired(prompt)


def requires_auth(prompt: Content) -> AuthRequired:
    """The end of a turn that needs an authorization: the task goes to AUTH_REQUIRED (A2A 7.6).

    Args:
        prompt: What is needed, and where; never a secret.

    Raises:
        ValueError: There is nothing in it, or a part is not right.
        TypeError: It is nothing that can be said.
    """
    return AuthRequired(prompt)


def reject(reason: Content) -> Rejected:
    """The end of a turn that is not for this agent: the task goes to REJECTED.

    Args:
        reason: Why.

    Raises:
        ValueError: There is nothing in it, or a part is not right.
        TypeError: It is nothing that can be said.
    """
    return Rejected(reason)


def fail(text: str, *, retryable: bool = False, retry_after: float | None = None) -> A2AError:
    """A failure in words that are meant; raise it.

        raise fail("The shop is closed.", retry_after=60)

    The task goes to FAILED with this text. Of any exception that is no `A2AError` the client sees
    nothing but "internal error".

    Args:
        text: What is told.
        retryable: Whether it may help to try again; it may where there is a time for it.
        retry_after: In how many seconds.

    Raises:
        ValueError: The text is empty, or the time cannot be waited for.
        TypeError: An argument of another type.
    """
    check_kind("text", text, str)
    not_empty("text", text)
    check_kind("retryable", retryable, bool)
    if retry_after is not None:
        check_seconds("retry_after", retry_after)
    return InternalError(
        text, transient=retryable or retry_after is not None, retry_after=retry_after
    )


def agent_message(
    content: Content, *, new_id: str, task_id: str | None = None, context_id: str | None = None
) -> Message:
    """What an agent says, as a message of its own.

    Raises:
        ValueError: There is nothing in it, or a part is not right.
        TypeError: It is nothing that can be said.
    """
    message = to_message(content, new_id=new_id)
    return msgspec.structs.replace(
        message, role=Role.AGENT, task_id=task_id, context_id=context_id
    )
