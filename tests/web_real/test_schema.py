"""2,000 requests that the API's description makes of itself: none ends in a fault, none in a way that is not described.

Each goes to a real server with real runs: asked, sent back, expired, over, paused, stopped, never driven, in a git repository.
Half of the requests name a run that is there, and each operation is also asked by methods there are none of.
"""

import random
import subprocess
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import requests
import schemathesis
from behind import LOOP, behind
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis import checks as described

from loopwright.drive import expire
from loopwright.web.bounds import Bounds
from loopwright.web.server import start

CASES = 2000
CHECKS = [
    described.not_a_server_error,
    described.status_code_conformance,
    described.content_type_conformance,
    described.response_schema_conformance,
    described.response_headers_conformance,
    described.unsupported_method,
]
dice = random.Random(6)
names: dict[str, list[str]] = {}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    git = [
        "git",
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    ]
    subprocess.run(git, cwd=folder, check=True)
    text = LOOP.replace('[workspace]\nmode = "none"', '[workspace]\nmode = "worktree"')
    text = text.replace('until = "passed"', 'until = "passed"\nif_passing = "run"')
    with behind(folder, text, "open('work.txt', 'a').write('more\\n')") as live:
        runs = {}
        for _ in range(10):
            run, request = live.asks()
            runs[run] = request
        runs[live.begin("tidy", origin="test")[0]] = "0" * 16
        answering = start(live, port=0, bounds=Bounds(changes=10**9, wrong_tokens=10**9))
        tokens = answering.app.state.tokens.current()
        head = {"authorization": f"Bearer {tokens['mira']}"}
        asked = list(runs)
        root = f"{answering.address.url}/api/v1/runs"
        for run, answer in zip(asked[1:4], ("approve", "revise", "reject"), strict=True):
            body = {"answer": answer, "note": "x"}
            requests.post(
                f"{root}/{run}/approvals/{runs[run]}/decision", json=body, headers=head, timeout=20
            ).raise_for_status()
        for run, word in zip(asked[4:6], ("stop", "pause"), strict=True):
            requests.post(
                f"{root}/{run}/{word}", json={"now": True}, headers=head, timeout=20
            ).raise_for_status()
        for run in asked[6:8]:
            expire(live.store, run, runs[run], datetime.now(UTC))
        for run in asked[1:8]:
            live.go(run)
        names["run"], names["approval"] = asked, list(runs.values())
        yield answering, head
        answering.stop()


@pytest.fixture(scope="module")
def session(server):
    with requests.Session() as session:
        yield session


def with_what_is_there(case):
    """Half of all name what is there, a run with its own request: what is made up is only ever not found."""
    given = case.path_parameters
    if dice.random() < 0.5:
        at = dice.randrange(len(names["run"]))
        there = {
            "run": names["run"][at],
            "approval": names["approval"][at],
            "name": "tidy",
            "number": dice.choice("012"),
        }
        given.update({name: there[name] for name in there.keys() & given.keys()})
    return case


@pytest.mark.timeout(400)
def test_every_answer_is_described(server, session, record_property):
    answering, head = server
    seen: Counter[tuple[str, int]] = Counter()
    schema = schemathesis.openapi.from_url(f"{answering.address.url}/api/v1/openapi.json", headers=head)
    operations = [found.ok() for found in schema.get_all_operations()]
    last = ("stop", "pause", "resume")  # after these a run asks nothing any more
    for operation in sorted(operations, key=lambda each: each.label.endswith(last)):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(
                max_examples=CASES // (2 * len(operations)) + 8,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
                derandomize=True,
                database=None,
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def every(case):
                case = with_what_is_there(case)
                answer = case.call_and_validate(session=session, headers=head, checks=CHECKS, timeout=20)
                seen[operation.label, answer.status_code] += 1  # noqa: B023 - called before the next

            with suppress(Unsatisfiable):  # nothing about it can be said wrong
                every()
    found: Counter[int] = Counter()
    for (_, status), times in seen.items():
        found[status] += times
    record_property("measured", f"schemathesis: {found.total()} requests, {dict(sorted(found.items()))}")
    assert found.total() >= CASES
    good = {label for label, status in seen if status < 300}
    assert good == {operation.label for operation in operations}
