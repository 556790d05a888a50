"""HTTP proxies from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Proxies"]


class Proxies:
    """The proxy for each host; cached, because the look-up is slow."""

    def __init__(self, by_scheme: Mapping[str, str]) -> None:
        self._by_scheme = by_scheme
        self._by_host: dict[tuple[str, str], URL | None] = {}

    def for_url(self, url: str) -> URL | None:
        """Return the proxy for a URL; None for a direct connection."""
        if not self._by_scheme:
            return None
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc.rpartition("@")[2])
        if key not in self._by_host:
            proxy = self._by_scheme.get(key[0]) or self._by_scheme.get("all")
            bypassed = proxy is None or bool(proxy_bypass(key[1]))
            self._by_host[key] = None if bypassed else URL(str(proxy))
        return self._by_host[key]

    def describe(self, url: str) -> str | None:
        """Return the proxy for a URL, without user and password, and the variable that sets it.

        Returns:
            None for a direct connection.
        """
        proxy = self.for_url(url)
        if proxy is None:
            return None
        address = str(proxy.origin()) if proxy.host and proxy.scheme else "a proxy without a host"
        scheme = urlsplit(url).scheme
        scheme = scheme if self._by_scheme.get(scheme) else "all"
        names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
        variable = next((n for n in names if os.environ.get(n) == self._by_scheme[scheme]), None)
        return f"{address} from {variable}" if variable else address
