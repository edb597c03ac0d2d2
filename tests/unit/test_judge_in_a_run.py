"""A judge in a whole run: what it costs is the run's, its key is its own, and where it is unsure a person is asked."""

import sys
from pathlib import Path

import pytest

from loopwright import Loop, Result, Usage, run

sys.path.append(str(Path(__file__).parents[1] / "llm"))
from fakellm import Answering, Fake

UNSURE = '{"score": 0.9, "reason": "looks fine", "confidence": 0.4}'
NO = '{"score": 0.3, "reason": "say more about cats", "confidence": 0.9}'
DEAR = {"input": 1_000_000, "output": 0}  # $0.25 of gpt-5-mini


@pytest.fixture
def judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", "k-12345-secret")
    sent, answer = [], Answering.do_POST
    monkeypatch.setattr(Answering, "do_POST", lambda self: (sent.append(str(self.headers)), answer(self)))
    prompts = []

    def write(attempt):
        prompts.append(attempt.feedback.reasons)
        return Result(f"About cats, {attempt.iteration}", usage=Usage(cost_usd=0.125))

    def start(*turns, agent=write, gates=(), **options):
        with Fake({"turns": list(turns)}) as fake:
            judge = {
                "use": "judge",
                "rubric": "Is it about cats?",
                "model": "openai:gpt-5-mini",
                "url": f"{fake.url}/v1",
                "key": "JUDGE_KEY",
                "confidence": 0.7,
                "alone": True,
                **options.pop("judge", {}),
            }
            loop = Loop("Write about cats", agent=agent, gates=[judge, *gates], store="memory:", **options)
            return run(loop, "j"), sent, prompts

    return start


def test_it_sends_back_then_asks_a_person_and_its_cost_is_the_runs(judged):
    final, sent, prompts = judged({"text": NO, "usage": DEAR}, {"text": UNSURE, "usage": DEAR})
    assert final.phase == "human_review"
    assert final.iterations == 2
    assert "say more about cats" in prompts[1][0]
    assert final.cost_usd == 0.75
    assert all("k-12345-secret" in headers for headers in sent)


def test_its_key_reaches_nobody_else(judged, tmp_path):
    gate = {"use": "command", "run": "sh -c 'env > gate.txt'"}
    sure = '{"score": 0.9, "confidence": 0.9}'
    final, sent, _ = judged(
        {"text": sure}, agent="sh -c 'env > agent.txt'", gates=[gate], baseline=False, workspace="in_place"
    )
    assert final.passed, final.reason
    assert "k-12345-secret" in sent[0]
    for name in ("agent.txt", "gate.txt"):
        assert "PATH=" in (tmp_path / name).read_text()
        assert "k-12345" not in (tmp_path / name).read_text()


def test_the_runs_budget_holds_it_too(judged):
    final, sent, _ = judged({"text": NO, "usage": DEAR, "times": 9}, budget=0.6, max_iterations=9)
    assert not final.passed
    assert len(sent) <= 3


def test_its_own_budget_ends_a_run_that_only_it_could_pass(judged):
    final, sent, _ = judged({"text": NO, "usage": DEAR, "times": 9}, judge={"budget": 0.4})
    assert (final.reason, len(sent)) == ("gate_error", 2)


def test_it_may_be_the_objective_on_any_scale(judged):
    for scale, scores in (((0.0, 1.0), (0.5, 0.9, 0.6)), ((0, 10), (5, 9, 6))):
        final, *_ = judged(
            *({"text": f'{{"score": {score}, "confidence": 1}}'} for score in scores),
            gates=[lambda output: 1.0 if output.endswith("1") else 0.2],  # the mean is best at first
            judge={"objective": True, "scale": scale},
            until="limits",
            threshold=0.1,
            max_iterations=3,
        )
        assert (final.best.iteration, final.best.objective) == (2, scores[1])
