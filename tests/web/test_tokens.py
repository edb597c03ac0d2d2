"""Who is let in: tokens, their file, and what a browser gets for one."""

import json
import os
import stat
import threading
import time

import pytest

from loopwright.errors import ConfigError
from loopwright.unattended import Server
from loopwright.web.tokens import SESSION_S, Tokens, people_of

KNOWN = {"mira": "decide", "vic": "read"}


def tokens(folder, known=KNOWN):
    return Tokens(folder / ".agent-state", lambda: known)


def test_everybody_gets_a_token_of_their_own_that_nobody_else_can_read(tmp_path):
    kept = tokens(tmp_path)
    given = kept.current()
    assert given.keys() == KNOWN.keys() and len(set(given.values())) == 2
    assert all(len(token) >= 43 for token in given.values())  # 256 bits
    assert stat.S_IMODE(kept.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.folder.stat().st_mode) == 0o700
    assert [p.name for p in kept.folder.iterdir() if p.name.endswith(".new")] == []
    assert tokens(tmp_path).current() == given  # the next server lets the same people in


def test_a_token_says_who_asks_and_nothing_like_it_does(tmp_path):
    kept = tokens(tmp_path)
    given = kept.current()
    assert kept.person(given["mira"]).role == "decide" and kept.person(given["vic"]).role == "read"
    for wrong in ("", given["mira"][:-1], given["mira"] + "x", "mira", "\ud800", given["mira"].swapcase()):
        assert kept.person(wrong) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_reach_lets_nobody_in(tmp_path, mode):
    kept = tokens(tmp_path)
    token = kept.current()["mira"]
    kept.file.chmod(mode)
    assert kept.person(token) is None
    with pytest.raises(ConfigError, match="chmod 600"):
        tokens(tmp_path).current()


def test_a_link_or_another_file_in_its_place_lets_nobody_in(tmp_path):
    kept = tokens(tmp_path)
    token = kept.current()["mira"]
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"mira": "x" * 43}))
    own.chmod(0o600)
    kept.file.unlink()
    kept.file.symlink_to(own)
    assert kept.person("x" * 43) is None and kept.person(token) is None
    kept.file.unlink()
    kept.file.write_text('{"mira": 1}')
    kept.file.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no tokens"):
        kept.current()


def test_a_new_token_ends_the_old_one_and_its_browsers_at_once_in_every_server(tmp_path):
    one, other = tokens(tmp_path), tokens(tmp_path)
    old = one.current()["mira"]
    cookie = one.session(one.person(old))
    assert other.of_session(cookie).name == "mira"
    new = one.rotate("mira")
    for server in (one, other):
        assert server.person(old) is None and server.of_session(cookie) is None
        assert server.person(new).name == "mira" and server.person(server.current()["vic"]).name == "vic"


def test_a_file_that_is_deleted_gives_everybody_a_new_token(tmp_path):
    kept = tokens(tmp_path)
    old = dict(kept.current())
    kept.file.unlink()
    assert kept.person(old["mira"]) is None
    assert not set(kept.current().values()) & set(old.values())


def test_who_is_taken_out_of_the_loop_file_is_out_and_who_is_let_in_again_is_in(tmp_path):
    known = dict(KNOWN)
    kept = tokens(tmp_path, known)
    token = kept.current()["mira"]
    del known["mira"]
    assert kept.person(token) is None
    known["mira"] = "read"
    assert kept.person(token).role == "read"
    known["bob"] = "decide"
    assert kept.person(kept.current()["bob"]).name == "bob"


def test_a_cookie_is_not_the_token_ends_after_a_month_and_cannot_be_made_up(tmp_path, monkeypatch):
    kept = tokens(tmp_path)
    given = kept.current()
    cookie = kept.session(kept.person(given["mira"]))
    assert not any(token in cookie for token in given.values())
    made, _, mac = cookie.partition(".")
    for wrong in (
        "",
        ".",
        mac,
        f"{int(made) + 1}.{mac}",
        f"{made}.{mac[:-1]}",
        f"٣{made}.{mac}",
        f"-{made}.{mac}",
    ):
        assert kept.of_session(wrong) is None
    began = time.time()
    monkeypatch.setattr(time, "time", lambda: began + SESSION_S - 60)
    assert kept.of_session(cookie).name == "mira"
    monkeypatch.setattr(time, "time", lambda: began - 86400)  # a clock that is set back logs nobody out
    assert kept.of_session(cookie).name == "mira"
    monkeypatch.setattr(time, "time", lambda: began + SESSION_S + 60)
    assert kept.of_session(cookie) is None


def test_servers_that_begin_together_agree(tmp_path):
    found, ready = [], threading.Barrier(8)

    def begin():
        mine = tokens(tmp_path)
        ready.wait()
        mine.current()
        found.append(tokens(tmp_path).current())

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(each == found[0] for each in found)


def test_who_a_server_knows():
    named = Server(people=("mira",), viewers=("vic", "mira"))
    assert people_of(named, {}) == {"mira": "decide", "vic": "read"}
    assert people_of(Server(), {"LOGNAME": "mira"}) == {"mira": "decide"}
    assert list(people_of(Server(), {}).values()) == ["decide"]
    assert people_of(Server(viewers=("vic",)), {"LOGNAME": "mira"}) == {"vic": "read"}


def test_comparing_looks_at_everybody(tmp_path, monkeypatch):
    compared = []
    kept = tokens(tmp_path)
    token = kept.current()["mira"]
    import hmac

    true = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or true(a, b))
    assert kept.person(token) and len(compared) == 2
    assert os.environ is not None
