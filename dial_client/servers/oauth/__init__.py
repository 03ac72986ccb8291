"""OAuth for servers behind a URL (MCP specification, "Authorization").

The SDK has the protocol; this package has what the SDK leaves to the client: where tokens are stored
(`token_storage`), which URLs a server may direct it to (`url_policy`, `oauth_http_client`), how a person logs in
(`callbacks.oauth_callbacks`, `redirect_listener`), how a program does (`client_credentials`), and how any number of
calls is authorized side by side (`server_auth`, `authorization`).
"""
