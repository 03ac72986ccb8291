"""Tokens of an OpenID provider for the persons of a service: `OidcTokens`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.serve.people.authentication import GroupScopes, Person, Refusal, ResourceMetadata, list_tokens
from dial_client.serve.people.identity_provider import IdentityProvider, InvalidToken
from dial_client.stores.conversation_store import MAX_OWNER


class OidcTokens:
    """The persons of a service, by the tokens that an OpenID provider has signed for them.

    The name of a person is ``SUBJECT@ISSUER`` without the scheme, because subjects are unique at one issuer only.

    Args:
        provider: The provider.
        audiences: What tokens must have been issued for: the ids of clients, that of the page's login first, or the URL
            of this service. A token for another service is not accepted, whoever signed it.
        scopes: What persons may do, by their groups.
        groups_claim: The claim with the groups of a person; a path such as ``realm_access.roles`` leads into objects.
        resource: The URL of ``/mcp`` as clients know it, which then learn the issuer from this service; empty for none.

    Raises:
        ConfigError: There is no audience.
    """

    def __init__(
        self,
        provider: IdentityProvider,
        audiences: Sequence[str],
        scopes: GroupScopes,
        groups_claim: str = "groups",
        resource: str = "",
    ) -> None:
        self._provider = provider
        self._audiences = [*audiences, *([resource] if resource else [])]
        if not self._audiences:
            raise ConfigError("tokens of any audience would be accepted", hint="name the client id: --oidc-audience ID")
        self._scopes, self._groups_claim = scopes, groups_claim
        self.metadata = ResourceMetadata(resource, (provider.issuer,)) if resource else None
        """The authorization servers that clients of ``/mcp`` get their tokens from."""

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return the person whom the provider has signed the token of a request for.

        Raises:
            HttpError: The provider does not answer, and no keys are known.
        """
        refusal = Refusal("send your token of the OpenID provider: Authorization: Bearer TOKEN")
        for token in list_tokens(headers):
            try:
                return self._build_person(token, await self._provider.verify(token, self._audiences))
            except InvalidToken as error:
                refusal = Refusal(str(error))
        return refusal

    def _build_person(self, token: str, claims: Mapping[str, Any]) -> Person:
        subject = claims["sub"]
        name = f"{subject}@{self._provider.issuer.partition('://')[2]}"
        if not subject or not name.isprintable() or len(name) > MAX_OWNER:
            raise InvalidToken("the subject of the token is no name")
        shown = next((text for key in ("preferred_username", "email") if isinstance(text := claims.get(key), str)), "")
        groups = frozenset(_read_groups(claims, self._groups_claim))
        audience = claims["aud"]
        # What was issued for other programs is no proof of a login here, and nothing to exchange.
        is_of_login = self._audiences[0] in ([audience] if isinstance(audience, str) else audience)
        return Person(name, self._scopes.find(groups), shown, groups, id_token=token if is_of_login else "")


def _read_groups(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the groups in a claim; a claim whose name has dots, such as a URL, comes before a path."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    return [group for group in found if isinstance(group, str)] if isinstance(found, list) else []
