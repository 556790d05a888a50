"""Checks of the connection: addresses, TLS, clocks, rate limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast._doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import InterfaceFacts, Observations, TlsFacts

__all__ = ["check_connection"]

_DAY_S = 86_400.0
_RENEWAL_S = 21 * _DAY_S
"""Seconds before its expiry at which a certificate should have been renewed: common tools renew
one that is valid for 90 days a month before."""

_NEGLIGIBLE_SKEW_S, _TOLERATED_SKEW_S = 5.0, 300.0
"""Seconds that clocks may differ: without any effect, and within the tolerance of tokens."""

_OLD_TLS = frozenset({"SSLv3", "TLSv1", "TLSv1.1"})


def check_connection(observed: Observations, now: float) -> Iterator[Finding]:
    """Check addresses, TLS, clock and rate limits."""
    if observed.card is None and observed.tls is None:
        return  # the finding about the missing card says all
    for interface in observed.interfaces:
        if interface.is_supported:
            yield from _address(interface, observed)
    yield from _tls(observed, now)
    yield _clock(observed.skew)
    yield _limits(observed)


def _address(interface: InterfaceFacts, observed: Observations) -> Iterator[Finding]:
    about, url = interface.about, interface.address
    if interface.address_fault is not None:
        yield Finding(
            "address.interface",
            "problem",
            f"{url}: {interface.address_fault}",
            "callers on other machines reach no agent there, or another one",
            "put the address into the card under which callers reach the agent",
            about,
        )
    elif interface.scope == "metadata" or (
        observed.scope == "public" and interface.scope != "public"
    ):
        yield Finding(
            "address.interface",
            "problem",
            f"{url} is a {interface.scope} address, and the card is public",
            "callers elsewhere cannot reach it, and careful ones refuse to try",
            "put the public address into the card",
            about,
        )
    elif interface.is_card_origin is False:
        yield Finding(
            "address.interface",
            "warning",
            f"{url} is of another origin than the card",
            "clients do not send credentials for the card's origin there unless they trust it",
            "serve both at one origin, or document that clients must trust the other one",
            about,
        )
    else:
        yield Finding("address.interface", "ok", "its address can be called", about=about)
    if url.startswith("http://") and interface.scope != "loopback":
        yield Finding(
            "address.plain",
            "warning",
            f"{url} has no TLS",
            "anyone on the network path can read and change what is sent, credentials included",
            "serve it over https",
            about,
        )


def _tls(observed: Observations, now: float) -> Iterator[Finding]:
    tls = observed.tls
    if tls is None:
        if observed.scheme == "https":
            reason = observed.no_tls_reason or observed.unmeasured_reason
            yield Finding("tls.version", "not measured", reason)
        return
    if tls.failure:
        yield Finding(
            "tls.version",
            "problem",
            f"no TLS connection to {tls.host}: {tls.failure}",
            "no caller can connect to the agent",
            "check that the port speaks TLS, and with which versions",
        )
        return
    if tls.version in _OLD_TLS:
        yield Finding(
            "tls.version",
            "warning",
            f"{tls.version}",
            "it is deprecated (RFC 8996), and current clients refuse it",
            "offer TLS 1.2 and 1.3",
        )
    elif tls.version:
        yield Finding("tls.version", "ok", f"{tls.version}")
    yield _certificate(tls, now)


def _certificate(tls: TlsFacts, now: float) -> Finding:
    if tls.fault:
        return Finding(
            "tls.certificate",
            "problem",
            f"the certificate of {tls.host} is not trusted: {tls.fault}",
            "callers refuse the connection unless they turn verification off",
            "serve a certificate for this host, with its chain, that is valid and that callers "
            "trust",
        )
    if tls.not_after is None:
        return Finding("tls.certificate", "ok", f"trusted for {tls.host}")
    remaining = tls.not_after - now
    end = f"{datetime.fromtimestamp(tls.not_after, UTC):%Y-%m-%d}"
    if remaining < _RENEWAL_S:
        return Finding(
            "tls.certificate",
            "warning",
            f"valid until {end}: {_days(remaining)}",
            "from then on callers refuse the connection",
            "renew it, and automate the renewal",
        )
    return Finding("tls.certificate", "ok", f"trusted for {tls.host}, valid until {end}")


def _days(seconds: float) -> str:
    days = int(seconds // _DAY_S)
    return f"{days} day{'' if days == 1 else 's'} left" if seconds > 0 else "that is over"


def _clock(skew: float | None) -> Finding:
    if skew is None:
        return Finding("clock.skew", "not measured", "no reply had a Date header")
    if abs(skew) <= _NEGLIGIBLE_SKEW_S:
        return Finding("clock.skew", "ok", "the agent's clock and this one agree")
    direction = "ahead of" if skew > 0 else "behind"
    saw = f"the agent's clock is {_duration(abs(skew))} {direction} this one"
    if abs(skew) <= _TOLERATED_SKEW_S:
        return Finding(
            "clock.skew",
            "info",
            saw,
            "lists of tasks by time are off by as much, unless callers allow for it",
            "synchronise both clocks",
        )
    return Finding(
        "clock.skew",
        "warning",
        saw,
        "tokens count as expired or as not yet valid, and tasks are not found by their time",
        "synchronise both clocks",
    )


def _duration(seconds: float) -> str:
    unit, size = next((unit for unit in _UNITS_S if seconds >= 2 * unit[1]), ("s", 1.0))
    return f"{seconds / size:.0f} {unit}"


_UNITS_S = (("days", _DAY_S), ("h", 3600.0), ("min", 60.0))


def _limits(observed: Observations) -> Finding:
    hints = ", ".join(f"{name}: {value}" for name, value in observed.hints.items())
    if observed.refusals:
        has_retry_after = observed.hints.keys() & {"retry-after", "retry-after-ms"}
        wait = "" if has_retry_after else ", without Retry-After"
        return Finding(
            "limits.rate",
            "warning",
            f"the agent answered 429 {_times(observed.refusals)}{wait}"
            f"{f' ({hints})' if hints else ''}",
            "the examination exceeded the agent's rate limit; other findings may be affected",
            "wait before the next examination; send Retry-After with 429" if wait else "wait",
        )
    if hints:
        return Finding("limits.rate", "info", hints, "the agent reports its rate limit")
    return Finding("limits.rate", "ok", "no reply reported a rate limit")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
