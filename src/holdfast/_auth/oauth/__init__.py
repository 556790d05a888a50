"""OAuth 2 and OpenID Connect: tokens, fetched, kept and renewed."""
