"""Serving an agent on sockets: uvicorn for what is HTTP, grpc.aio for gRPC."""

from __future__ import annotations
