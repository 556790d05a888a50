"""References to agents (a2a-cli 10.1): a host, an origin, a card's URL or file, a catalog's entry.

Rules: ``CATALOG#NAME`` is the entry NAME of a catalog, a JSON file or an http address; a file of
that whole name is a card. A catalog is an object whose ``agents`` is an object by name, or a list
of objects with a ``name`` (or ``id``); an entry is a reference, or has one as ``agentCard``,
``card`` or ``url``. It is resolved before anything else; no credential goes to a catalog. An
address in a fetched catalog must not be in a more private network than the catalog; the IP
address of each connection is checked, as for an address in a card.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

from holdfast._aio.cancel_scope import CancelScope
from holdfast._cli.errors import FAILURE, UNREACHABLE, CommandError, Failure
from holdfast._cli.options.masking import masked_reference, names_user
from holdfast._cli.options.values import nearest
from holdfast._model.hosts import ip_literal, is_loopback
from holdfast._wire.network_scope import NetworkReach, innermost, scope_of_host
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.settings import Settings
    from holdfast._wire.network_scope import NetworkScope

__all__ = ["ListedAddress", "find_agent", "is_file", "read_reference"]

_LETTER = r"A-Za-z0-9_\u00a1-\U0010ffff"
"""Letters of hosts; `holdfast._model.hosts` refuses the non-ASCII ones that no host has."""
_HOST = (  # compiled when a reference without a scheme is read: that takes milliseconds
    rf"(?P<host>\[[0-9A-Fa-f:.]+\]|[{_LETTER}](?:[{_LETTER}.-]*[{_LETTER}.])?)"
    r"(?P<port>:[0-9]+)?(?P<rest>[/?].*)?"
)


def read_reference(text: str) -> str | Path:
    """Read a reference to an agent card (a2a-cli 10.1).

    With a scheme it is a URL. Without one it is a file if it looks like a path: it begins with
    ``/``, ``.`` or ``~``, or its one word ends in ``.json``; or if there is such a file in a
    directory of that name, as ``cards/agent``. Else it is a host, with or without a port and a
    path, and called over https; over http if it is this machine. Its letters may be those of any
    alphabet, as in an address with a scheme. A file in the working directory never stands in for
    a host: where there is a file of a host's name, neither is taken.

    Raises:
        ValueError: It is none of these, or could be a host and a file.
    """
    reference = text.strip()
    scheme, separator, _ = reference.partition("://")
    if separator:
        return _of_scheme(scheme.lower(), reference)
    if _looks_like_path(reference):
        return Path(reference).expanduser()
    match = re.fullmatch(_HOST, reference)
    if is_file(reference):
        if match is None or _is_below_directory(match):
            return Path(reference)
        masked, scheme = masked_reference(reference), _scheme(match)
        message = (
            f"{masked!r} names a host, and there is a file of that name here; write "
            f"{scheme}://{masked} or ./{masked}"
        )
        raise ValueError(message)
    if match is None:
        message = (
            f"{masked_reference(reference)!r} is neither a host, nor an http:// or https:// URL, "
            "nor a card's file"
        )
        raise ValueError(message)
    return f"{_scheme(match)}://{reference}"


def _scheme(match: re.Match[str]) -> str:
    """Return the scheme of a host that is named without one."""
    return "http" if is_loopback(match["host"].strip("[]")) else "https"


def _of_scheme(scheme: str, reference: str) -> str | Path:
    if scheme in {"http", "https"}:
        if names_user(reference):
            message = "an address must not hold a user name or password; see --bearer, --api-key"
            raise ValueError(message)
        return reference
    if scheme in {"grpc", "grpcs"}:
        message = (
            f"{scheme}:// is the address of an interface, not of an agent card; pass it as "
            "--endpoint, or the address of the card as --agent-card"
        )
        raise ValueError(message)
    if scheme != "file":
        message = f"{scheme}:// is not supported; use https://, http:// or file://"
        raise ValueError(message)
    parts = urlsplit(reference)
    if parts.netloc not in {"", "localhost"}:
        masked = masked_reference(reference)
        message = f"{masked!r} names a file on another machine; write file:///path"
        raise ValueError(message)
    return Path(url2pathname(parts.path))


def _looks_like_path(reference: str) -> bool:
    if reference.startswith(("/", ".", "~")):
        return True
    return "/" not in reference and reference.endswith(".json")


def _is_below_directory(match: re.Match[str]) -> bool:
    """Return whether a text that looks like a host must be a path: one word before a slash."""
    host = match["host"]
    is_word = "." not in host and not match["port"] and not is_loopback(host.strip("[]"))
    return is_word and (match["rest"] or "").startswith("/")


def is_file(reference: str) -> bool:
    """Return whether there is a file of this name."""
    try:
        return Path(reference).is_file()
    except (OSError, ValueError):
        return False


_MAX_CATALOG_BYTES = 4 * 1024 * 1024
"""Bytes of a catalog."""
_CATALOG_TIMEOUT_S = 30.0
"""Seconds for fetching a catalog."""
_MAX_SHOWN_ENTRIES = 10
"""Entries that a hint names."""


class ListedAddress(str):
    """An address from a fetched catalog.

    Attributes:
        reach: The networks that it may lead to.
    """

    __slots__ = ("reach",)

    reach: NetworkReach

    @classmethod
    def of(cls, address: str, reach: NetworkReach) -> ListedAddress:
        """Return an address with the networks that it may lead to."""
        listed = cls(address)
        listed.reach = reach
        return listed


class _Fetched(NamedTuple):
    """A fetched catalog, and the network of the host that served it."""

    body: bytes
    scope: NetworkScope


def find_agent(environment: CliEnvironment, settings: Settings) -> str | Path:
    """Return the address or file of the card, by a reference of the caller or in a catalog.

    Raises:
        ValueError: The reference is invalid.
        CommandError: There is no such catalog, or no such entry in it.
    """
    if settings.is_endpoint:
        return settings.agent_card
    place, hash_, name = settings.agent_card.strip().rpartition("#")
    if not (hash_ and place and name) or is_file(settings.agent_card):
        reference = read_reference(settings.agent_card)
        if isinstance(reference, Path):
            _check_card(reference)
        return reference
    catalog = read_reference(place)
    if isinstance(catalog, Path):
        return _entry(_read(catalog), catalog, name, None)
    fetched: list[_Fetched] = []

    async def look() -> None:
        timeout = min(settings.timeout, _CATALOG_TIMEOUT_S)
        async with CancelScope.within(timeout) as scope:
            fetched.append(await _fetch(environment, settings, catalog))
        if scope.expired:
            raise _not_found(catalog, "did not answer in time")

    try:
        environment.run(look())
    except A2AError as error:
        raise _not_found(catalog, f"cannot be fetched: {error}") from None
    return _entry(fetched[0].body, catalog, name, fetched[0].scope)


async def _fetch(environment: CliEnvironment, settings: Settings, url: str) -> _Fetched:
    from holdfast._net.engine import fetch  # heavy: imported when needed
    from holdfast._wire.http import HttpRequest
    from holdfast._wire.limits import Limits

    engine = environment.engine(verify=not settings.insecure)
    try:
        request = HttpRequest(
            method="GET",
            url=url,
            headers={"accept": "application/json"},
            limits=Limits(body=_MAX_CATALOG_BYTES),
        )
        reply, _, scope = await fetch(engine, request)
    finally:
        await engine.close()
    if not 200 <= reply.status < 300:
        raise _not_found(url, f"answered HTTP {reply.status}")
    return _Fetched(reply.body, innermost((scope, scope_of_host(url))))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_CATALOG_BYTES + 1)
    except OSError as error:
        raise _not_found(path, f"cannot be read: {error.strerror or error}") from None
    if len(content) > _MAX_CATALOG_BYTES:
        raise _invalid(path, f"has more than {_MAX_CATALOG_BYTES} bytes")
    return content


def _check_card(path: Path) -> None:
    """Raise an error if a file is a catalog, of which no entry is named; ignore other errors."""
    try:
        with path.open("rb") as file:
            document: Any = json.loads(file.read(_MAX_CATALOG_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(document, dict) and "name" in document:
        return
    names = sorted(_agents(cast("object", document)) or ())
    if names:
        masked = masked_reference(str(path))
        message = f"{masked} is a catalog of agents: name an entry, as {masked}#{names[0]}"
        failure = Failure(code="A2ACLI_ERR_CARD_INVALID", message=message, exit=FAILURE)
        raise CommandError(failure)


def _entry(
    content: bytes, catalog: str | Path, name: str, scope: NetworkScope | None
) -> str | Path:
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise _invalid(catalog, "is not JSON") from None
    agents = _agents(document)
    if agents is None:
        raise _invalid(catalog, "has no object or list named agents")
    if name not in agents:
        names = ", ".join(sorted(agents)[:_MAX_SHOWN_ENTRIES])
        more = (
            f", and {len(agents) - _MAX_SHOWN_ENTRIES} more"
            if len(agents) > _MAX_SHOWN_ENTRIES
            else ""
        )
        nearest_name = nearest(name, agents)
        first = f"did you mean {nearest_name}? " if nearest_name else ""
        hint = f"{first}it has {names}{more}" if names else "the catalog is empty"
        raise _not_found(catalog, f"has no entry {name!r}", hint=hint)
    reference = agents[name]
    if reference is None:
        raise _invalid(catalog, f"names no address for {name!r}")
    return _below(catalog, reference, name, scope)


def _agents(document: object) -> dict[str, str | None] | None:
    """Return the references of a catalog by name; None if the document is not a catalog."""
    if isinstance(document, dict):
        document = cast("dict[str, object]", document).get("agents")
    if isinstance(document, dict):
        by_name = cast("dict[str, object]", document)
        return {name: _reference(entry) for name, entry in by_name.items()}
    if not isinstance(document, list):
        return None
    agents: dict[str, str | None] = {}
    for entry in cast("list[object]", document):
        members = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
        for name in (members.get("id"), members.get("name")):
            if isinstance(name, str):
                agents.setdefault(name, _reference(members))
    return agents


def _reference(entry: object) -> str | None:
    if isinstance(entry, dict):
        members = cast("Mapping[str, object]", entry)
        references = (members.get(key) for key in ("agentCard", "card", "url"))
        entry = next((reference for reference in references if isinstance(reference, str)), None)
    return entry if isinstance(entry, str) and entry.strip() else None


def _below(
    catalog: str | Path, reference: str, name: str, scope: NetworkScope | None
) -> str | Path:
    """Resolve the reference of an entry against its catalog."""
    try:
        if isinstance(catalog, Path) or scope is None:
            target = read_reference(reference)
            return Path(catalog).parent / target if isinstance(target, Path) else target
        target = read_reference(urljoin(catalog, reference))
    except ValueError as error:
        raise _invalid(catalog, f"names no address for {name!r}: {error}") from None
    reach = NetworkReach(inward=scope)
    number = None if isinstance(target, Path) else ip_literal(urlsplit(target).hostname or "")
    is_inside = number is not None and reach.refuses(str(number))
    if isinstance(target, Path) or is_inside:
        problem = f"names an address for {name!r} in a more private network"
        raise _invalid(catalog, problem, "if you trust that address, pass it as --agent-card")
    return ListedAddress.of(target, reach)


_FORM = (
    "check the catalog's path or URL; a catalog is JSON, such as "
    '{"agents": {"NAME": "https://agent.example.com"}}'
)


def _not_found(catalog: str | Path, problem: str, hint: str | None = None) -> CommandError:
    message = f"the catalog {masked_reference(str(catalog))} {problem}"
    code = "A2ACLI_ERR_CARD_NOT_FOUND"
    return CommandError(Failure(code=code, message=message, hint=hint or _FORM, exit=UNREACHABLE))


def _invalid(catalog: str | Path, problem: str, hint: str = _FORM) -> CommandError:
    message = f"the catalog {masked_reference(str(catalog))} {problem}"
    code = "A2ACLI_ERR_CARD_INVALID"
    return CommandError(Failure(code=code, message=message, hint=hint, exit=FAILURE))
