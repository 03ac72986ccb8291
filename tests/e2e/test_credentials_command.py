"""The command ``credentials``, and a service that uses what it stores."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import httpx2

from tests.support.program import dial_chat, python_server, started, write_config
from tests.support.servers.launch import HERE
from tests.support.servers.whose import name

SECRET = "a-secret-4f9a8c21"


def test_a_value_of_the_command_is_used_by_a_service_for_its_person_alone(tmp_path: Path) -> None:
    crm = python_server(HERE / "whose.py", "stdio", env={"TOKEN": "${user.TOKEN}"}, autoApprove=["*"])
    write_config(tmp_path, {"crm": crm}, replies=["Hello."])
    store = ("--store", str(tmp_path / "company.db"))
    key = dial_chat(tmp_path, "credentials", "key").stdout.strip()
    environment = {"DIAL_CREDENTIALS_KEY": key}
    tokens = [
        dial_chat(tmp_path, "tokens", "create", "laptop", "--owner", owner, *store).stdout.strip()
        for owner in ("anna", "bob")
    ]
    of_anna = ("--owner", "anna", *store)
    stored = dial_chat(tmp_path, "credentials", "set", "crm", "TOKEN", *of_anna, stdin=f"{SECRET}\n", **environment)
    listed = dial_chat(tmp_path, "credentials", "--json", *of_anna, **environment)
    answers = []
    with started(tmp_path, "serve", "--port", "0", "--auth", "tokens", *store, **environment) as service:
        assert service.stderr is not None
        url = re.search(r"http://\S+?/", service.stderr.readline())
        assert url is not None
        for token in tokens:
            headers = {"Authorization": f"Bearer {token}"}
            with httpx2.Client(base_url=url[0], headers=headers, trust_env=False, timeout=60) as person:
                answers.append(person.post("/tools/call", json={"name": "whoami", "arguments": {}}))
        revoked = dial_chat(tmp_path, "credentials", "revoke", "crm", "TOKEN", *of_anna, **environment)
        with httpx2.Client(
            base_url=url[0], headers={"Authorization": f"Bearer {tokens[0]}"}, trust_env=False, timeout=60
        ) as person:
            # Another process may use the value for two seconds more.
            for _ in range(100):
                afterwards = person.post("/tools/call", json={"name": "whoami", "arguments": {}})
                if afterwards.status_code == 404:
                    break
                time.sleep(0.1)
    assert (stored.returncode, revoked.returncode) == (0, 0), stored.stderr + revoked.stderr
    (row,) = json.loads(listed.stdout)
    assert (row["server"], row["name"]) == ("crm", "TOKEN")
    assert SECRET not in listed.stdout + stored.stderr
    assert name(SECRET) in answers[0].text
    assert (answers[1].status_code, afterwards.status_code) == (404, 404), "another process has revoked it"


def test_wrong_words_and_a_missing_key_are_refused_with_what_to_type(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "company.db"))
    for words, hint in (
        (("set", "crm"), "set SERVER NAME"),
        (("burn",), "unknown action"),
        (("revoke", "crm"), "credentials list"),
        (("set", "crm", "TOKEN"), "`dial-chat credentials key` prints a key"),
    ):
        refused = dial_chat(tmp_path, "credentials", *words, *store, stdin="x", DIAL_CREDENTIALS_KEY="")
        assert refused.returncode == 2, refused.stderr
        assert hint in refused.stderr
