"""infra/redis/apply on a real server: it creates exactly the users of users.acl."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from spillway_lab.testing import servers
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
FILE = ROOT / "infra" / "redis" / "users.acl"
USERS = ("streams", "optimizer", "papa", "publisher")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """users.acl as a Secret contains it. The passwords are the users' names."""
    text = "user default off\n" + FILE.read_text()
    for user in USERS:
        text = text.replace(f"<{user}>", hashlib.sha256(user.encode()).hexdigest())
    made = tmp_path_factory.mktemp("file") / "users.acl"
    made.write_text(text)
    return made


def apply(file: Path, *more: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "infra/redis/apply"), "--file", str(file), *more]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)


def test_users_are_planned_made_and_set_back(server: str, file: Path):
    """Without --apply nothing changes. With it each user gets the file's state once.

    Manual changes are reported and reverted in one command per user. No hash is shown, and other
    users stay.
    """
    url = {"SPILLWAY_REDIS_URL": server}

    def changes(*more: str) -> dict:
        done = apply(file, "--json", *more, **url)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with redis.Redis.from_url(server, decode_responses=True) as client:
        assert changes() == dict.fromkeys(USERS, "create user")
        assert client.acl_users() == ["default"]
        assert set(changes("--apply")) == set(USERS)
        assert changes() == {} == changes("--apply")
        before = client.acl_list()
        client.execute_command("ACL", "SETUSER", "publisher", "+@all", "~*")
        client.execute_command("ACL", "SETUSER", "papa", ">another", "-eval")
        client.execute_command("ACL", "SETUSER", "somebody", "on")
        differences = changes()
        assert set(differences) == {"publisher", "papa"} and "- " in differences["publisher"]
        assert (
            "+eval" in differences["papa"]
            and "- password" in differences["papa"]
            and "#" not in differences["papa"]
        )
        changes("--apply")
        assert set(before) < set(client.acl_list())
        open_to_all = "user default is on without a password"
        assert open_to_all not in apply(file, **url).stderr
        client.execute_command("ACL", "SETUSER", "default", "nopass")
        assert open_to_all in apply(file, **url).stderr
    as_user = server.replace(f":{server.partition('://:')[2].partition('@')[0]}@", "papa:papa@")
    with redis.Redis.from_url(as_user) as client:
        assert client.set("spillway:papa:checkpoint", "x")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.set("spillway:policy", "x")


def test_a_file_without_sums_is_refused_by_its_user(server: str):
    """The repository's own file has placeholders. The server is not contacted."""
    done = apply(FILE, "--apply", SPILLWAY_REDIS_URL=server)
    assert done.returncode == 64 and "streams: must have #, then the SHA-256 sum" in done.stderr


def test_access_strings_are_those_of_the_file(file: Path):
    """Access strings are for servers that create users themselves. They contain no passwords."""
    done = apply(file, "--print")
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(lines) == set(USERS) and "#" not in done.stdout
    assert (
        lines["publisher"].startswith("on resetchannels ~spillway:ruleset:*")
        and "+eval" in lines["publisher"]
    )
