"""MCP on both sides: servers as sources of tools, a toolbox served to clients, and the sign-in of each."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason._core.config.mcp_json import ServerSettings
    from toolmason._core.remote.protocol import Health
    from toolmason._core.values.mcp_client import Client, Elicit, Elicited, Question, Roots, Sample
    from toolmason._http.guard import Bearer, token_is, tokens_from_env
    from toolmason.mcp_client.auth.oauth import OAuth, client_credentials, enterprise_identity, workload_identity
    from toolmason.mcp_client.auth.token_files import FileTokens
    from toolmason.mcp_client.source import McpServer
    from toolmason.mcp_server.http.app import asgi_app
    from toolmason.mcp_server.serve import serve
    from toolmason.mcp_server.tokens.introspection import Introspection
    from toolmason.mcp_server.tokens.jwt_check import Jwt

__all__ = [
    "Bearer",
    "Client",
    "Elicit",
    "Elicited",
    "FileTokens",
    "Health",
    "Introspection",
    "Jwt",
    "McpServer",
    "OAuth",
    "Question",
    "Roots",
    "Sample",
    "ServerSettings",
    "asgi_app",
    "client_credentials",
    "enterprise_identity",
    "serve",
    "token_is",
    "tokens_from_env",
    "workload_identity",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason._core.config.mcp_json": ("ServerSettings",),
        "toolmason._core.values.mcp_client": ("Client", "Elicit", "Elicited", "Question", "Roots", "Sample"),
        "toolmason._core.remote.protocol": ("Health",),
        "toolmason.mcp_client.auth.oauth": ("OAuth", "client_credentials", "enterprise_identity", "workload_identity"),
        "toolmason.mcp_client.auth.token_files": ("FileTokens",),
        "toolmason.mcp_client.source": ("McpServer",),
        "toolmason.mcp_server.http.app": ("asgi_app",),
        "toolmason.mcp_server.serve": ("serve",),
        "toolmason._http.guard": ("Bearer", "token_is", "tokens_from_env"),
        "toolmason.mcp_server.tokens.introspection": ("Introspection",),
        "toolmason.mcp_server.tokens.jwt_check": ("Jwt",),
    },
)
