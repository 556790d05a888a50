"""Which tenant a call is for, whoever carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._wire.bindings import OLDER_VERSION
from holdfast.errors import VersionNotSupportedError

if TYPE_CHECKING:
    from holdfast._pipeline.transport import Call

__all__ = ["addressed"]

P = TypeVar("P")
R = TypeVar("R")


def addressed(call: Call[P, R]) -> Call[P, R]:
    """The call with the tenant of its interface, unless its parameters name one.

    Raises:
        VersionNotSupportedError: They name one, and the interface is of a version without tenants.
    """
    params: Any = call.params
    endpoint = call.endpoint
    if not params.tenant:
        tenant = None if endpoint is None else endpoint.interface.tenant
        if params.tenant == tenant:
            return call
        params = msgspec.structs.replace(params, tenant=tenant)
        return msgspec.structs.replace(call, params=params)
    if endpoint is not None and endpoint.version == OLDER_VERSION:
        raise VersionNotSupportedError(
            f"{call.operation.name} was not called: the agent speaks protocol {OLDER_VERSION}, "
            "which knows no tenants",
            agent=endpoint.agent,
            executed=False,
        )
    return call
