"""How to try again, as a user of the SDK says it, in Holdfast's terms, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._arguments import check_kind
from holdfast._integrations.a2a_sdk.errors import to_sdk_error
from holdfast._integrations.a2a_sdk.notify import notify
from holdfast._integrations.a2a_sdk.retry_config import RetryConfig, SharedBudget
from holdfast._policy.resilience import Resilience
from holdfast._policy.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._integrations.a2a_sdk.retry_config import OnRetry, RetryPredicate
    from holdfast._pipeline.endpoints import Endpoints
    from holdfast.errors import A2AError

__all__ = ["check_budget", "check_other_labels", "resilience_of", "retry_config_of"]


def resilience_of(config: RetryConfig | None, resilience: Resilience | None) -> Resilience:
    """What to do when things go wrong, from what the caller says of it in either form.

    Of a `RetryConfig`, what is tried again stays as narrow as Holdfast has it: the predicate may
    say no to it, and never yes to more.

    Raises:
        ValueError: It is said in both forms.
        TypeError: One of them is something else.
    """
    if config is None:
        resilience = Resilience.standard() if resilience is None else resilience
        check_kind("resilience", resilience, Resilience)
        return resilience
    check_kind("retry_config", config, RetryConfig)
    if resilience is not None:
        message = "retry_config and resilience both say how to try again: pass one of them"
        raise ValueError(message)
    predicate, on_retry = config.retry_predicate, config.on_retry
    budget = config.shared_budget()
    return Resilience(
        retry=msgspec.structs.replace(
            config.policy(),
            retry_predicate=None if predicate is None else _narrowed(predicate),
            on_retry=None if on_retry is None else _listening(on_retry),
        ),
        budget=None if budget is None else budget.policy,
    )


def check_budget(config: RetryConfig | None, shared: Endpoints | None) -> None:
    """Checks that a budget that several transports share is shared by Holdfast's, too.

    Raises:
        ValueError: They keep theirs with what they know of agents, and share nothing of that.
    """
    if config is not None and isinstance(config.budget, SharedBudget) and shared is None:
        message = (
            "a SharedBudget has no effect on a HoldfastTransport, which shares its budget with "
            "what it knows of an agent; pass shared=Endpoints(…), the same one to each, besides"
        )
        raise ValueError(message)


def check_other_labels(resilience: Resilience | None) -> None:
    """Checks that a `RetryTransport` can do what a caller's own `Resilience` says.

    Raises:
        ValueError: It says something that is about Holdfast's own errors, or requests.
    """
    resilience = resilience or Resilience()
    own, usual = resilience.retry, RetryPolicy()
    said = [f"retry.{name}" for name in _ONLY_HERE if getattr(own, name) != getattr(usual, name)]
    if resilience.refusals != Resilience().refusals:
        said.append("refusals")
    if said:
        message = (
            f"resilience has {', '.join(said)}, which a transport that is not Holdfast's cannot "
            "follow; pass retry_config=… in its place, or register what makes a RetryTransport"
        )
        raise ValueError(message)


_ONLY_HERE = ("backoff_factor", "jitter", "retry_predicate", "on_retry")
"""What of a `RetryPolicy` has no counterpart in a `RetryConfig`, or is given other errors."""


def retry_config_of(resilience: Resilience | None) -> RetryConfig:
    """A caller's own `Resilience`, for transports that are not Holdfast's.

    What is about Holdfast's own errors and requests is left out; see `check_other_labels`.
    """
    if resilience is None:
        return RetryConfig()
    retry = resilience.retry
    return RetryConfig(
        max_retries=retry.max_retries,
        base_delay=retry.base_delay,
        max_delay=retry.max_delay,
        max_retry_after=retry.max_retry_after,
        budget=resilience.budget,
    )


def _as_the_sdk(error: A2AError) -> Exception:
    """What the SDK's user would catch."""
    told = to_sdk_error(error)
    told.__cause__ = error
    return told


def _narrowed(predicate: RetryPredicate) -> Callable[[A2AError], bool]:
    return lambda error: bool(predicate(_as_the_sdk(error)))


def _listening(on_retry: OnRetry) -> Callable[[int, A2AError, float], Awaitable[None]]:
    async def told(attempt: int, error: A2AError, delay: float) -> None:
        await notify(on_retry, attempt, _as_the_sdk(error), delay)

    return told
