"""Names of the official SDK and of the error article, for programs that use them."""

from __future__ import annotations

from holdfast._auth.providers import (
    AuthInterceptor,
    CredentialService,
    InMemoryContextCredentialStore,
)
from holdfast._client.content import create_text_message_object
from holdfast._compat.card_resolver import A2ACardResolver
from holdfast._compat.factory import ClientConfig, ClientFactory, Producer, minimal_agent_card
from holdfast._compat.task_manager import ClientTaskManager
from holdfast._model.article_errors import ArticleErrorCode, make_error
from holdfast._public import publish
from holdfast._stream.fold import TaskUpdate

__all__ = [
    "A2ACardResolver",
    "ArticleErrorCode",
    "AuthInterceptor",
    "ClientConfig",
    "ClientFactory",
    "ClientTaskManager",
    "CredentialService",
    "InMemoryContextCredentialStore",
    "Producer",
    "TaskUpdate",
    "create_text_message_object",
    "make_error",
    "minimal_agent_card",
]

__getattr__, __dir__ = publish(__name__)
