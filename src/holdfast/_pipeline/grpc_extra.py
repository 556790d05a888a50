"""Detection of the gRPC extra, and the transport that carries calls over gRPC.

This module does not import grpcio, which is slow to import and optional.
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
"""Use of gRPC: chosen by default; only where the caller names it, as the engine is the caller's
and carries HTTP alone; or never, without the extra."""


def use_of_grpc(
    engine: HttpEngine | aiohttp.ClientSession | None,
    factory: Callable[[str], aio.Channel] | None,
) -> GrpcUse:
    """Return whether a client uses gRPC, which its engine does not carry.

    Args:
        engine: The caller's. If it is of another kind than Holdfast's, all requests have to go
            through it.
        factory: Makes the channels, if the caller supplies it.
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
    """Return whether the extra is installed, which may happen while a program runs."""
    try:
        return _find_extra(find_spec)
    except ModuleNotFoundError:
        return False


@cache  # of success: an exception is not cached
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
    """Return the transport that carries calls over gRPC."""
    from holdfast._pipeline.grpc_binding import GrpcBinding  # of an extra, and heavy

    return GrpcBinding(env, resilience, limits, tls=tls, factory=factory)
