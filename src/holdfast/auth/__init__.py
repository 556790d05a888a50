"""Credentials: where those of a client come from."""

from holdfast._auth.providers import (
    AuthInterceptor,
    AuthProvider,
    ClientCallContext,
    Credentials,
    CredentialService,
    InMemoryContextCredentialStore,
    SchemeCredentials,
    StaticAuth,
)

__all__ = [
    "AuthInterceptor",
    "AuthProvider",
    "ClientCallContext",
    "CredentialService",
    "Credentials",
    "InMemoryContextCredentialStore",
    "SchemeCredentials",
    "StaticAuth",
]
