"""The command ``tokens``, and a service that accepts what it creates."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2

from tests.support.program import dial_chat, started, write_config


def test_a_token_of_the_command_opens_the_service_for_its_owner_until_it_is_revoked(tmp_path: Path) -> None:
    write_config(tmp_path, replies=["Hello Anna."])
    store = ("--store", str(tmp_path / "company.db"))
    created = dial_chat(tmp_path, "tokens", "create", "laptop", "--owner", "anna", "--expires", "90d", *store)
    token = created.stdout.strip()
    listed = json.loads(dial_chat(tmp_path, "tokens", "--json", *store).stdout)
    with started(tmp_path, "serve", "--port", "0", "--auth", "tokens", *store) as service:
        assert service.stderr is not None
        first_line = service.stderr.readline()
        url = re.search(r"http://\S+?/", first_line)
        assert url is not None
        with httpx2.Client(
            base_url=url[0], headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60
        ) as anna:
            person = anna.get("/me").json()
            answer = anna.post(
                "/v1/chat/completions",
                json={
                    "model": anna.get("/v1/models").json()["data"][0]["id"],
                    "messages": [{"role": "user", "content": "Hi"}],
                },
            ).json()
            refused = anna.get("/audit")
    revoked = dial_chat(tmp_path, "tokens", "revoke", listed[0]["id"], *store)
    left = dial_chat(tmp_path, "tokens", *store)
    assert re.fullmatch(r"dial_[0-9a-f]{8}_[\w-]{43}", token)
    assert token not in first_line
    assert (listed[0]["owner"], listed[0]["name"]) == ("anna", "laptop")
    assert token not in json.dumps(listed)
    assert person == {"name": "anna", "shown_name": "anna", "scopes": ["approve", "chat", "gateway", "read"]}
    assert answer["choices"][0]["message"]["content"] == "Hello Anna."
    assert refused.status_code == 403
    assert (revoked.returncode, left.stdout) == (0, "")


def test_wrong_words_are_refused_with_what_to_type(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "company.db"))
    for words, hint in (
        (("create", "laptop"), "--owner PERSON"),
        (("create",), "create NAME --owner PERSON"),
        (("create", "laptop", "--owner", "anna", "--scope", "root"), "one of chat, read, approve, admin, gateway"),
        (("create", "laptop", "--owner", "anna", "--expires", "soon"), "like 12h, 90d or 52w"),
        (("revoke", "12345678"), "lists the ids"),
        (("list", "--owner", "anna"), "it belongs to: tokens create"),
        (("burn",), "one of list, create, revoke"),
    ):
        refused = dial_chat(tmp_path, "tokens", *words, *store)
        assert refused.returncode == 2
        assert hint in refused.stderr
