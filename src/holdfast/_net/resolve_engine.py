"""Resolve the ``engine=`` and ``tls=`` arguments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from holdfast._arguments import check_kind, check_methods

if TYPE_CHECKING:
    import aiohttp

    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig

__all__ = ["check_tls", "resolve_engine", "resolve_tls"]


def resolve_engine(
    engine: HttpEngine | aiohttp.ClientSession | None,
    tls: TlsConfig | None = None,
    owner: str = "AiohttpEngine",
) -> tuple[HttpEngine, HttpEngine | None]:
    """Return the engine to use, and the engine to close (None if the caller supplied it).

    Args:
        engine: The caller's engine; None makes one.
        tls: The TLS settings of an engine that is made.
        owner: What closes an engine that is made, for the warning if it is not closed.

    Raises:
        TypeError: `engine` is not an engine, or `tls` is not a `TlsConfig`.
        ValueError: Both are given.
    """
    check_tls(tls, engine)
    if engine is None:
        from holdfast._net.aiohttp import OwnedEngine  # slow to import

        own = OwnedEngine(owner, ssl=True if tls is None else tls)
        return own, own
    if "aiohttp" in sys.modules:
        import aiohttp

        if isinstance(engine, aiohttp.ClientSession):
            from holdfast._net.aiohttp import AiohttpEngine

            return AiohttpEngine(session=engine), None
    hint = _engine_hint(engine)
    if hint:
        text = f"engine must be an HttpEngine, not {type(engine).__name__}; {hint}"
        raise TypeError(text)
    check_methods("engine", engine, "request", "stream", "close")
    return cast("HttpEngine", engine), None


def _engine_hint(engine: object) -> str:
    """Return what to pass in place of an object that callers pass by mistake; empty if unknown."""
    for kind in type(engine).__mro__:
        package, name = kind.__module__.partition(".")[0], kind.__name__
        if name == "FakeAgent" and package == "holdfast":
            return "pass FakeNetwork(agent)"
        if package in {"httpx", "httpx2"}:
            return "an httpx client or transport cannot be used; pass AiohttpEngine(…)"
    return ""


def check_tls(tls: TlsConfig | None, engine: object) -> None:
    """Check that not both `tls` and an engine are given: the engine has its own TLS settings.

    Raises:
        TypeError: `tls` is not a `TlsConfig`.
        ValueError: Both are given.
    """
    if tls is None:
        return
    from holdfast._net.tls_config import TlsConfig

    check_kind("tls", tls, TlsConfig)
    if engine is not None:
        text = "tls= is for the client's own engine; pass AiohttpEngine(ssl=…) as engine= instead"
        raise ValueError(text)


def resolve_tls(engine: HttpEngine) -> TlsConfig | None:
    """Return the TLS settings of an engine, for connections beside it; None if not known."""
    from holdfast._net.tls_config import TlsConfig

    tls = getattr(engine, "tls", None)
    return tls if isinstance(tls, TlsConfig) else None
