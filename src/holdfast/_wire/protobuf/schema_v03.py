"""Messages of protocol 0.3 (its ``specification/grpc/a2a.proto``)."""

from __future__ import annotations

from holdfast._wire.protobuf.schema import Field, Schema

__all__ = ["V03"]

V03 = Schema(
    package="a2a.v1",
    messages={
        "SendMessageConfiguration": (
            Field(1, "accepted_output_modes", "repeated string"),
            Field(2, "push_notification", "PushNotificationConfig"),
            Field(3, "history_length", "int32"),
            Field(4, "blocking", "bool"),
        ),
        "Task": (
            Field(1, "id", "string"),
            Field(2, "context_id", "string"),
            Field(3, "status", "TaskStatus"),
            Field(4, "artifacts", "repeated Artifact"),
            Field(5, "history", "repeated Message"),
            Field(6, "metadata", "Struct"),
        ),
        "TaskStatus": (
            Field(1, "state", "TaskState"),
            Field(2, "update", "Message", json="message"),
            Field(3, "timestamp", "Timestamp"),
        ),
        "Part": (
            Field(1, "text", "string", oneof="part"),
            Field(2, "file", "FilePart", oneof="part"),
            Field(3, "data", "DataPart", oneof="part"),
            Field(4, "metadata", "Struct"),
        ),
        "FilePart": (
            Field(1, "file_with_uri", "string", oneof="file"),
            Field(2, "file_with_bytes", "bytes", oneof="file"),
            Field(3, "mime_type", "string"),
            Field(4, "name", "string"),
        ),
        "DataPart": (Field(1, "data", "Struct"),),
        "Message": (
            Field(1, "message_id", "string"),
            Field(2, "context_id", "string"),
            Field(3, "task_id", "string"),
            Field(4, "role", "Role"),
            Field(5, "content", "repeated Part"),
            Field(6, "metadata", "Struct"),
            Field(7, "extensions", "repeated string"),
        ),
        "Artifact": (
            Field(1, "artifact_id", "string"),
            Field(3, "name", "string"),
            Field(4, "description", "string"),
            Field(5, "parts", "repeated Part"),
            Field(6, "metadata", "Struct"),
            Field(7, "extensions", "repeated string"),
        ),
        "TaskStatusUpdateEvent": (
            Field(1, "task_id", "string"),
            Field(2, "context_id", "string"),
            Field(3, "status", "TaskStatus"),
            Field(4, "final", "bool"),
            Field(5, "metadata", "Struct"),
        ),
        "TaskArtifactUpdateEvent": (
            Field(1, "task_id", "string"),
            Field(2, "context_id", "string"),
            Field(3, "artifact", "Artifact"),
            Field(4, "append", "bool"),
            Field(5, "last_chunk", "bool"),
            Field(6, "metadata", "Struct"),
        ),
        "PushNotificationConfig": (
            Field(1, "id", "string"),
            Field(2, "url", "string"),
            Field(3, "token", "string"),
            Field(4, "authentication", "AuthenticationInfo"),
        ),
        "AuthenticationInfo": (
            Field(1, "schemes", "repeated string"),
            Field(2, "credentials", "string"),
        ),
        "AgentInterface": (
            Field(1, "url", "string"),
            Field(2, "transport", "string"),
        ),
        "AgentCard": (
            Field(16, "protocol_version", "string"),
            Field(1, "name", "string"),
            Field(2, "description", "string"),
            Field(3, "url", "string"),
            Field(14, "preferred_transport", "string"),
            Field(15, "additional_interfaces", "repeated AgentInterface"),
            Field(4, "provider", "AgentProvider"),
            Field(5, "version", "string"),
            Field(6, "documentation_url", "string"),
            Field(7, "capabilities", "AgentCapabilities"),
            Field(8, "security_schemes", "map<string, SecurityScheme>"),
            Field(9, "security", "repeated Security"),
            Field(10, "default_input_modes", "repeated string"),
            Field(11, "default_output_modes", "repeated string"),
            Field(12, "skills", "repeated AgentSkill"),
            Field(13, "supports_authenticated_extended_card", "bool"),
            Field(17, "signatures", "repeated AgentCardSignature"),
            Field(18, "icon_url", "string"),
        ),
        "AgentProvider": (
            Field(1, "url", "string"),
            Field(2, "organization", "string"),
        ),
        "AgentCapabilities": (
            Field(1, "streaming", "bool"),
            Field(2, "push_notifications", "bool"),
            Field(3, "extensions", "repeated AgentExtension"),
        ),
        "AgentExtension": (
            Field(1, "uri", "string"),
            Field(2, "description", "string"),
            Field(3, "required", "bool"),
            Field(4, "params", "Struct"),
        ),
        "AgentSkill": (
            Field(1, "id", "string"),
            Field(2, "name", "string"),
            Field(3, "description", "string"),
            Field(4, "tags", "repeated string"),
            Field(5, "examples", "repeated string"),
            Field(6, "input_modes", "repeated string"),
            Field(7, "output_modes", "repeated string"),
            Field(8, "security", "repeated Security"),
        ),
        "AgentCardSignature": (
            Field(1, "protected", "string"),
            Field(2, "signature", "string"),
            Field(3, "header", "Struct"),
        ),
        "TaskPushNotificationConfig": (
            Field(1, "name", "string"),
            Field(2, "push_notification_config", "PushNotificationConfig"),
        ),
        "StringList": (Field(1, "list", "repeated string"),),
        "Security": (Field(1, "schemes", "map<string, StringList>"),),
        "SecurityScheme": (
            Field(1, "api_key_security_scheme", "APIKeySecurityScheme", oneof="scheme"),
            Field(2, "http_auth_security_scheme", "HTTPAuthSecurityScheme", oneof="scheme"),
            Field(3, "oauth2_security_scheme", "OAuth2SecurityScheme", oneof="scheme"),
            Field(
                4, "open_id_connect_security_scheme", "OpenIdConnectSecurityScheme", oneof="scheme"
            ),
            Field(5, "mtls_security_scheme", "MutualTlsSecurityScheme", oneof="scheme"),
        ),
        "APIKeySecurityScheme": (
            Field(1, "description", "string"),
            Field(2, "location", "string"),
            Field(3, "name", "string"),
        ),
        "HTTPAuthSecurityScheme": (
            Field(1, "description", "string"),
            Field(2, "scheme", "string"),
            Field(3, "bearer_format", "string"),
        ),
        "OAuth2SecurityScheme": (
            Field(1, "description", "string"),
            Field(2, "flows", "OAuthFlows"),
            Field(3, "oauth2_metadata_url", "string"),
        ),
        "OpenIdConnectSecurityScheme": (
            Field(1, "description", "string"),
            Field(2, "open_id_connect_url", "string"),
        ),
        "MutualTlsSecurityScheme": (Field(1, "description", "string"),),
        "OAuthFlows": (
            Field(1, "authorization_code", "AuthorizationCodeOAuthFlow", oneof="flow"),
            Field(2, "client_credentials", "ClientCredentialsOAuthFlow", oneof="flow"),
            Field(3, "implicit", "ImplicitOAuthFlow", oneof="flow"),
            Field(4, "password", "PasswordOAuthFlow", oneof="flow"),
        ),
        "AuthorizationCodeOAuthFlow": (
            Field(1, "authorization_url", "string"),
            Field(2, "token_url", "string"),
            Field(3, "refresh_url", "string"),
            Field(4, "scopes", "map<string, string>"),
        ),
        "ClientCredentialsOAuthFlow": (
            Field(1, "token_url", "string"),
            Field(2, "refresh_url", "string"),
            Field(3, "scopes", "map<string, string>"),
        ),
        "ImplicitOAuthFlow": (
            Field(1, "authorization_url", "string"),
            Field(2, "refresh_url", "string"),
            Field(3, "scopes", "map<string, string>"),
        ),
        "PasswordOAuthFlow": (
            Field(1, "token_url", "string"),
            Field(2, "refresh_url", "string"),
            Field(3, "scopes", "map<string, string>"),
        ),
        "SendMessageRequest": (
            Field(1, "request", "Message", json="message"),
            Field(2, "configuration", "SendMessageConfiguration"),
            Field(3, "metadata", "Struct"),
        ),
        "GetTaskRequest": (
            Field(1, "name", "string"),
            Field(2, "history_length", "int32"),
        ),
        "CancelTaskRequest": (Field(1, "name", "string"),),
        "GetTaskPushNotificationConfigRequest": (Field(1, "name", "string"),),
        "DeleteTaskPushNotificationConfigRequest": (Field(1, "name", "string"),),
        "CreateTaskPushNotificationConfigRequest": (
            Field(1, "parent", "string"),
            Field(2, "config_id", "string"),
            Field(3, "config", "TaskPushNotificationConfig"),
        ),
        "TaskSubscriptionRequest": (Field(1, "name", "string"),),
        "ListTaskPushNotificationConfigRequest": (
            Field(1, "parent", "string"),
            Field(2, "page_size", "int32"),
            Field(3, "page_token", "string"),
        ),
        "GetAgentCardRequest": (),
        "SendMessageResponse": (
            Field(1, "task", "Task", oneof="payload"),
            Field(2, "msg", "Message", oneof="payload", json="message"),
        ),
        "StreamResponse": (
            Field(1, "task", "Task", oneof="payload"),
            Field(2, "msg", "Message", oneof="payload", json="message"),
            Field(3, "status_update", "TaskStatusUpdateEvent", oneof="payload"),
            Field(4, "artifact_update", "TaskArtifactUpdateEvent", oneof="payload"),
        ),
        "ListTaskPushNotificationConfigResponse": (
            Field(1, "configs", "repeated TaskPushNotificationConfig"),
            Field(2, "next_page_token", "string"),
        ),
    },
    enums={
        "TaskState": (
            "TASK_STATE_UNSPECIFIED",
            "TASK_STATE_SUBMITTED",
            "TASK_STATE_WORKING",
            "TASK_STATE_COMPLETED",
            "TASK_STATE_FAILED",
            "TASK_STATE_CANCELLED",
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_REJECTED",
            "TASK_STATE_AUTH_REQUIRED",
        ),
        "Role": ("ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"),
    },
)
