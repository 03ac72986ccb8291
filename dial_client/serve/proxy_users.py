"""Persons whom a proxy names in a header of each request, after it has logged them in: `ProxyUsers`.

    client → oauth2-proxy, Authelia, a service mesh … → ``dial-chat serve --auth proxy --proxy ADDRESS``

Such a header is worth as much as the way that it came: `HttpServer` removes it from each request that does not come
from the address of a proxy, and a header that is there twice, because the proxy then passed on what the client sent. A
program that runs `create_app` in another server has to remove the headers there: clients could be anybody otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from dial_client.serve.authentication import GroupScopes, Person, Refusal
from dial_client.stores.conversation_store import MAX_OWNER


class ProxyUsers:
    """The persons of a service, by the headers of a proxy.

    Args:
        scopes: What persons may do, by their groups.
        user_header: The header with the name of the person, such as an e-mail address.
        groups_header: The header with the groups of the person, with commas between them.
    """

    metadata = None

    def __init__(
        self, scopes: GroupScopes, user_header: str = "X-Forwarded-User", groups_header: str = "X-Forwarded-Groups"
    ) -> None:
        self._scopes = scopes
        self._user_header, self._groups_header = user_header.lower(), groups_header.lower()

    @property
    def header_names(self) -> frozenset[str]:
        """The headers, in lower case, that `HttpServer` accepts from proxies only."""
        return frozenset({self._user_header, self._groups_header})

    async def authenticate(self, headers: Mapping[str, str]) -> Person | Refusal:
        """Return the person whom the proxy names."""
        name = headers.get(self._user_header, "").strip()
        if not name:
            return Refusal("this service is used through its proxy, which logs persons in")
        if len(name) > MAX_OWNER or not name.isprintable():
            return Refusal("the proxy names a person whose name is too long, or cannot be shown")
        groups = [group.strip() for group in headers.get(self._groups_header, "").split(",")]
        return Person(name, self._scopes.find(groups))
