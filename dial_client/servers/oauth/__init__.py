"""OAuth for servers behind a URL (MCP specification, "Authorization").

The SDK implements the protocol; this package implements what the SDK leaves to the client: token storage
(`token_storage`, `login_stores`), the policy for URLs a server may direct the client to (`oauth_http_client`), the
login of a user (`hooks.server_callbacks`, `redirect_listener`), of a program (`client_credentials`) or of a company
(`identity_assertion`), the repair of answers (`lenient_documents`), and the authorization of concurrent calls
(`server_auth`, `authorization`).
"""
