"""What commands run in: event loop, network, file system, terminal, wall time."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._aio.env import Env, SystemEnv
from holdfast._cli.card_cache import user_cache
from holdfast._cli.configuration import read_configuration
from holdfast._cli.terminal import interrupts, open_terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AbstractContextManager

    from holdfast._cli.configuration import Configuration
    from holdfast._cli.terminal import Terminal
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._wire.tls import TlsFacts

__all__ = ["CliEnvironment"]


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

    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    engine: Callable[..., HttpEngine] = _aiohttp_engine
    home: Callable[[], Path] = Path.home
    directory: Callable[[], Path] = Path.cwd
    cache: Callable[[], Path | None] = user_cache
    terminal: Callable[[], Terminal | None] = open_terminal
    interrupts: Callable[[Callable[[], None]], AbstractContextManager[None]] = interrupts
    env: Env = field(default_factory=SystemEnv)
    look_at_tls: Callable[..., Awaitable[TlsFacts | None]] = _look_at_tls

    def read_configuration(self, named: str | None) -> Configuration:
        """Reads the configuration files.

        Args:
            named: The file to read in place of the local one, as the caller wrote it.

        Raises:
            OSError: That file cannot be read.
            ValueError: It is not UTF-8.
        """
        path = None if named is None else Path(named).expanduser()
        return read_configuration(path, home=self.home, directory=self.directory)
