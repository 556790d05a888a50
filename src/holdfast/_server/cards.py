"""The card of an agent: from a card, a stub of an agent, or the function that answers.

Rules: what is given is taken as it is; what only the server knows is filled in: the interfaces,
and of the capabilities what it was told to offer.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from holdfast._model import codec
from holdfast._model.codec import MalformedError
from holdfast.types import AgentCard, AgentInterface, AgentSkill, WireValue

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["interfaces", "metadata_card"]

_VERSION = "1.0.0"
_MODES = ("text/plain",)
_LARGEST = 1024 * 1024


def metadata_card(agent: object, card: object) -> AgentCard:
    """The card without what only the server knows.

    Args:
        agent: What answers; its name and docstring are taken where there is no card.
        card: An `AgentCard`, one of the SDK's, its JSON object, the path of its file, or any
            object with a ``name``; None for the agent itself.

    Raises:
        ValueError: It is no card, or has no name.
        TypeError: It is none of these.
    """
    found = _read(agent if card is None else card, is_agent=card is None)
    if not found.name:
        raise ValueError("the card has no name")
    changes: dict[str, Any] = {
        "version": found.version or _VERSION,
        "description": found.description or found.name,
        "default_input_modes": found.default_input_modes or _MODES,
        "default_output_modes": found.default_output_modes or _MODES,
    }
    found = msgspec.structs.replace(found, **changes)
    return found if found.skills else msgspec.structs.replace(found, skills=(_skill(found),))


def interfaces(
    url: str,
    bindings: Sequence[str],
    *,
    versions: Sequence[str] = ("1.0",),
    grpc_url: str | None = None,
) -> tuple[AgentInterface, ...]:
    """Where an agent is, in the order of the bindings.

    Args:
        url: Where its application is.
        bindings: Some of `holdfast._wire.bindings.BINDINGS`.
        versions: Of the protocol, the preferred one first.
        grpc_url: ``host:port`` for gRPC; None for the host and port of `url`.
    """
    root = url.rstrip("/")
    addresses = {
        "JSONRPC": f"{root}/",
        "HTTP+JSON": root,
        "GRPC": grpc_url or urlsplit(url).netloc,
    }
    return tuple(
        AgentInterface(url=addresses[name], protocol_binding=name, protocol_version=version)
        for version in versions
        for name in bindings
    )


def _skill(card: AgentCard) -> AgentSkill:
    return AgentSkill(
        id=card.name.replace(" ", "-").lower(),
        name=card.name,
        description=card.description,
        tags=(card.name,),
    )


def _read(given: Any, *, is_agent: bool) -> AgentCard:
    match given:
        case AgentCard():
            return given
        case str() | bytes() | int() | float() | list():
            pass
        case Path():
            return _from_document(_document(given))
        case Mapping():
            return _from_document(dict(cast("Mapping[str, Any]", given)))
        case _ if _is_message(given):
            from holdfast._integrations.a2a_sdk.messages import to_card

            return to_card(given)
        case _ if isinstance(getattr(given, "name", None), str) and not isinstance(given, type):
            return _of_stub(given)
        case _ if is_agent:
            return _of_code(given)
        case _:
            pass
    raise TypeError(
        "card must be an AgentCard, its JSON object, the Path of its file, or an object with a "
        f"name, not {type(cast('object', given)).__name__}"
    )


def _is_message(given: object) -> bool:
    return hasattr(given, "DESCRIPTOR") and type(given).__name__ == "AgentCard"


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ValueError(f"cannot read the card {path}: {error.strerror or error}") from None
    if len(content) > _LARGEST:
        raise ValueError(f"the card {path} is larger than {_LARGEST} bytes")
    try:
        return codec.parse(content)
    except MalformedError as error:
        raise ValueError(f"the card {path} is {error}") from None


def _from_document(document: Any) -> AgentCard:
    try:
        return codec.from_builtins(document, AgentCard)
    except MalformedError as error:
        raise ValueError(f"the card is not valid: {error}") from None


def _of_stub(stub: Any) -> AgentCard:
    """The card of whatever has a name, with what else it has of a card.

    A prompt is none of it: that is nobody else's business.
    """
    document: dict[str, Any] = {}
    for name in AgentCard.__struct_fields__:
        value = getattr(stub, name, None)
        if isinstance(value, str | Mapping | WireValue | list | tuple):
            document[_camel(name)] = _plain(cast("Any", value))
    document["skills"] = [_skill_of(skill) for skill in document.get("skills", ())]
    return _from_document(document)


def _plain(value: Any) -> Any:
    """The JSON of a member."""
    match value:
        case WireValue():
            return value.to_dict()
        case Mapping():
            items = cast("Mapping[str, Any]", value).items()
            return {name: _plain(item) for name, item in items}
        case list() | tuple():
            return [_plain(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _skill_of(skill: Any) -> dict[str, Any]:
    """The JSON of a skill, of which a name will do."""
    if isinstance(skill, dict):
        return cast("dict[str, Any]", skill)
    name = skill if isinstance(skill, str) else str(getattr(skill, "name", "") or "")
    about = str(getattr(skill, "description", "") or name)
    return {
        "id": str(getattr(skill, "id", "") or name),
        "name": name,
        "description": about,
        "tags": [name],
    }


def _of_code(agent: Any) -> AgentCard:
    """The card of a function or an object: its name, and the first paragraph of its docstring."""
    named: Any = agent if inspect.isroutine(agent) else cast("Any", type(agent))
    named = inspect.unwrap(named)
    name = str(getattr(named, "__name__", "") or "agent").strip("_<>")
    about = " ".join((inspect.getdoc(named) or "").partition("\n\n")[0].split())
    return AgentCard(name=name, description=about)
