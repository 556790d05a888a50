"""TLS and OAuth as a caller's program uses them, for type checkers: never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import ssl
from pathlib import Path
from typing import assert_type

from holdfast import AiohttpEngine, Client, Coordinator, TlsConfig, connect
from holdfast.auth import AuthProvider
from holdfast.auth.oauth import (
    AuthorizationCode,
    AuthorizationServer,
    ClientCredentials,
    DeviceCode,
    DevicePrompt,
    FileTokenStore,
    FromCard,
    MemoryTokenStore,
    OAuthOptions,
    Token,
    TokenStore,
)

TLS = TlsConfig(ca_file="ca.pem", cert_file=Path("cert.pem"), key_file="key.pem", verify=True)
WRONG = TlsConfig("ca.pem")  # type: ignore[call-arg]

assert_type(TLS.context(), ssl.SSLContext)
assert_type(TLS.pem().key, bytes | None)
assert_type(connect("https://a.test", tls=TLS), Client)
ENGINE = AiohttpEngine(ssl=TLS)
AGENTS = Coordinator(["https://a.test"], tls=TLS)

SERVER = AuthorizationServer(token_endpoint="https://id.test/token", issuer="https://id.test")
STORE: TokenStore = FileTokenStore(Path("tokens"))
STORES: list[TokenStore] = [STORE, MemoryTokenStore()]
OPTIONS: OAuthOptions = {"scopes": ["a2a"], "resource": "https://a.test", "store": STORE}
PROVIDERS: list[AuthProvider] = [
    ClientCredentials("https://id.test", "me", "secret", **OPTIONS),
    ClientCredentials(FromCard(["https://id.test"]), "me", tls=TLS, client_auth="none"),
    AuthorizationCode(SERVER, "me", open_url=print, login_timeout=60),
]


async def prompt(told: DevicePrompt) -> None:
    assert_type(told.verification_uri_complete, str | None)


async def tokens() -> None:
    device = DeviceCode(SERVER, "me", prompt, step_up=True)
    assert_type(await device.token(), Token)
    connect("https://a.test", auth=device)
    DeviceCode(SERVER, "me")  # type: ignore[call-arg]
