"""gRPC where its extra is installed: whether that is so, and what carries calls over it.

Nothing here imports grpcio, which is slow and not for everybody.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec

    import aiohttp
    from grpc import aio

    from holdfast._aio.env import Env
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.transport import Transport
    from holdfast._policy.resilience import Resilience
    from holdfast._wire.limits import Limits

__all__ = ["GrpcUse", "grpc_transport", "use_of_grpc"]

GrpcUse = Literal["spoken", "left out", "missing"]
"""Whether gRPC may be chosen: by itself; only where somebody names it, since what carries
requests is the caller's own, and carries HTTP; or not at all, without the extra."""


def use_of_grpc(
    engine: HttpEngine | aiohttp.ClientSession | None,
    factory: Callable[[str], aio.Channel] | None,
) -> GrpcUse:
    """Whether a client speaks gRPC, which is not carried by its engine.

    Args:
        engine: As the caller passes it. One of another kind than Holdfast's has its reasons: all
            that the client sends is to go through it.
        factory: What makes channels, if the caller says so.
    """
    if not _is_installed():
        return "missing"
    if engine is None or factory is not None:
        return "spoken"
    known = [sys.modules.get("holdfast._net.aiohttp"), sys.modules.get("aiohttp")]
    names = ["AiohttpEngine", "ClientSession"]
    kinds = tuple(
        getattr(module, name) for module, name in zip(known, names, strict=True) if module
    )
    return "spoken" if isinstance(engine, kinds) else "left out"


def _is_installed() -> bool:
    """Whether the extra is there; it may be installed while a program runs."""
    try:
        return _find_extra(find_spec)
    except ModuleNotFoundError:
        return False


@cache  # of what is found: an exception is not kept
def _find_extra(find: Callable[[str], ModuleSpec | None]) -> bool:
    for module in ("grpc", "google.protobuf", "google.rpc"):
        if find(module) is None:
            raise ModuleNotFoundError(module)
    return True


def grpc_transport(
    env: Env,
    resilience: Resilience,
    limits: Limits,
    *,
    tls: TlsConfig | None,
    factory: Callable[[str], aio.Channel] | None,
) -> Transport:
    """What carries calls over gRPC; see `GrpcBinding`."""
    from holdfast._pipeline.grpc_binding import GrpcBinding  # of an extra, and heavy

    return GrpcBinding(env, resilience, limits, tls=tls, factory=factory)
