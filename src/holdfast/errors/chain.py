"""What an agent answers when the agent that it called has failed."""

from __future__ import annotations

from typing import Any

from holdfast.errors import hops
from holdfast.errors.tree import A2AError, InternalError
from holdfast.errors.writing import own_words

__all__ = ["wrap_downstream"]

_LONGEST_MESSAGE = 480
"""Characters of a message of which nothing is left out on the way."""


def wrap_downstream(
    error: A2AError, *, current: str, agent: str | None = None, nested: bool = False
) -> A2AError:
    """The error of an agent that failed because the next agent did; raise it, or answer with it.

    It says where the chain broke, and keeps whether and when it may help to try again. Whether the
    next agent ran anything is its own affair: ``executed`` is None, since the current agent did
    run. To those who called the current agent it is an internal error (-32603), whatever it was
    below: a task that is not found there is not theirs.

    Args:
        error: What the call of the next agent raised, or `A2AError.from_jsonrpc` of its answer.
        current: The name or address of the agent that answers. Use one name for it everywhere, as
            that is how loops are found.
        agent: The name or address of the agent that failed; None for ``error.agent``.
        nested: Whether to answer in the older dialect, with the errors below one inside the other.

    Returns:
        With `hops` from ``agent`` to where it broke, and `loop` if an agent is in it twice.

    Raises:
        ValueError: There is no name for the agent that failed.
    """
    nearest = hops.as_hop(error.agent if agent is None else agent)
    if not nearest:
        text = "the error names no agent: say which one was called, with agent="
        raise ValueError(text)
    here = hops.as_hop(current)
    chain = hops.bounded((nearest, *error.hops))
    wrapped = InternalError(
        _message(nearest, error),
        code=InternalError.entry.code,
        transient=error.transient,
        retry_after=error.retry_after,
        agent=here or None,
        hops=chain,
        loop=error.loop or hops.repeated((here, *chain)),
        traceparent=error.traceparent,
    )
    if nested:
        data: dict[str, Any] = wrapped.to_jsonrpc(nested=True)["data"]
        wrapped.data = {**data, "downstreamError": error.to_jsonrpc(nested=True)}
    return wrapped


def _message(nearest: str, error: A2AError) -> str:
    """Names every agent, and what the last one said; of a long chain the nearest and the last."""
    rest, cause = "", own_words(error)
    for hop in error.hops:
        stage = f"agent {hops.as_hop(hop)} failed: "
        if not cause.startswith(stage):
            break
        rest, cause = rest + stage, cause.removeprefix(stage)
    if len(rest) + len(cause) > _LONGEST_MESSAGE - len(nearest):
        last = error.hops[-1] if error.hops else ""
        rest = f"{hops.LEFT_OUT} agent {hops.as_hop(last)} failed: " if last else ""
    return f"agent {nearest} failed: {rest}{cause}"
