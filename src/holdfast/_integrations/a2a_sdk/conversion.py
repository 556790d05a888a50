"""Conversion between `RetryConfig` and Holdfast's own policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._arguments import check_kind
from holdfast._integrations.a2a_sdk.errors import to_sdk_error
from holdfast._integrations.a2a_sdk.notify import notify
from holdfast._integrations.a2a_sdk.retry_config import RetryConfig, SharedBudget
from holdfast.policies import Resilience, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._integrations.a2a_sdk.retry_config import OnRetry, RetryPredicate
    from holdfast.errors import A2AError
    from holdfast.extend import Endpoints

__all__ = ["check_budget", "check_other_labels", "resilience_of", "retry_config_of"]


def resilience_of(config: RetryConfig | None, resilience: Resilience | None) -> Resilience:
    """Return the policies from either form of the caller's settings.

    The predicate of a `RetryConfig` can prevent a retry, never allow one that Holdfast's own rules
    prevent.

    Raises:
        ValueError: Both forms are passed.
        TypeError: An argument is of another type.
    """
    if config is None:
        resilience = Resilience.standard() if resilience is None else resilience
        check_kind("resilience", resilience, Resilience)
        return resilience
    check_kind("retry_config", config, RetryConfig)
    if resilience is not None:
        message = "retry_config and resilience both configure retries: pass only one of them"
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


def check_budget(
    config: RetryConfig | None, shared: Endpoints | None, *, taker: str = "HoldfastTransport"
) -> None:
    """Check that a `SharedBudget` comes with shared endpoints.

    Args:
        config: The configuration of retries.
        shared: The caller's ``shared=``.
        taker: What takes these options, for the error.

    Raises:
        ValueError: It does not: Holdfast's transports keep the budget with the endpoint's state.
    """
    if config is not None and isinstance(config.budget, SharedBudget) and shared is None:
        message = (
            "SharedBudget alone has no effect, because the retry budget belongs to the endpoint; "
            f"pass the same shared=Endpoints(…) to each {taker}"
        )
        raise ValueError(message)


def check_other_labels(resilience: Resilience | None) -> None:
    """Check that a `RetryTransport` can follow a caller's `Resilience`.

    Raises:
        ValueError: It has settings that concern Holdfast's own errors or requests.
    """
    resilience = resilience or Resilience()
    retry, default = resilience.retry, RetryPolicy()
    names = [
        f"retry.{name}"
        for name in _WITHOUT_COUNTERPART
        if getattr(retry, name) != getattr(default, name)
    ]
    if resilience.refusals != Resilience().refusals:
        names.append("refusals")
    if names:
        message = (
            f"resilience has {', '.join(names)}, which only Holdfast's own transports support; "
            "pass retry_config=… instead, or register a producer of a RetryTransport"
        )
        raise ValueError(message)


_WITHOUT_COUNTERPART = ("backoff_factor", "jitter", "retry_predicate", "on_retry")
"""Members of a `RetryPolicy` without a counterpart in `RetryConfig`, or with other errors."""


def retry_config_of(resilience: Resilience | None) -> RetryConfig:
    """Return the `RetryConfig` for a `Resilience`, for transports that are not Holdfast's.

    Settings that concern Holdfast's own errors and requests are omitted; see `check_other_labels`.
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
    """Return the error that the SDK's user would catch."""
    converted = to_sdk_error(error)
    converted.__cause__ = error
    return converted


def _narrowed(predicate: RetryPredicate) -> Callable[[A2AError], bool]:
    return lambda error: bool(predicate(_as_the_sdk(error)))


def _listening(on_retry: OnRetry) -> Callable[[int, A2AError, float], Awaitable[None]]:
    async def listener(attempt: int, error: A2AError, delay: float) -> None:
        await notify(on_retry, attempt, _as_the_sdk(error), delay)

    return listener
