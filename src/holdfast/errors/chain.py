"""What an agent answers when the agent that it called has failed."""

from __future__ import annotations

from typing import Any, cast

from holdfast._model import error_hops as hops
from holdfast._model.error_writing import own_words
from holdfast._model.settings import check_kind
from holdfast.errors.tree import A2AError, InternalError, NotEnoughResultsError

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

    Of a `NotEnoughResultsError` each agent that failed is named: one of them with those behind it,
    several as one hop, ``"traffic, weather"``. Where too few were asked, nobody failed, and there
    is no hop.

    Args:
        error: What the call of the next agent raised, or `A2AError.from_jsonrpc` of its answer.
        current: The name or address of the agent that answers. Use one name for it everywhere, as
            that is how loops are found.
        agent: The name or address of the agent that failed; None for ``error.agent``, or those of
            its results.
        nested: Whether to answer in the older dialect, with the errors below one inside the other.

    Returns:
        With `hops` from ``agent`` to where it broke, and `loop` if an agent is in it twice.

    Raises:
        ValueError: There is no name for the agent that failed, or for the one that answers.
        TypeError: An argument of another type. What is no `A2AError` is not for others: to them it
            is an `InternalError` that says nothing else.
    """
    _check_error(error)
    _check_name("current", current)
    if agent is not None:
        _check_name("agent", agent)
    check_kind("nested", nested, bool)
    failed, below = _failed_below(error) if agent is None else (agent, error.hops)
    nearest = hops.as_hop(failed)
    if not nearest and not isinstance(error, NotEnoughResultsError):
        text = "the error names no agent: say which one was called, with agent="
        raise ValueError(text)
    here = hops.as_hop(current)
    chain = hops.bounded((nearest, *below))
    wrapped = InternalError(
        _message(nearest, error) if nearest else own_words(error),
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
        if chain and below == error.hops:  # else it knows less of them than the chain
            data["downstreamError"] = error.to_jsonrpc(nested=True)
        wrapped.data = data
    return wrapped


def _check_error(error: object) -> None:
    if not isinstance(error, A2AError):
        text = (
            f"error must be A2AError, not {type(error).__name__}; other errors are passed on only "
            'as InternalError("internal error")'
        )
        raise TypeError(text)


def _check_name(name: str, value: str) -> None:
    check_kind(name, value, str)
    if not value:
        text = f"{name} must not be empty"
        raise ValueError(text)


def _failed_below(error: A2AError) -> tuple[str | None, tuple[str, ...]]:
    """The agent that failed, and those behind it; of several, all their names."""
    if not isinstance(error, NotEnoughResultsError) or error.agent:
        return error.agent, error.hops
    failed: dict[str, A2AError] = {
        hops.as_hop(one.agent): cast("A2AError", one.error)
        for one in error.results
        if one.error is not None
    }
    behind = [one.hops for one in failed.values()]
    return ", ".join(failed), behind[0] if len(behind) == 1 else ()


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
