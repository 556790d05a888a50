"""The layers of a call, from your code to the network.

tests/docs/test_pictures.py compares them with CONTRIBUTING.md, which has the order of the code.
"""

from __future__ import annotations

from drawing import Kind, Picture

__all__ = ["LAYERS", "picture"]

LAYERS: tuple[tuple[str, str, Kind], ...] = (
    ("ObservedLayer", "observers: the call begins and ends", "good"),
    ("InterceptorLayer", "your interceptors", "good"),
    ("DeadlineLayer", "timeout= of the call", "client"),
    ("AdmissionLayer", "concurrency limit", "client"),
    ("call_layers", "your layers around the whole call", "good"),
    ("RetryLayer", "retries and their budget", "client"),
    ("HedgeLayer", "a second request for a slow read", "client"),
    ("choice", "replica, card, interface, origin", "client"),
    ("OlderFilesLayer", "files for servers of protocol 0.3", "client"),
    ("GuardLayer", "Retry-After and circuit breaker", "client"),
    ("AttemptLayer", "observers: the attempt begins and ends", "good"),
    ("attempt_layers", "your layers around each attempt", "good"),
    ("CredentialsLayer", "credentials, once more after a 401", "client"),
    ("binding", "JSON-RPC, HTTP+JSON or gRPC; Timeouts", "client"),
)
"""The name of each layer, its purpose, and the colour: green where the caller's code is called."""

_TOP, _STEP = 76, 36
_X, _WIDTH = 24, 540


def picture() -> Picture:
    """Return the picture."""
    bottom = _TOP + _STEP * len(LAYERS)
    names = [name for name, _, _ in LAYERS]
    drawing = Picture(
        "The layers of a call",
        "From your code to the network, a call passes these layers, and the reply passes them in "
        "the opposite order. "
        + " ".join(f"{name}: {purpose}." for name, purpose, _ in LAYERS)
        + " Layers up to RetryLayer see a call once; the layers below it see each attempt, and "
        + "those below HedgeLayer each hedged request, too.",
        width=690,
        height=bottom + 78,
    )
    drawing.box(
        (_X, 20), (_WIDTH, 34), ("your code: ask, stream_message, get_task …", "strong")
    )
    drawing.line((_X + 60, 54), (_X + 60, _TOP), kind="client", arrow=True)
    drawing.text((_X + 72, 70), "call", style="muted")
    drawing.line(
        (_X + _WIDTH - 60, _TOP), (_X + _WIDTH - 60, 54), kind="client", arrow=True
    )
    drawing.text(
        (_X + _WIDTH - 72, 70), "reply or A2AError", style="muted", anchor="end"
    )
    for number, (name, purpose, kind) in enumerate(LAYERS):
        y = _TOP + _STEP * number
        drawing.rectangle((_X, y), (_WIDTH, _STEP - 6), kind=kind)
        drawing.text((_X + 14, y + 20), name, style="code")
        drawing.text((_X + 190, y + 20), purpose, width=_WIDTH - 190)
    drawing.box(
        (_X, bottom + 8),
        (_WIDTH, 34),
        ("HttpEngine or gRPC channel: the network", "strong"),
    )
    retry, attempt = names.index("RetryLayer"), names.index("choice")
    for first, last, label in (
        (0, retry, ("once", "per call")),
        (retry + 1, len(names) - 1, ("for each", "attempt")),
    ):
        begin, end = _TOP + _STEP * first, _TOP + _STEP * (last + 1) - 6
        drawing.line((576, begin), (586, begin), (586, end), (576, end), kind="client")
        for number, line in enumerate(label):
            drawing.text((600, (begin + end) / 2 + 18 * number - 4), line)
    assert attempt > retry  # noqa: S101  an endpoint is chosen for each attempt
    drawing.text((_X, bottom + 64), "Green: your code is called here.", style="muted")
    return drawing
