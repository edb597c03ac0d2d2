"""`doctor slack`: the manifest always, what is missing with what to do, a test card only when it is asked for."""

import json

import pytest
from fake_slack import ENVIRON

from loopwright.cli.app import run_app

LOOP = """goal = "g"
agent = "true"
gates = ["true"]
[approval]
channels = ["inbox", {{ use = "slack", channel = "#loops", url = "{url}"{more} }}]
approvers = ["slack:U0123ABCD", "page"]
"""


@pytest.fixture
def doctor(fake, tmp_path, monkeypatch, capsys):
    """Calls `doctor slack --json` in a project with this loop file; the code, the manifest, the findings by name."""

    def call(*args, text=None, environ=ENVIRON, more=""):
        for name in ENVIRON:
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "loop.toml").write_text(LOOP.format(url=fake.url, more=more) if text is None else text)
        code = run_app(["doctor", "slack", *args, "--json", "-C", str(tmp_path)])
        said = json.loads(capsys.readouterr().out)
        assert (said["schema"], said["exit_code"]) == ("loopwright/doctor/v1", code)
        found = {}
        for each in said["checks"]:
            found.setdefault(each["name"], []).append((each["status"], each["what"], each["do"]))
        return code, said["manifest"], found

    return call


def test_all_is_well_and_nothing_is_sent(doctor, fake):
    code, manifest, found = doctor(more=', mode = "socket"')
    assert code == 0, found
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert manifest["settings"]["interactivity"] == {"is_enabled": True}
    assert manifest["oauth_config"]["scopes"]["bot"] == ["chat:write", "files:write"]
    assert found["token"] == [("ok", "good for loopwright in Acme", "")]
    assert found["secrets"] == [("ok", "SLACK_APP_TOKEN, SLACK_BOT_TOKEN are set", "")]
    assert [method for method, _ in fake.calls] == ["auth.test", "apps.connections.open"]


def test_a_test_card_is_sent_when_it_is_asked_for(doctor, fake):
    code, _, found = doctor("--send", more=', mode = "socket"')
    assert code == 0, found
    assert found["test card"][0][:2] == ("ok", f"sent to #loops ({'/'.join(next(iter(fake.messages)))})")
    assert "test card" in str(fake.messages)
    assert "approve:test:doctor-test" in str(fake.messages)


def test_clicks_by_http_need_an_address(doctor):
    code, manifest, found = doctor()
    assert code == 2
    assert (
        manifest["settings"]["interactivity"]["request_url"] == "https://YOUR-SERVER.example/channels/slack"
    )
    assert 'mode = "socket"' in found["clicks"][0][2]
    text = '[server]\npublic_url = "https://loops.example.org"\n'
    code, manifest, found = doctor(text=LOOP.format(url="https://slack.com/api/", more="") + text, environ={})
    assert manifest["settings"]["interactivity"]["request_url"] == "https://loops.example.org/channels/slack"
    assert found["clicks"][0][0] == "ok"
    assert [what.split()[1] for _, what, _ in found["secrets"]] == ["SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET"]
    assert "token" not in found


def test_without_network_or_with_other_tokens_there_is_a_manifest_all_the_same(doctor, fake):
    text = LOOP.format(url="http://127.0.0.1:1/", more=', mode = "socket"')
    code, manifest, found = doctor("--send", text=text)
    assert (code, manifest["display_information"]["name"]) == (2, "loopwright")
    assert "got through to nobody" in found["slack"][0][1]
    _, _, found = doctor(environ={**ENVIRON, "SLACK_BOT_TOKEN": "xoxb-other"})
    assert "invalid_auth" in found["slack"][0][1]
    assert "xoxb-other" not in str(found)
    _, _, found = doctor(environ={**ENVIRON, "SLACK_APP_TOKEN": "xapp-other"}, more=', mode = "socket"')
    assert "apps_connections_open: invalid_auth" in found["slack"][0][1]


def test_a_loop_that_does_not_load_or_names_no_slack(doctor, fake):
    code, manifest, found = doctor("loop.toml", text="goal = 7")
    assert (code, manifest["display_information"]["name"]) == (2, "loopwright")
    assert found["loop file"][0][0] == "fail"
    text = 'goal = "g"\nagent = "true"\ngates = ["true"]\n'
    _, _, found = doctor("--send", text=text)
    assert found["loop file"][0][:2] == ("warn", "no channel in it is slack")
    assert found["test card"][0][0] == "fail"
    assert not fake.messages
    _, _, found = doctor(text=text + '[notify]\nto = ["slack:#news"]\non = ["failed"]\n', environ={})
    assert "loop file" not in found


def test_an_approver_that_nobody_can_be_is_named(doctor):
    text = LOOP.format(url="https://slack.com/api/", more="").replace("slack:U0123ABCD", "slack:@mira")
    code, _, found = doctor(text=text, environ={})
    assert code == 2
    assert "'slack:@mira' is nobody on Slack" in found["approvers"][0][1]


def test_the_manifest_is_the_data_and_the_rest_is_not(doctor, fake, capsys, tmp_path):
    doctor()
    assert run_app(["doctor", "slack", "-C", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["settings"]["interactivity"]["is_enabled"]
    assert "✗ clicks" in err
    for wrong in (["doctor", "discord"], ["doctor", "slack", "a", "b"], ["doctor", "--send"]):
        assert run_app([*wrong, "-C", str(tmp_path)]) == 2
    assert "loopwright doctor slack" in capsys.readouterr().err
