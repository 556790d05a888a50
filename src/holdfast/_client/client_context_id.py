"""A context of the client's own for a message that begins a conversation, to be found by there.

The protocol leaves it to agents whether to take one (A2A 3.4.1): one that refuses it gets the
message once more without, and from then on every message.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from holdfast._model.operations import LIST_TASKS
from holdfast.errors import A2AError, InvalidParamsError, TaskNotFoundError
from holdfast.types import ListTasksRequest

if TYPE_CHECKING:
    from holdfast._client.core import Calls, PerCall
    from holdfast._policy.deadline import Deadline
    from holdfast.types import SendMessageRequest

__all__ = ["in_own_context", "is_context_refused", "without_context"]

_CONTEXT_ID = re.compile(r"context[\s_-]?id", re.IGNORECASE)


def in_own_context(request: SendMessageRequest, calls: Calls) -> SendMessageRequest | None:
    """The message in a context of its own; None where it has a place, or is to have none."""
    message, known = request.message, calls.endpoint
    is_refused = known is not None and known.takes_contexts is False
    if calls.context_ids != "client" or is_refused or message.context_id or message.task_id:
        return None
    return _in_context(request, calls.env.new_id())


def without_context(request: SendMessageRequest, calls: Calls) -> SendMessageRequest:
    """The message in no context, as everything to this agent from now on."""
    if calls.endpoint is not None:
        calls.endpoint.takes_contexts = False
    return _in_context(request, None)


async def is_context_refused(
    request: SendMessageRequest,
    error: A2AError,
    calls: Calls,
    deadline: Deadline,
    per_call: PerCall,
) -> bool:
    """Whether it was its own context that was refused, and so nothing was executed.

    An agent may say that parameters are wrong after it ran; then there is a task. If it ran in a
    context of its own, none is found here; so it has to speak of this one, or of ids: a model's
    context may be too long.
    """
    context_id = request.message.context_id
    if not isinstance(error, InvalidParamsError) or not context_id:
        return False
    if context_id not in error.message and not _CONTEXT_ID.search(error.message):
        return False
    tasks = ListTasksRequest(context_id=context_id)
    try:
        page = await calls.run(LIST_TASKS, tasks, deadline, per_call)
    except (InvalidParamsError, TaskNotFoundError):
        return True  # it does not know that context
    except A2AError:
        return False
    return not page.value.tasks


def _in_context(request: SendMessageRequest, context_id: str | None) -> SendMessageRequest:
    message = msgspec.structs.replace(request.message, context_id=context_id)
    return msgspec.structs.replace(request, message=message)
