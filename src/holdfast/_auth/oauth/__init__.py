"""OAuth 2 and OpenID Connect: providers that fetch, store and renew tokens."""
