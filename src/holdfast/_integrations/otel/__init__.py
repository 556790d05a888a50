"""Spans and metrics of OpenTelemetry (extra ``otel``); they need its API alone."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast._model.extras import missing_extra

if find_spec("opentelemetry") is None:
    feature = "holdfast.integrations.opentelemetry"
    raise missing_extra(feature, "otel", library="opentelemetry-api")
