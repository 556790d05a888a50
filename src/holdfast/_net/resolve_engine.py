"""What carries requests, however the caller names it, and how it speaks TLS."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from holdfast._arguments import check_able, check_kind

if TYPE_CHECKING:
    import aiohttp

    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig

__all__ = ["check_tls", "resolve_engine", "resolve_tls"]


def resolve_engine(
    engine: HttpEngine | aiohttp.ClientSession | None, tls: TlsConfig | None = None
) -> tuple[HttpEngine, HttpEngine | None]:
    """The engine to use, and the one to close.

    Raises:
        TypeError: It is not an engine, or `tls` is no `TlsConfig`.
        ValueError: There is an engine, and `tls` is for one of its own.
    """
    check_tls(tls, engine)
    if engine is None:
        from holdfast._net.aiohttp import AiohttpEngine  # heavy; importing holdfast is not

        own = AiohttpEngine(ssl=True if tls is None else tls)
        return own, own
    if "aiohttp" in sys.modules:
        import aiohttp

        if isinstance(engine, aiohttp.ClientSession):
            from holdfast._net.aiohttp import AiohttpEngine

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
    from holdfast._net.tls_config import TlsConfig

    check_kind("tls", tls, TlsConfig)
    if engine is not None:
        text = "tls= is for the client's own engine; pass AiohttpEngine(ssl=…) as engine= instead"
        raise ValueError(text)


def resolve_tls(engine: HttpEngine) -> TlsConfig | None:
    """How an engine speaks TLS, for what connects beside it; None if it does not say."""
    from holdfast._net.tls_config import TlsConfig

    tls = getattr(engine, "tls", None)
    return tls if isinstance(tls, TlsConfig) else None
