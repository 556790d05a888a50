"""What lies between: addresses, TLS, clocks, limits to how often the agent may be called."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast._doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import InterfaceFacts, Observed
    from holdfast._wire.tls import TlsFacts

__all__ = ["judge_connection"]

_DAY = 86_400.0
_SOON = 21 * _DAY
"""Seconds before its end from which on a certificate should have been replaced: the common tools
replace one that is valid for 90 days a month before."""

_SLIGHT_SKEW, _SKEW = 5.0, 300.0
"""Seconds that clocks may differ: what nobody notices, and what tokens tolerate."""

_OLD_TLS = frozenset({"SSLv3", "TLSv1", "TLSv1.1"})


def judge_connection(observed: Observed, now: float) -> Iterator[Finding]:
    """Judges addresses, TLS, clock and limits."""
    if observed.card is None and observed.tls is None:
        return  # there is nothing to say but what keeps the card from coming
    for interface in observed.interfaces:
        if interface.is_known:
            yield from _address(interface, observed)
    yield from _tls(observed, now)
    yield _clock(observed.skew)
    yield _limits(observed)


def _address(interface: InterfaceFacts, observed: Observed) -> Iterator[Finding]:
    about, url = interface.about, interface.address
    if interface.doubt is not None:
        yield Finding(
            "address.interface",
            "problem",
            f"{url}: {interface.doubt}",
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
    elif interface.is_own_origin is False:
        yield Finding(
            "address.interface",
            "warning",
            f"{url} is of another origin than the card",
            "credentials that were given for the card's origin do not go there by themselves",
            "serve both at one origin, or tell callers to trust the other one as well",
            about,
        )
    else:
        yield Finding("address.interface", "ok", "its address is one to call", about=about)
    if url.startswith("http://") and interface.scope != "loopback":
        yield Finding(
            "address.plain",
            "warning",
            f"{url} has no TLS",
            "anyone on the network path can read and change what is sent, credentials included",
            "serve it over https",
            about,
        )


def _tls(observed: Observed, now: float) -> Iterator[Finding]:
    tls = observed.tls
    if tls is None:
        if observed.scheme == "https":
            why = observed.why_no_tls or observed.why_unmeasured
            yield Finding("tls.version", "not measured", why)
        return
    if tls.failure:
        yield Finding(
            "tls.version",
            "problem",
            f"no TLS connection to {tls.host}: {tls.failure}",
            "no caller can connect to the agent",
            "check that the port speaks TLS, and which versions",
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
    left = tls.not_after - now
    end = f"{datetime.fromtimestamp(tls.not_after, UTC):%Y-%m-%d}"
    if left < _SOON:
        return Finding(
            "tls.certificate",
            "warning",
            f"valid until {end}: {_days(left)}",
            "from then on callers refuse the connection",
            "renew it, and see to it that this happens by itself",
        )
    return Finding("tls.certificate", "ok", f"trusted for {tls.host}, valid until {end}")


def _days(seconds: float) -> str:
    days = int(seconds // _DAY)
    return f"{days} day{'' if days == 1 else 's'} left" if seconds > 0 else "that is over"


def _clock(skew: float | None) -> Finding:
    if skew is None:
        return Finding("clock.skew", "not measured", "no reply had a Date header")
    if abs(skew) <= _SLIGHT_SKEW:
        return Finding("clock.skew", "ok", "the agent's clock and this one agree")
    where = "ahead of" if skew > 0 else "behind"
    saw = f"the agent's clock is {_span(abs(skew))} {where} this one"
    if abs(skew) <= _SKEW:
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


def _span(seconds: float) -> str:
    unit, size = next((u for u in _UNITS if seconds >= 2 * u[1]), ("s", 1.0))
    return f"{seconds / size:.0f} {unit}"


_UNITS = (("days", _DAY), ("h", 3600.0), ("min", 60.0))


def _limits(observed: Observed) -> Finding:
    hints = ", ".join(f"{name}: {value}" for name, value in observed.hints.items())
    if observed.refusals:
        says_when = observed.hints.keys() & {"retry-after", "retry-after-ms"}
        wait = "" if says_when else ", without Retry-After"
        return Finding(
            "limits.rate",
            "warning",
            f"the agent answered 429 {_times(observed.refusals)}{wait}"
            f"{f' ({hints})' if hints else ''}",
            "it may be called less often than it was just now; other findings suffer from it",
            "wait before the next examination; send Retry-After with 429" if wait else "wait",
        )
    if hints:
        return Finding("limits.rate", "info", hints, "the agent says how often it may be called")
    return Finding("limits.rate", "ok", "no reply spoke of a limit to how often it may be called")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
