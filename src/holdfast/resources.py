"""What carries requests and what remembers calls, however the caller names them."""

from __future__ import annotations

import math
import os
import re
import sys
from importlib.util import find_spec
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Literal, cast

from holdfast.arguments import check_able, check_kind
from holdfast.runtime.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from grpc import aio

    from holdfast.net.tls_config import TlsConfig
    from holdfast.policy.resilience import Resilience
    from holdfast.runtime.engine import HttpEngine
    from holdfast.runtime.env import Env
    from holdfast.runtime.transport import Transport
    from holdfast.wire.limits import Limits

__all__ = [
    "check_tls",
    "engine_of",
    "grpc_transport",
    "journal_file",
    "journal_of",
    "tls_of",
    "use_of_grpc",
]


def engine_of(
    engine: HttpEngine | aiohttp.ClientSession | None, tls: TlsConfig | None = None
) -> tuple[HttpEngine, HttpEngine | None]:
    """The engine to use, and the one to close.

    Raises:
        TypeError: It is not an engine, or `tls` is no `TlsConfig`.
        ValueError: There is an engine, and `tls` is for one of its own.
    """
    check_tls(tls, engine)
    if engine is None:
        from holdfast.net.aiohttp import AiohttpEngine  # heavy; importing holdfast is not

        own = AiohttpEngine(ssl=True if tls is None else tls)
        return own, own
    if "aiohttp" in sys.modules:
        import aiohttp

        if isinstance(engine, aiohttp.ClientSession):
            from holdfast.net.aiohttp import AiohttpEngine

            return AiohttpEngine(session=engine), None
    check_able("engine", engine, "request", "stream", "close")
    return cast("HttpEngine", engine), None


def check_tls(tls: TlsConfig | None, engine: object) -> None:
    """Checks that TLS is said once: here, or by the engine that the caller lends.

    Raises:
        TypeError: It is no `TlsConfig`.
        ValueError: Both are there.
    """
    if tls is None:
        return
    from holdfast.net.tls_config import TlsConfig

    check_kind("tls", tls, TlsConfig)
    if engine is not None:
        text = "tls= is for the client's own engine; pass AiohttpEngine(ssl=…) as engine= instead"
        raise ValueError(text)


def tls_of(engine: HttpEngine) -> TlsConfig | None:
    """How an engine speaks TLS, for what connects beside it; None if it does not say."""
    from holdfast.net.tls_config import TlsConfig

    tls = getattr(engine, "tls", None)
    return tls if isinstance(tls, TlsConfig) else None


def use_of_grpc(
    engine: HttpEngine | aiohttp.ClientSession | None,
    factory: Callable[[str], aio.Channel] | None,
) -> Literal["spoken", "left out", "missing"]:
    """Whether a client speaks gRPC, which is not carried by its engine.

    Args:
        engine: As the caller passes it. One of another kind than Holdfast's has its reasons: all
            that the client sends is to go through it.
        factory: What makes channels, if the caller says so.
    """
    if not (_is_there("grpc") and _is_there("google.protobuf") and _is_there("google.rpc")):
        return "missing"
    if engine is None or factory is not None:
        return "spoken"
    known = [sys.modules.get("holdfast.net.aiohttp"), sys.modules.get("aiohttp")]
    names = ["AiohttpEngine", "ClientSession"]
    kinds = tuple(
        getattr(module, name) for module, name in zip(known, names, strict=True) if module
    )
    return "spoken" if isinstance(engine, kinds) else "left out"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def grpc_transport(
    env: Env,
    resilience: Resilience,
    limits: Limits,
    *,
    tls: TlsConfig | None,
    factory: Callable[[str], aio.Channel] | None,
) -> Transport:
    """What carries calls over gRPC; see `GrpcBinding`."""
    from holdfast.net.grpc.binding import GrpcBinding  # of an extra, and heavy

    return GrpcBinding(env, resilience, limits, tls=tls, factory=factory)


def journal_of(journal: str | os.PathLike[str] | Journal) -> Journal:
    """The journal to use.

    Raises:
        ValueError: An address that names none.
        TypeError: It is not a journal.
    """
    if isinstance(journal, str | os.PathLike):
        from holdfast.journals.sqlite import SqliteJournal  # sqlite3 is not for everybody

        return SqliteJournal(journal_file("journal", journal))
    check_able("journal", journal)
    lease = getattr(journal, "lease", None)
    lacks = [method for method in _JOURNAL if not callable(getattr(journal, method, None))]
    if not isinstance(getattr(journal, "stores_messages", None), bool):
        lacks.append("stores_messages (a bool)")
    if not isinstance(lease, int | float) or not 0 < lease < math.inf:
        lacks.append("lease (seconds)")
    if lacks:
        kind = type(journal).__name__
        text = f"journal must be a file or a Journal; {kind} has no {', '.join(lacks)}"
        raise TypeError(text)
    return journal


_JOURNAL = tuple(name for name, member in vars(Journal).items() if iscoroutinefunction(member))
"""The methods of a journal."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def journal_file(name: str, journal: str | os.PathLike[str]) -> str:
    """The file of a journal.

    Args:
        name: What messages call it.
        journal: The file, or an address that names it.

    Raises:
        ValueError: An address that names none.
        TypeError: A path of bytes.
    """
    address = os.fspath(journal)
    check_kind(name, address, str)
    scheme = _SCHEME.match(address)
    path = address.removeprefix("sqlite:///")
    if not path or (scheme and path == address):
        shown = address if scheme is None else f"{scheme[0]}…"
        text = f"{name} must be a file, such as 'calls.db' or 'sqlite:///calls.db', not {shown!r}"
        raise ValueError(text)
    return path
