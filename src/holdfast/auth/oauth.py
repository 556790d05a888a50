"""OAuth 2 and OpenID Connect: providers that fetch, store and renew tokens (extra ``oauth``).

Authenticate the client itself::

    auth = ClientCredentials("https://id.example.com", "my-client", "my-secret", scopes=["a2a"])
    async with holdfast.connect("https://agent.example.com", auth=auth) as agent:
        ...

Each provider is an `AuthProvider`. ``oauthlib`` encodes the requests to the authorization server,
and an `HttpEngine` sends them.
"""

from holdfast._auth.oauth.files import FileTokenStore
from holdfast._auth.oauth.grants import (
    AuthorizationCode,
    ClientCredentials,
    DeviceCode,
    DevicePrompt,
)
from holdfast._auth.oauth.provider import OAuthOptions, OAuthProvider
from holdfast._auth.oauth.servers import AuthorizationServer, FromCard
from holdfast._auth.oauth.tokens import MemoryTokenStore, Token, TokenStore
from holdfast._public import publish

__all__ = [
    "AuthorizationCode",
    "AuthorizationServer",
    "ClientCredentials",
    "DeviceCode",
    "DevicePrompt",
    "FileTokenStore",
    "FromCard",
    "MemoryTokenStore",
    "OAuthOptions",
    "OAuthProvider",
    "Token",
    "TokenStore",
]

__getattr__, __dir__ = publish(__name__)
