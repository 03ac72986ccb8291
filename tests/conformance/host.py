"""The host that the official conformance suite tests: a `DialClient` with a servers.json of one server.

The suite passes the URL of the server as the last argument, and the scenario in environment variables. Exit code 1
means that the server was not available, or that a call failed. The exit code is also written to a file with the name of
the scenario, in the folder CONFORMANCE_EXIT_CODES.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx2

from dial_client import DialClient, ServerState
from dial_client.extend import ElicitationAnswer
from tests.inner import Callbacks, Elicitation, LoginFailed, LoginRequest, OAuthSettings, ServerError, configuration

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: Mapping[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
MY_DOCUMENT = "https://conformance-test.local/client-metadata.json"
NOT_CALLED = ("json-schema-ref-no-deref",)
"""Scenarios whose tools are listed and not called."""
SAMPLES = {"string": "us-east-1", "integer": 5, "number": 5, "boolean": True, "array": [], "object": {}, "null": None}


class Person:
    """A login callback that accepts every login, and returns the redirect URL."""

    redirect_uri = "http://127.0.0.1:3000/callback"

    async def __call__(self, request: LoginRequest) -> str:
        async with httpx2.AsyncClient(timeout=60) as browser:
            response = await browser.get(request.url)
        if "location" not in response.headers:
            raise LoginFailed(f"the page answers HTTP {response.status_code}")
        return str(response.headers["location"])


async def agree(question: Elicitation) -> ElicitationAnswer:
    """Accept every form with its default values."""
    return ElicitationAnswer("accept")


async def identity_assertion_auth(url: str) -> Any:
    """Return authentication with an assertion of an identity provider (SEP-990), which the SDK does not request."""
    from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

    async with httpx2.AsyncClient(timeout=60) as http:
        metadata = (await http.get(url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp"))).json()

    async def assertion(audience: str, resource: str) -> str:
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token": CONTEXT["idp_id_token"],
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "client_id": CONTEXT["idp_client_id"],
            "audience": audience,
            "resource": resource,
        }
        async with httpx2.AsyncClient(timeout=60) as http:
            return str((await http.post(CONTEXT["idp_token_endpoint"], data=form)).json()["access_token"])

    return IdentityAssertionOAuthProvider(
        url,
        EmptyTokenStorage(),
        CONTEXT["client_id"],
        CONTEXT["client_secret"],
        metadata["authorization_servers"][0],
        assertion,
        token_endpoint_auth_method="client_secret_basic",
    )


class EmptyTokenStorage:
    """A token storage that stores nothing."""

    async def get_tokens(self) -> None:
        """Return none."""

    async def set_tokens(self, tokens: Any) -> None:
        """Keep none."""

    async def get_client_info(self) -> None:
        """Return none."""

    async def set_client_info(self, client_info: Any) -> None:
        """Keep none."""


def servers_json(url: str) -> dict[str, Any]:
    """Return the configuration of a scenario."""
    oauth: dict[str, Any] = {"clientMetadataUrl": MY_DOCUMENT}
    if "client_id" in CONTEXT:
        oauth = {"clientId": CONTEXT["client_id"]}
    if "client_secret" in CONTEXT:
        oauth["clientSecret"] = CONTEXT["client_secret"]
    if SCENARIO.startswith("auth/client-credentials"):
        oauth["grantType"] = "client_credentials"
    if "private_key_pem" in CONTEXT:
        oauth |= {"privateKey": CONTEXT["private_key_pem"], "signingAlgorithm": CONTEXT["signing_algorithm"]}
    return {"mcpServers": {"it": {"url": url, "oauth": oauth, "startupTimeout": 60}}}


def calls(dial: DialClient) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that the scenario names, or else one call of every tool."""
    if "toolCalls" in CONTEXT:
        return [(call["name"], call["arguments"]) for call in CONTEXT["toolCalls"]]
    schemas = {tool.name: tool.input_schema for tool in dial.tool_name_client_map[dial.tools[0].name].tools}
    if SCENARIO == "json-schema-2020-12-preservation":
        return [("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})]
    return [(name, sample(schema)) for name, schema in schemas.items()]


def sample(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that fit a simple schema."""
    return {name: SAMPLES[of.get("type", "string")] for name, of in schema.get("properties", {}).items()}


async def refuses_skill(dial: DialClient) -> bool:
    """List the skills, and return whether the skill of the scenario is refused if the scenario is about reading it."""
    [skill] = await dial.skills.list()
    if SCENARIO == "sep-2640-client-no-prefetch":
        return True
    try:
        await dial.skills.build_message(skill.name)
    except ServerError as error:
        print(error, file=sys.stderr)
        return True
    return False


async def main(path: Path) -> int:
    """Connect to the server, list its tools, call them, and disconnect; return the exit code."""
    servers = configuration.load_config(path).servers
    if SCENARIO == "auth/enterprise-managed-authorization":
        it = servers["it"]
        servers = {"it": replace(it, oauth=OAuthSettings(auth=await identity_assertion_auth(it.url or "")))}
    async with DialClient(servers=servers, callbacks=Callbacks(elicit=agree, login=Person())) as dial:
        status = dial.servers["it"]
        good = status.state is ServerState.READY
        print(status.state, status.protocol_version, status.tools, status.error, file=sys.stderr)
        if SCENARIO.startswith("sep-2640-"):
            good = good and await refuses_skill(dial)
        for name, arguments in calls(dial) if dial.tools and SCENARIO not in NOT_CALLED else ():
            result = await dial.call(name, arguments)
            good = good and result.success
            print(name, result.success, str(result.error or result.content)[:500], file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:  # a login must leave no files
        os.environ.update({"XDG_DATA_HOME": home, "HOME": home, "LOCALAPPDATA": home, "USERPROFILE": home})
        file = Path(home, "servers.json")
        file.write_text(json.dumps(servers_json(sys.argv[-1])), encoding="utf-8")
        code = anyio.run(main, file)
    if folder := os.environ.get("CONFORMANCE_EXIT_CODES"):
        Path(folder, quote(SCENARIO, safe="")).write_text(str(code), encoding="utf-8")
    sys.exit(code)
