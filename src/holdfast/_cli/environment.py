"""What commands run in: event loop, network, file system, terminal, wall time.

Each of them is imported when it is used: `--version`, help and completions use none.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AbstractContextManager

    from holdfast._aio.env import Env
    from holdfast._cli.configuration import Configuration
    from holdfast._cli.terminal import Terminal
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._wire.tls import TlsFacts

__all__ = ["CliEnvironment", "user_cache"]


def _run(main: Coroutine[Any, Any, None]) -> None:
    import asyncio
    import gc

    gc.freeze()  # what is imported by now stays, and is not searched for garbage
    gc.enable()
    asyncio.run(main)


def user_cache() -> Path | None:
    """Return the directory of cached cards by the platform's conventions; None if there is none.

    ``$XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches`` on macOS; ``%LOCALAPPDATA%`` on
    Windows.
    """
    if sys.platform == "win32":
        stated, below = os.environ.get("LOCALAPPDATA", ""), ("holdfast", "Cache", "cards")
    else:
        stated, below = os.environ.get("XDG_CACHE_HOME", ""), ("holdfast", "cards")
    if stated and Path(stated).is_absolute():
        return Path(stated, *below)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    usual = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
    return home.joinpath(*usual, *below) if home.is_dir() else None


def _open_terminal() -> Terminal | None:
    from holdfast._cli.terminal import open_terminal

    return open_terminal()


def _interrupts(call: Callable[[], None]) -> AbstractContextManager[None]:
    from holdfast._cli.terminal import interrupts

    return interrupts(call)


def _system_env() -> Env:
    from holdfast._aio.env import SystemEnv

    return SystemEnv()


async def _look_at_tls(url: str, *, timeout: float) -> TlsFacts | None:
    from holdfast._net.tls import look_at_tls

    return await look_at_tls(url, timeout=timeout)


def _aiohttp_engine(*, verify: bool, tls: TlsConfig | None = None) -> HttpEngine:
    from holdfast._net.aiohttp import AiohttpEngine  # heavy; help and usage errors are not
    from holdfast._net.tls_config import TlsConfig

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes to stderr, which is ours
    if tls is None and not verify:
        tls = TlsConfig(verify=False)
    return AiohttpEngine(ssl=True if tls is None else tls)


@dataclass(frozen=True, kw_only=True)
class CliEnvironment:
    """What commands run in.

    Attributes:
        run: Runs a coroutine to its end.
        engine: Makes what carries requests; `verify` says whether certificates are verified, and
            `tls`, which is there if the client shows one of its own, says all of it.
        home: Gives the home directory.
        directory: Gives the working directory.
        cache: Gives the directory of cached cards; None for no cache.
        terminal: Gives the terminal that somebody sits at; None for none.
        interrupts: Calls at each Ctrl-C, as long as the context is open.
        env: Wall time, randomness and ids.
        look_at_tls: Looks at the TLS of a server; see `holdfast._net.tls`.
    """

    run: Callable[[Coroutine[Any, Any, None]], None] = _run
    engine: Callable[..., HttpEngine] = _aiohttp_engine
    home: Callable[[], Path] = Path.home
    directory: Callable[[], Path] = Path.cwd
    cache: Callable[[], Path | None] = user_cache
    terminal: Callable[[], Terminal | None] = _open_terminal
    interrupts: Callable[[Callable[[], None]], AbstractContextManager[None]] = _interrupts
    env: Env = field(default_factory=_system_env)
    look_at_tls: Callable[..., Awaitable[TlsFacts | None]] = _look_at_tls

    def read_configuration(self, named: str | None) -> Configuration:
        """Reads the configuration files.

        Args:
            named: The file to read in place of the local one, as the caller wrote it.

        Raises:
            OSError: That file cannot be read.
            ValueError: It is not UTF-8.
        """
        from holdfast._cli.configuration import read_configuration

        path = None if named is None else Path(named).expanduser()
        return read_configuration(path, home=self.home, directory=self.directory)
