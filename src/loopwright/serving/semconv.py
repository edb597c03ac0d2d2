"""The names of spans, events and attributes that we write.

Rule: own constants. The GenAI conventions are in development and move; those here are of the release that `VERSION`
names (https://github.com/open-telemetry/semantic-conventions-genai), and every span says so.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "genai-0.1.0"
SCOPE: Final = "loopwright"

OPERATION: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.response.model"  # the one that an agent says did the work
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"  # those that a cache held are counted in
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITTEN: Final = "gen_ai.usage.cache_creation.input_tokens"
EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_WHY: Final = "gen_ai.evaluation.explanation"  # content
ERROR: Final = "error.type"

SEMCONV: Final = "loopwright.semconv"
RUN: Final = "loopwright.run.id"
ORIGIN: Final = "loopwright.run.origin"
PHASE: Final = "loopwright.run.phase"
STOP_REASON: Final = "loopwright.run.stop_reason"
ITERATIONS: Final = "loopwright.run.iterations"
GOAL: Final = "loopwright.run.goal"  # content
EXPLANATION: Final = "loopwright.run.explanation"  # content
ITERATION: Final = "loopwright.iteration"  # the span, too
INDEX: Final = "loopwright.iteration.index"
OUTCOME: Final = "loopwright.iteration.outcome"
SCORE: Final = "loopwright.iteration.score"
PASSED: Final = "loopwright.iteration.passed"
BEST: Final = "loopwright.iteration.best"
SNAPSHOT: Final = "loopwright.iteration.snapshot"
ATTEMPT: Final = "loopwright.attempt.number"
INTERRUPTED: Final = "loopwright.attempt.interrupted"
TIMED_OUT: Final = "loopwright.attempt.timed_out"
SUMMARY: Final = "loopwright.attempt.summary"  # content
COST: Final = "loopwright.cost.usd"
TOKENS: Final = "loopwright.tokens"
GATE_SECONDS: Final = "loopwright.gate.seconds"
ALERT: Final = "loopwright.alert"  # the event
ALERT_KIND: Final = "loopwright.alert.kind"
ALERT_ACTION: Final = "loopwright.alert.action"
WAIT: Final = "loopwright.wait"  # the event
WAIT_SECONDS: Final = "loopwright.wait.seconds"
APPROVAL: Final = "loopwright.approval"  # the span
APPROVAL_ID: Final = "loopwright.approval.id"
ABOUT: Final = "loopwright.approval.about"
ANSWER: Final = "loopwright.approval.answer"
CHANNEL: Final = "loopwright.approval.channel"
WAITED: Final = "loopwright.approval.waited_s"

PROVIDERS: Final = {"claude": "anthropic", "codex": "openai"}  # of agents that have one
