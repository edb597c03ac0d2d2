"""The gate on the change itself: what counts, what is forbidden, what looks like a secret and what only seems to."""

import os
import random
import string

import pytest
from a_place import place, score
from workspace_repo import commit, new_repo, opened, write

from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence import patch
from loopwright.evidence.secret_text import secrets
from loopwright.gates.diff import diff
from loopwright.ports import Changes
from loopwright.redact import redactor
from loopwright.registry import resolve_gate
from loopwright.workspace import past

DICE = random.Random(7)
ALNUM = string.ascii_letters + string.digits


def made(n, letters=ALNUM):
    """Something that only looks like a key."""
    return "".join(DICE.choices(letters, k=n))


@pytest.fixture
def repo(tmp_path):
    return new_repo(tmp_path / "repo")


class Work:
    """A repository before and after some work, as a gate sees it."""

    def __init__(self, repo, tmp_path):
        self.repo, self.snapshots, self.place = repo, opened(repo), place(tmp_path)
        self.base = self.snapshots.snapshot(0).tree
        self.of_gates = frozenset()

    def changes(self):
        raw, text, whole = self.snapshots.change(self.base, self.snapshots.now().tree)
        new = self.snapshots.new_secrets()
        return Changes(raw=raw, patch=text, whole=whole, secrets=new, of_gates=self.of_gates)

    def judged(self, **options):
        return score(diff(**options), self.place, changes=self.changes)

    def size(self):
        found = self.judged().evidence
        return found["lines"], found["files"], found["binary"]


@pytest.fixture
def work(repo, tmp_path):
    write(repo, {"m.sh": "x\n", "old/name.txt": "1\n2\n3\n", "-": "dash\n"})
    (repo / "link").symlink_to("a.txt")
    commit(repo)
    return Work(repo, tmp_path)


class TestSize:
    def test_nothing_is_nothing(self, work):
        found = work.judged(max_lines=1, max_files=1)
        assert (found.status, found.value, found.raw, found.reason) == (
            "pass",
            1.0,
            0.0,
            "0 lines in 0 files",
        )

    def test_lines_added_and_removed_with_a_rename_a_deletion_a_mode_and_a_link(self, work):
        (work.repo / "a.txt").write_text("one\nTWO\nthree")  # 1 removed, 2 added
        assert work.size() == (3, 1, 0)
        (work.repo / "old/name.txt").rename(work.repo / "new.txt")  # 3 and 3
        assert work.size() == (9, 3, 0)
        (work.repo / "m.sh").chmod(0o755)
        assert work.size() == (9, 4, 0)
        (work.repo / "link").unlink()  # 1 removed
        (work.repo / "link").write_text("real\n")  # 1 added, the same path
        assert work.size() == (11, 5, 0)
        (work.repo / "-").unlink()
        (work.repo / "empty").touch()
        assert work.size() == (12, 7, 0)

    def test_binary_files_are_files_without_lines_and_nothing_declares_them(self, work):
        write(work.repo, {"logo.png": b"\x89PNG\0\n" * 500, ".gitattributes": "*.py binary -diff\n"})
        write(work.repo, {"src/b.py": "print(2)\n" * 20})
        assert work.size() == (1 + 21, 3, 1)
        assert work.judged().reason == "22 lines in 3 files, 1 binary"

    def test_names_and_lines_that_look_like_a_patch(self, work):
        names = ("sp ace", 'q"uote', "new\nline", "tab\tx", "ü", "b/+++ x")
        write(work.repo, dict.fromkeys(names, "--- a/x\n+++ b/y\n@@ -1 +1 @@\n-- x\n\\ no"))
        write(work.repo, {os.fsdecode(b"\xff.txt"): "z\n"})
        found = work.judged(forbid_text=["no$", "z"])
        assert work.size() == (5 * 6 + 1, 7, 0)
        assert len(found.failing) == 7
        changes = work.changes()
        assert {line.path for line in patch.lines(changes.patch)} == set(patch.paths(changes.raw))
        assert all(f"{name!r}"[1:-1].split("\\")[0] in str(found.failing) for name in names)

    def test_more_than_may_be_changed(self, work):
        write(work.repo, {"x.txt": "1\n" * 30})
        found = work.judged(max_lines=10, max_files=1)
        assert (found.status, found.value, found.raw) == ("fail", 1 / 3, 30.0)
        assert (found.failing, found.reason) == (("max_lines",), "30 lines changed, 10 may be")
        write(work.repo, {"y.txt": "", "z.txt": "", "zz.txt": ""})
        found = work.judged(max_lines=30, max_files=1)
        assert (found.value, found.failing) == (0.25, ("max_files",))
        assert work.judged(max_lines=30, max_files=4).status == "pass"

    def test_what_gates_leave_counts_for_no_size_and_for_all_rules(self, work):
        write(work.repo, {"report.xml": "<x/>\n" * 99})
        work.of_gates = frozenset({"report.xml"})
        assert work.size() == (0, 0, 0)
        assert work.judged(forbid=["*.xml"]).status == "fail"


class TestForbidden:
    def test_paths(self, work):
        write(work.repo, {"vendor/deep/x": "1\n", "src/b.py": "2\n", "src/key.pem": "k"})
        (work.repo / "a.txt").unlink()
        found = work.judged(forbid=["vendor/**", "a.txt", "*.pem", "docs"], secrets=False)
        assert found.failing == ("forbid: a.txt", "forbid: vendor/deep/x", "forbid: src/key.pem")
        assert found.reason.splitlines()[0] == "a.txt: may not be changed (a.txt)"
        assert (found.status, found.value) == ("fail", 0.25)

    def test_text_in_added_lines_only(self, work):
        write(work.repo, {"src/b.py": "print(1)  # noqa\nok\n# noqa\n"})
        found = work.judged(forbid_text=[r"#\s*noqa", r"print\(1\)$"])
        assert found.reason.splitlines() == [
            r"src/b.py:1: may not be added (#\s*noqa)",
            r"src/b.py:3: may not be added (#\s*noqa)",
        ]
        assert found.failing == (r"forbid_text: src/b.py: #\s*noqa", r"forbid_text: src/b.py: #\s*noqa (2)")

    def test_many_are_told_in_short(self, work):
        write(work.repo, {"x": "no\n" * 5000})
        found = work.judged(forbid_text=["no"])
        assert found.reason.splitlines()[-1] == "and 4,980 more"
        assert (len(found.reason.splitlines()), len(found.failing)) == (21, 200)


def key(kind):
    upper = string.ascii_uppercase + "234567"
    return {
        "an AWS access key": "AKIA" + made(16, upper),
        "a GitHub token": "ghp_" + made(36),
        "a GitLab token": "glpat-" + made(20),
        "a Slack token": f"xoxb-{made(12, string.digits)}-{made(24)}",
        "a Slack webhook": f"https://hooks.slack.com/services/T{made(9, upper)}/B{made(9, upper)}/{made(24)}",
        "a Stripe key": "sk_live_" + made(24),
        "an Anthropic key": f"sk-ant-api03-{made(90)}-AA",
        "an OpenAI key": "sk-proj-" + made(48),
        "a Google key": "AIza" + made(35),
        "a registry token": "npm_" + made(36),
        "a Hugging Face token": "hf_" + made(34, string.ascii_letters),
        "a JWT": f"eyJ{made(30)}.eyJ{made(60)}.{made(43)}",
        "a private key": "-----BEGIN RSA PRIVATE KEY-----\\nMIIEpAIBAAKCAQEA7" + made(40),
        "an Azure key": f"AccountKey={made(86)}==",
    }[kind]


KINDS = (
    *("an AWS access key", "a GitHub token", "a GitLab token", "a Slack token", "a Slack webhook"),
    *("a Stripe key", "an Anthropic key", "an OpenAI key", "a Google key", "a registry token"),
    *("a Hugging Face token", "a JWT", "a private key", "an Azure key"),
)


def kinds(path, line):
    return [kind for kind, _ in secrets(path, line.encode())]


class TestSecrets:
    @pytest.mark.parametrize("kind", KINDS)
    def test_keys_of_known_makers(self, kind):
        for line in ("{}", "x = '{}'", 'curl -H "Authorization: Bearer {}', "    {}"):
            assert f"looks like {kind}" in kinds("src/a.py", line.format(key(kind))), line

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("a.py", 'API_KEY = "{}"'),
            ("a.js", "const config = {{ clientSecret: '{}' }}"),
            ("a.json", '  "db_password": "{}",'),
            ("a.go", 'authToken := "{}"'),
            ("a.rb", ":secret_key => '{}'"),
            ("deploy.sh", "export DB_PASSWORD={}"),
            ("Dockerfile", "ENV API_TOKEN={}"),
            ("prod.yaml", "  password: {}"),
            (".env", "SESSION_SECRET={}"),
            ("app.properties", "spring.datasource.password={}"),
            ("a.py", 'os.environ["SECRET_KEY"] = "{}"'),
        ],
    )
    @pytest.mark.parametrize(
        "value",
        ["q8Zt3LmP0vXw7RbK2nYc", "9f8c1d7a3b5e2f604c8d1a9b7e3f5c20d4a6b8", "Tr0ub4dor&3-horse-Batt9ry"],
    )
    def test_random_values_of_names_that_say_so(self, path, line, value):
        assert kinds(path, line.format(value)) == ["gives a secret-looking name a random value"]

    def test_a_password_in_a_url(self):
        assert kinds("a.py", "DB = 'postgres://app:Zq8t3LmP0v@db.prod.acme.io/x'") == [
            "has a password in a URL"
        ]

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("package-lock.json", '"integrity": "sha512-{B}{B}=="'),
            ("poetry.lock", 'hash = "sha256:{H}"'),
            ("uv.lock", 'secret = "{B}"'),
            ("go.sum", "golang.org/x/net v0.1.0 h1:{B}="),
            ("requirements.txt", "--hash=sha256:{H}"),
            ("a.py", 'COMMIT = "{H}"'),
            ("a.py", 'password_hash = "{B}"'),
            ("a.py", 'token_id = "{B}"'),
            ("a.py", 'password = os.environ["DB_PASSWORD_PRODUCTION_1"]'),
            ("a.py", "token = get_token_for_user_1234567890"),
            ("a.py", "secret: SomeLongTypeName1234567890ab"),
            ("a.py", "max_tokens = 1234567890123456789"),
            ("a.py", 'api_key = "your-api-key-goes-here-123"'),
            ("a.py", 'password = "correct-horse-battery-staple"'),
            ("test_a.py", 'password = "Test1234Passw0rdTest"'),
            ("a.py", 'AWS_KEY = "AKIAIOSFODNN7EXAMPLE"'),
            ("a.py", 'GITHUB = "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"'),
            ("a.md", "export OPENAI_API_KEY=sk-your-key-here"),
            ("a.css", ".sk-folding-cube-animation-delay-1-2 { color: red }"),
            ("a.py", 'if "-----BEGIN PRIVATE KEY-----" in text:'),
            ("a.py", "DB = 'postgres://postgres:postgres1@localhost:5432/db'"),
            ("a.yml", "password: ${DB_PASSWORD_FOR_PRODUCTION_1}"),
            ("a.yml", "  token: ${{ secrets.GITHUB_TOKEN_FOR_CI_1 }}"),
            ("a.py", 'public_key = "{B}"'),
            ("a.env", "NEXT_PUBLIC_API_KEY={B}"),
            ("a.py", "CACHE = 'redis://app:Zq8t3LmP0v@cache:6379/0'"),
            ("a.py", 'token_url = "https://login.acme.io/oauth2/v2.0/token9"'),
            ("a.svg", '<path d="{B}{B}"/>'),
            ("a.py", '"AWS::EC2::AccessKey": "48205d4ffd7feba3"'),
            ("a.py", "x = 1"),
        ],
    )
    def test_what_only_seems_to_be_one(self, path, line):
        values = {"{B}": made(43), "{H}": made(64, "0123456789abcdef")}
        for mark, value in values.items():
            line = line.replace(mark, value)
        assert kinds(path, line) == []

    def test_a_line_without_end_takes_no_long_time(self):
        for line in (
            b"a" * 2_000_000,
            b"password=" * 200_000,
            b"eyJ" * 500_000,
            b"sk-ant-" * 300_000,
            b"://:@" * 400_000,
        ):
            assert list(secrets("a.js", line)) == []

    def test_the_reason_names_the_place_and_never_the_secret(self, work):
        token = key("a GitHub token")
        write(work.repo, {"src/b.py": f"print(1)\nx = '{token}'\n"})
        found = work.judged()
        assert found.reason == "src/b.py:2: looks like a GitHub token"
        assert found.failing == ("secret: src/b.py",)
        assert token not in repr(found)
        assert work.judged(secrets=False, max_lines=9).status == "pass"

    def test_in_a_binary_file_too(self, work):
        write(work.repo, {"x.bin": b"\0\1" + key("a GitHub token").encode()})
        assert work.judged().failing == ("secret: x.bin",)

    def test_one_that_was_there_and_only_moved_is_not_added(self, repo, tmp_path):
        token = key("a Stripe key")
        write(repo, {"conf.py": f"KEY = '{token}'\n"})
        work = Work(repo, tmp_path)
        (repo / "conf.py").rename(repo / "settings.py")
        write(repo, {"src/b.py": f"if x:\n    KEY = '{token}'\n"})
        assert work.judged().status == "pass"
        write(repo, {"src/b.py": f"KEY = '{key('a Stripe key')}'\n"})
        assert work.judged().failing == ("secret: src/b.py",)

    def test_the_value_of_a_secret_variable(self, work):
        value = "blue-harbour-lantern"
        work.place = place(work.repo.parent, redact=redactor({"DEMO_API_KEY": value}))
        write(work.repo, {"notes.md": f"it is\n{value}\n"})
        found = work.judged()
        assert found.reason == "notes.md:2: holds the value of DEMO_API_KEY"

    def test_files_whose_names_say_so_and_that_no_snapshot_holds(self, repo, tmp_path):
        write(repo, {".env": "A=1\n", ".env.example": ""})
        work = Work(repo, tmp_path)
        write(repo, {".env": "A=2\n"})
        assert work.judged().status == "pass", "it was the user's before"
        write(repo, {"deep/id_rsa": "x", "deep/id_rsa.pub": "x", ".env.sample": "", "build/.env": "ignored"})
        found = work.judged(max_files=2)
        assert found.failing == ("max_files", "secret: deep/id_rsa")
        assert found.reason.splitlines()[1] == "deep/id_rsa: a file of this name holds secrets; remove it"
        again = opened(repo)
        assert again.new_secrets() == ("deep/id_rsa",), "it is remembered"


class TestNoEvidence:
    def test_no_snapshots(self, tmp_path):
        found = score(diff(), place(tmp_path))
        assert (found.status, found.cause, found.evidence["code"]) == ("error", "evidence", "no_snapshots")
        assert "git on PATH" in found.reason

    def test_more_than_is_looked_at(self, work, monkeypatch):
        monkeypatch.setattr(past, "PATCH_BYTES", 500)
        write(work.repo, {"x": "1\n" * 300})
        found = work.judged()
        assert (found.status, found.evidence["code"]) == ("error", "too_large")

    def test_a_patch_that_breaks_off(self):
        with pytest.raises(BadEvidence, match="breaks off"):
            list(patch.lines(b"--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+one\n"))

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"max_lines": 0}, "max_lines is 0"),
            ({"max_files": -1}, "max_files is -1"),
            ({"secrets": False}, "no rule"),
            ({"forbid_text": ["("]}, "forbid_text: '(' cannot be read"),
            ({"forbid": ["[z-a]"]}, "forbid: '[z-a]' cannot be read"),
        ],
    )
    def test_options_that_cannot_be(self, options, says):
        with pytest.raises(ConfigError) as refused:
            diff(**options)
        assert says in str(refused.value)

    def test_the_string_form(self, tmp_path):
        assert resolve_gate("diff", project=tmp_path, path="/usr/bin:/bin").name == "diff"
