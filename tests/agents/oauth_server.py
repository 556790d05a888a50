"""A real authorization server, django-oauth-toolkit's, for our tests to call over loopback.

Rules:
- It never imports holdfast, and runs in an environment of its own.
- Standard output carries exactly one line, where it is and its clients, as JSON, once it is ready.
- It ends with exit code 0 when standard input ends, or when its time is up.
- Who comes with a browser is logged in already, and allows everything: what a person would do by
  hand at `/o/device` is done by `GET /allow?user_code=…`.
- `/check` is a protected resource, which needs the scope `a2a`; `GET /revoke?token=…` ends one.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
from django.conf import settings

os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
SECONDS = 600
LIFETIME = 3600


def configure(directory: str) -> None:
    """Set Django up with nothing but the provider."""
    settings.configure(
        SECRET_KEY="for tests on loopback",
        ALLOWED_HOSTS=["127.0.0.1"],
        DEBUG=False,
        DEBUG_PROPAGATE_EXCEPTIONS=True,  # to standard error, and a 500 to who asks
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "oauth2_provider"],
        MIGRATION_MODULES={"auth": None, "contenttypes": None, "oauth2_provider": None},
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(Path(directory) / "provider.db"),
                "OPTIONS": {"timeout": 20},
            }
        },
        MIDDLEWARE=["oauth_server.logged_in"],
        ROOT_URLCONF="oauth_server",
        USE_TZ=True,
        OAUTH2_PROVIDER={
            "SCOPES": {"a2a": "talk to the agent", "more": "do more", "openid": "who you are"},
            "ACCESS_TOKEN_EXPIRE_SECONDS": LIFETIME,
            "ROTATE_REFRESH_TOKEN": True,
            "PKCE_REQUIRED": True,
            "OIDC_ENABLED": True,
            "ALLOWED_REDIRECT_URI_SCHEMES": ["http", "https"],
            "DEVICE_FLOW_INTERVAL": 1,
            "OAUTH_DEVICE_VERIFICATION_URI": "http://127.0.0.1/device",
        },
    )
    sys.modules["oauth_server"] = sys.modules[__name__]
    django.setup()


def logged_in(get_response: Any) -> Any:
    """Say who comes with a browser."""

    def middleware(request: Any) -> Any:
        from django.contrib.auth import get_user_model

        request._dont_enforce_csrf_checks = True
        request.user = get_user_model().objects.get(username="ada")
        return get_response(request)

    return middleware


def check(request: Any) -> Any:
    """Answer who has a token."""
    from django.http import JsonResponse
    from oauth2_provider.decorators import protected_resource

    answer = protected_resource(scopes=["a2a"])(lambda _: JsonResponse({"ok": True}))(request)
    if answer.status_code == 403 and "Authorization" in request.headers:
        answer.status_code = 401
        answer["WWW-Authenticate"] = 'Bearer error="invalid_token"'
    return answer


def revoke(request: Any) -> Any:
    """End a token."""
    from django.http import JsonResponse
    from oauth2_provider.models import AccessToken

    count, _ = AccessToken.objects.filter(token=request.GET["token"]).delete()
    return JsonResponse({"revoked": count})


def allow(request: Any) -> Any:
    """Do what a person does who enters a code."""
    from django.http import JsonResponse
    from oauth2_provider.models import get_device_grant_model

    model = get_device_grant_model()
    grant = model.objects.get(user_code=request.GET["user_code"].replace("-", ""))
    grant.user = request.user
    grant.status = model.AUTHORIZED
    grant.save()
    return JsonResponse({"allowed": True})


def make_clients() -> dict[str, Any]:
    """Make a user and a client for each grant."""
    from django.contrib.auth import get_user_model
    from oauth2_provider.models import Application

    ada = get_user_model().objects.create_user("ada")
    grants = {
        "machine": (Application.GRANT_CLIENT_CREDENTIALS, Application.CLIENT_CONFIDENTIAL),
        "browser": (Application.GRANT_AUTHORIZATION_CODE, Application.CLIENT_PUBLIC),
        "device": (Application.GRANT_DEVICE_CODE, Application.CLIENT_PUBLIC),
    }
    secret = "s3cret/+ of the machine"
    for name, (grant, kind) in grants.items():
        Application.objects.create(
            name=name,
            client_id=name,
            client_secret=secret if kind == Application.CLIENT_CONFIDENTIAL else "",
            client_type=kind,
            authorization_grant_type=grant,
            hash_client_secret=False,  # to compare with a hash would take a second each time
            redirect_uris="http://127.0.0.1/callback",
            skip_authorization=True,
            user=ada,
        )
    return {"secret": secret}


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """Answer each request in a thread of its own."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Log nothing."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until standard input ends."""
    with tempfile.TemporaryDirectory() as directory:
        configure(directory)
        from django.core.management import call_command
        from django.core.wsgi import get_wsgi_application
        from django.urls import include, path

        globals()["urlpatterns"] = [
            path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
            path("check", check),
            path("revoke", revoke),
            path("allow", allow),
        ]
        call_command("migrate", run_syncdb=True, verbosity=0)
        said = make_clients()
        server = make_server("127.0.0.1", 0, get_wsgi_application(), Server, Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Timer(SECONDS, lambda: os._exit(0)).start()
        said["url"] = f"http://127.0.0.1:{server.server_port}"
        print(json.dumps(said), flush=True)  # noqa: T201
        sys.stdin.read()
        server.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
