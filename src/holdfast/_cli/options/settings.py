"""The settings of a command, resolved from its options and their sources."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from holdfast._cli.options.configuration import DEFAULT, FLAG, PREFIX, Source
from holdfast._cli.options.flags import DEFAULT_POLL_INTERVAL_S, DEFAULT_TIMEOUT_S
from holdfast._cli.options.masking import hidden, masked_reference
from holdfast._cli.options.parameters import (
    MissingAgentError,
    SettingOption,
    configuration_of,
    setting_beside,
    value_of,
)
from holdfast._cli.options.values import read_switch
from holdfast._wire.versions import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CLIENT_SECRET = f"{PREFIX}CLIENT_SECRET"
"""Variable of the client's secret; there is no such flag, which would expose it."""

CLIENT_KEY_PASSWORD = f"{PREFIX}CLIENT_KEY_PASSWORD"
"""Variable of the password of the client's key; there is no such flag."""

__all__ = ["ResolvedSetting", "Settings", "effective", "read_settings"]


_NONE: Mapping[str, Any] = MappingProxyType({})


class Settings(NamedTuple):
    """The settings of a command.

    Attributes:
        agent_card: The reference, as written; or the address of the interface.
        replicas: The addresses of the agent's other replicas, as a journal names them.
        is_endpoint: Whether it is the address of an interface, and no card is fetched.
        config: The configuration file that the caller named by a flag, as written.
        bearer: A bearer token.
        api_key: An API key.
        svc_params: Service parameters (A2A 3.2.6), names in lower case.
        extensions: URIs of extensions that messages follow.
        transports: Preferred bindings, in the order of preference.
        version: The protocol version to signal; the newest unless the caller asked for one.
        version_given: Whether the caller asked for it.
        insecure: Whether certificates are left unverified.
        no_cache: Whether the card is fetched without the cache, and not cached.
        client_cert: File of the client's certificate.
        client_key: File of its key.
        timeout: Seconds for the whole command.
        timeout_given: Whether the caller chose it.
        output: ``text`` or ``json``.
        verbose: Whether to show everything.
        debug: Whether to log the requests on stderr.
        waits: Whether to wait for the task; None leaves it to the command.
        stream: Whether to show events as they arrive.
        through_auth: Whether to keep waiting while a task waits for authorization.
        poll_interval: Seconds between two polls.
        card_keys: Keys of cards' signatures, as written.
        card_key_hosts: Hosts whose key sets are accepted.
        require_signature: Whether a card must be verified.
        client_secret: The client's secret, for authorization servers.
        client_of_secret: The client's id and the issuer that the secret's source names for it;
            None for one that is not named.
        client_key_password: The password of the client's key.
        credential_origins: Agents, or origins, that credentials are for.
        withheld: The reasons why credentials are withheld, by the option's name.
        bound_to: The origin that the other credentials go to; None if unknown.
        is_credential_origin: Whether `credential_origins` includes the agent.
        agent_source: The source of the agent.
        sources: The source of each setting, by the option's name.
        named: The name of each setting in its source, by the option's name.
        weaknesses: The settings that make the command less strict, each with its source.
    """

    agent_card: str
    replicas: tuple[str, ...] = ()
    is_endpoint: bool = False
    config: str | None = None
    bearer: str | None = None
    api_key: str | None = None
    svc_params: Mapping[str, str] = _NONE
    extensions: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    version: str = PROTOCOL_VERSION
    version_given: bool = False
    insecure: bool = False
    no_cache: bool = False
    client_cert: str | None = None
    client_key: str | None = None
    timeout: float = DEFAULT_TIMEOUT_S
    timeout_given: bool = False
    output: Literal["text", "json"] = "text"
    verbose: bool = False
    debug: bool = False
    waits: bool | None = None
    stream: bool = False
    through_auth: bool = False
    poll_interval: float = DEFAULT_POLL_INTERVAL_S
    card_keys: str | None = None
    card_key_hosts: tuple[str, ...] = ()
    require_signature: bool = False
    client_secret: str | None = None
    client_of_secret: tuple[str | None, str | None] = (None, None)
    client_key_password: str | None = None
    credential_origins: tuple[str, ...] = ()
    withheld: Mapping[str, str] = _NONE
    bound_to: str | None = None
    is_credential_origin: bool = False
    agent_source: Source = DEFAULT
    sources: Mapping[str, Source] = _NONE
    named: Mapping[str, str] = _NONE
    weaknesses: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Settings(…)"  # they contain secrets

    @property
    def credentials(self) -> set[str]:
        """The flags of the given credentials, of any source."""
        secrets = {"--bearer": self.bearer, "--api-key": self.api_key}
        return {flag for flag, secret in secrets.items() if secret is not None}

    @property
    def agent_words(self) -> tuple[str, ...]:
        """The words of a command with the same settings about the agent."""
        transports = [word for name in self.transports for word in ("--transport", name)]
        extensions = [word for uri in self.extensions for word in ("--extension", uri)]
        insecure = ["--insecure"] if self.insecure else []
        for flag, path in (
            ("--client-cert", self.client_cert),
            ("--client-key", self.client_key),
        ):
            insecure += [] if path is None else [flag, path]
        is_newest = self.version == PROTOCOL_VERSION
        version = [] if is_newest else ["--a2a-version", self.version]
        config = [] if self.config is None else ["--config", self.config]
        flag = "--endpoint" if self.is_endpoint else "--agent-card"
        card = [flag, masked_reference(self.agent_card)]
        return (*card, *config, *version, *transports, *extensions, *insecure)


class ResolvedSetting(NamedTuple):
    """The value of a setting, and its source.

    Attributes:
        name: The flag without its dashes.
        variable: The environment variable.
        value: As a file would have it, without secrets; None if it is not set.
        source: The source.
        otherwise: The effect of no value, in words; None for none.
    """

    name: str
    variable: str
    value: str | None
    source: Source
    otherwise: str | None = None


def read_settings(ctx: click.Context, *, needs_agent: bool = True) -> Settings:
    """Resolve the options before and after the command's name.

    Args:
        ctx: The command's context.
        needs_agent: Whether an agent must be named; its reference is empty if none is.

    Raises:
        MissingAgentError: No agent is named.
        click.UsageError: Options contradict each other.
    """
    values, sources = _merged(ctx)
    endpoint = _endpoint(ctx, values, sources)
    if endpoint is None and values.get("agent_card") is None and needs_agent:
        raise MissingAgentError(ctx)
    waits, source = _waits(ctx, values, sources)
    stream = bool(values.get("stream"))
    if stream and waits is False:
        if source is FLAG:
            message = "--stream and --async contradict each other."
            raise click.UsageError(message, ctx)
        waits = True  # a flag beats other sources
    named = _named(ctx, sources)
    secret, secret_source = value_of(ctx, CLIENT_SECRET)
    return Settings(
        agent_card=endpoint or values["agent_card"] or "",
        is_endpoint=endpoint is not None,
        config=values["config"] if sources["config"] is FLAG else None,
        bearer=values["bearer"],
        api_key=values["api_key"],
        svc_params=_no_repeats(ctx, values["svc_param"]),
        extensions=tuple(dict.fromkeys(values["extension"])),
        transports=tuple(dict.fromkeys(values["transport"])),
        version=values["a2a_version"] or PROTOCOL_VERSION,
        version_given=values["a2a_version"] is not None,
        insecure=values["insecure"],
        no_cache=values["no_cache"],
        client_cert=values["client_cert"],
        client_key=values["client_key"],
        timeout=values["timeout"],
        timeout_given=sources["timeout"] is not DEFAULT,
        output=values["output"],
        verbose=values["verbose"],
        debug=values["debug"],
        waits=waits,
        stream=stream,
        through_auth=bool(values.get("through_auth")),
        poll_interval=values.get("poll_interval", DEFAULT_POLL_INTERVAL_S),
        card_keys=values["card_keys"],
        card_key_hosts=tuple(dict.fromkeys(values["card_key_hosts"])),
        require_signature=values["require_signature"],
        client_secret=secret,
        client_of_secret=(
            setting_beside(ctx, secret_source, f"{PREFIX}CLIENT_ID"),
            setting_beside(ctx, secret_source, f"{PREFIX}ISSUER"),
        ),
        client_key_password=value_of(ctx, CLIENT_KEY_PASSWORD)[0],
        credential_origins=tuple(dict.fromkeys(values["credential_origins"])),
        agent_source=sources["agent_card" if endpoint is None else "endpoint"],
        sources=sources,
        named=named,
        weaknesses=tuple(_weaknesses(ctx, values, named)),
    )


def effective(ctx: click.Context) -> Iterator[ResolvedSetting]:
    """Yield each setting in effect.

    Raises:
        click.UsageError: Options contradict each other.
    """
    values, sources = _merged(ctx)
    waits, source = _waits(ctx, values, sources)
    values |= {"wait": waits, "asynchronous": waits is False}
    sources |= {"wait": source, "asynchronous": source}
    for param in ctx.command.params:
        if isinstance(param, SettingOption):
            shown, source = param.show(values[param.name]), sources[param.name]
            name = param.opts[0].lstrip("-")
            yield ResolvedSetting(name, param.variable, shown, source, param.otherwise)
    for variable in (CLIENT_SECRET, CLIENT_KEY_PASSWORD):
        value, source = value_of(ctx, variable)
        name = variable.removeprefix(PREFIX).lower().replace("_", "-")
        yield ResolvedSetting(name, variable, None if value is None else hidden(value), source)


def _named(ctx: click.Context, sources: Mapping[str, Source]) -> dict[str, str]:
    """Return the name of each setting in its source."""
    params = (param for param in ctx.command.params if isinstance(param, SettingOption))
    return {param.name: param.written(sources[param.name]) for param in params if param.name}


def _weaknesses(
    ctx: click.Context, values: Mapping[str, Any], named: Mapping[str, str]
) -> Iterator[str]:
    """Yield the settings that make the command less strict than the default, or than a file."""
    if values["insecure"]:
        origin = "" if named["insecure"] == "--insecure" else f" ({named['insecure']})"
        yield (
            f"--insecure: TLS certificates are not verified{origin}; use this for development only"
        )
    variable = f"{PREFIX}REQUIRE_SIGNATURE"
    demanded = configuration_of(ctx).find(variable)
    if demanded is not None and read_switch(demanded.value) and not values["require_signature"]:
        yield (
            f"{variable} in the environment turns off what {demanded.source.location} asks for: "
            "cards need no signature"
        )
    if values.get("allow_unadvertised_pkce"):
        option = "--allow-unadvertised-pkce"
        origin = named["allow_unadvertised_pkce"]
        origin = "" if origin == option else f" ({origin})"
        yield f"{option}: the login may go to a server that ignores code challenges{origin}"
    for name in ("issuer", "trust_server"):
        if values.get(name) and not named[name].startswith("-"):
            shown = values[name] if name == "issuer" else ", ".join(values[name])
            yield f"{named[name]} allows the login to use {shown}"


def _merged(ctx: click.Context) -> tuple[dict[str, Any], dict[str, Source]]:
    values: dict[str, Any] = dict(ctx.params)
    params = {param.name: param for param in ctx.command.params}
    sources = {name: _source(params.get(name), ctx) for name in values}
    above = ctx.parent
    while above is not None:
        for param in above.command.params:
            name = param.name
            if _source(param, above) is not FLAG:
                continue
            value = above.params.get(name)
            if sources.get(name) is not FLAG:
                values[name], sources[name] = value, FLAG
            elif isinstance(value, tuple):
                values[name] = (*value, *values[name])
        above = above.parent
    return values, sources


def _source(param: click.Parameter | None, ctx: click.Context) -> Source:
    return param.source(ctx) if isinstance(param, SettingOption) else DEFAULT


def _waits(
    ctx: click.Context, values: Mapping[str, Any], sources: Mapping[str, Source]
) -> tuple[bool | None, Source]:
    """Return the value of ``--wait`` and ``--async``: that of the source of higher precedence."""
    candidates = [
        (sources[name], waits)
        for name, waits in (("wait", True), ("asynchronous", False))
        if values.get(name)
    ]
    if not candidates:
        return None, DEFAULT
    source, waits = min(candidates)
    if len({place.rank for place, _ in candidates}) < len(candidates):
        message = f"{_spelled('wait', 'async', source)} contradict each other."
        raise click.UsageError(message, ctx)
    return waits, source


def _endpoint(
    ctx: click.Context, values: dict[str, Any], sources: Mapping[str, Source]
) -> str | None:
    """Return the interface's address, if it names the agent by the source of higher precedence.

    An address that begins with grpc:// or grpcs:// sets the binding in `values`.
    """
    endpoint: str | None = values.get("endpoint")
    if endpoint is None:
        return None
    if values.get("agent_card") is not None:
        card, interface = sources["agent_card"], sources["endpoint"]
        if card.rank == interface.rank:
            message = f"{_spelled('endpoint', 'agent-card', interface)} contradict each other."
            raise click.UsageError(message, ctx)
        if card < interface:
            return None
    from holdfast._model.grpc_addresses import is_of_grpc_alone  # most commands need no endpoint

    if is_of_grpc_alone(endpoint):
        names = set(values["transport"]) - {"GRPC"}
        if names and not sources["endpoint"] < sources["transport"]:
            message = (
                f"--endpoint {masked_reference(endpoint)} is a gRPC address: pass --transport "
                f"grpc, or leave out --transport {', '.join(sorted(names))}."
            )
            raise click.UsageError(message, ctx)
        values["transport"] = ("GRPC",)
    if len(set(values["transport"])) != 1:
        message = (
            "--endpoint needs exactly one --transport, the binding of that address: "
            "jsonrpc, rest or grpc."
        )
        raise click.UsageError(message, ctx)
    return endpoint


def _spelled(first: str, other: str, source: Source) -> str:
    """Return two options as they are written in their source."""
    if source is FLAG:
        return f"--{first} and --{other}"
    file_text = "" if source.path is None else f" in {source.path}"
    variables = (f"{PREFIX}{name.upper().replace('-', '_')}" for name in (first, other))
    return f"{' and '.join(variables)}{file_text}"


def _no_repeats(ctx: click.Context, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    params = dict(pairs)
    if len(params) < len(pairs):
        message = "A service parameter is given twice with --svc-param."
        raise click.UsageError(message, ctx)
    return params
