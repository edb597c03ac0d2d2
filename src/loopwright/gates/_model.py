"""One question to a model, through pydantic-ai: its answer as text, and what that cost.

Rule: nothing is imported before it is asked. Whoever asks decides about trying again: the library's own retries are
off. A wrong key, model or request is `NotStartable`; what may pass is waited for a little, then `BadEvidence`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from loopwright.core.values import Usage
from loopwright.errors import BadEvidence, ConfigError, NotStartable
from loopwright.evidence.text import one_line, plain
from loopwright.gates._candidate import Form, Question
from loopwright.ports import Place

BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_SDK: Final = {
    "openai": "openai",
    "anthropic": "anthropic",
}  # whose client is made here, with a URL of its own
_INSTALL: Final = "pip install 'loopwright[llm]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model: `provider` and `name` as in `openai:gpt-5-mini`, the server's `url`, the variable `key` with its key.

    Without a `key` none is sent.
    """

    provider: str
    name: str
    url: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        at = f" at {self.url}" if self.url else ""
        return f"{self.provider}:{self.name}{at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model said, and what it used (`cost_usd` is `None` where nobody knows the price)."""

    text: str
    usage: Usage


Ask = Callable[[Question, Form], Awaitable[Answer]]


def model_of(text: str, url: str | None, key: str | None) -> Model:
    """The model that `provider:name` means; ConfigError for what is none.

    A server of your own gets only the key that is named for it.
    """
    provider, colon, name = text.partition(":")
    if not (provider and colon and name.strip()):
        raise ConfigError(f"judge: model is {text!r}; it is provider:name, such as openai:gpt-5-mini")
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"judge: url is {url!r}; it begins with https:// or http://")
        if provider not in _SDK:
            raise ConfigError(f"judge: url needs a model openai:… or anthropic:…, not {text!r}")
    elif key is None:
        key = f"{provider.upper().replace('-', '_')}_API_KEY"
    return Model(provider=provider, name=name, url=url, key=key)


def probed(model: Model, place: Place) -> str:
    """What will be asked; NotStartable where the library or the key is missing."""
    for module in ("pydantic_ai", _SDK.get(model.provider, "pydantic_ai")):
        if find_spec(module) is None:
            raise NotStartable(f"a judge with a model needs {module}: {_INSTALL}")
    if model.key is not None and not place.env.get(model.key):
        raise NotStartable(f"the key for {model} is missing: set {model.key}, or name its variable in key")
    return str(model)


@asynccontextmanager
async def asking(model: Model, place: Place) -> AsyncIterator[Ask]:
    """What asks this model, until the end of the block; NotStartable where it cannot be asked."""
    probed(model, place)
    await asyncio.to_thread(_imported, model)
    api, close = _opened(model, place.env.get(model.key, "") if model.key else "none")

    async def ask(question: Question, form: Form) -> Answer:
        for wait in (*BACKOFF_S, None):
            try:
                return await _asked(api, question, form)
            except _Transient as error:
                pause = error.after if error.after is not None else wait
                if wait is None or pause is None:
                    raise BadEvidence("unavailable", str(error)) from None
            await asyncio.sleep(pause)
        raise AssertionError("the last wait is none")

    try:
        yield ask
    finally:
        await close()


class _Transient(Exception):
    """What may be over soon, and after how many seconds, if the server said."""

    def __init__(self, why: str, after: float | None) -> None:
        self.after = after
        super().__init__(why)


def _imported(model: Model) -> None:
    """The slow part (two seconds), which must not hold up the runs beside this one."""
    __import__("pydantic_ai.direct")
    if model.provider in _SDK:
        __import__(f"pydantic_ai.models.{_SDK[model.provider]}")


def _opened(model: Model, key: str) -> tuple[Any, Callable[[], Awaitable[None]]]:
    """The model's interface, and what closes it."""
    from pydantic_ai.exceptions import UserError

    try:
        if model.provider == "openai":
            from openai import AsyncOpenAI
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            chat = AsyncOpenAI(api_key=key, base_url=model.url, max_retries=0)
            return OpenAIChatModel(model.name, provider=OpenAIProvider(openai_client=chat)), chat.close
        if model.provider == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            claude = AsyncAnthropic(api_key=key, base_url=model.url, max_retries=0)
            return AnthropicModel(
                model.name, provider=AnthropicProvider(anthropic_client=claude)
            ), claude.close
        return _other(model, key), _nothing
    except (ImportError, UserError, ValueError, TypeError) as error:
        raise NotStartable(f"{model} cannot be asked: {one_line(plain(str(error)), 400)}") from error


def _other(model: Model, key: str) -> Any:
    """The interface of any other provider that the library knows, with its client's own retries off."""
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    def provider(name: str) -> Any:
        made: Any = infer_provider_class(name)
        made = made(api_key=key)
        if hasattr(made.client, "max_retries"):
            made.client.max_retries = 0
        return made

    return infer_model(f"{model.provider}:{model.name}", provider)


async def _nothing() -> None:
    """For what needs no closing."""


async def _asked(api: Any, question: Question, form: Form) -> Answer:
    """One request; `_Transient`, NotStartable or BadEvidence when there is no answer."""
    from pydantic_ai import exceptions as wrong
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tool = ToolDefinition(
        name="verdict", description="Gives your verdict.", parameters_json_schema=form.schema()
    )
    wanted = ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=True)
    request = ModelRequest.user_text_prompt(question.work, instructions=question.rules)
    try:
        response = await model_request(api, [request], model_request_parameters=wanted)
    except wrong.ModelContextWindowExceededError as error:
        raise BadEvidence("too_large", _said(error)) from error
    except (wrong.ModelQuotaExceededError, wrong.ModelRequestRejectedError, wrong.UserError) as error:
        raise NotStartable(_said(error)) from error
    except wrong.ModelHTTPError as error:
        if 400 <= error.status_code < 500 and error.status_code not in {408, 409, 425, 429}:
            raise NotStartable(_said(error)) from error
        raise _Transient(_said(error), error.retry_after) from error
    except wrong.ModelAPIError as error:
        raise _Transient(_said(error), error.retry_after) from error
    except wrong.ContentFilterError as error:
        raise BadEvidence("refused", f"the model refused: {_said(error)}") from error
    except wrong.AgentRunError as error:
        raise BadEvidence("malformed", f"the server's answer cannot be read: {_said(error)}") from error
    return Answer(text=_text(response), usage=_usage(response))


def _said(error: Exception) -> str:
    status = getattr(error, "status_code", None)
    body = getattr(error, "body", None)
    body = body.get("error", body) if isinstance(body, dict) else None
    said = body.get("message") if isinstance(body, dict) else body
    cause = error.__cause__
    text = str(said or (f"{error} ({type(cause).__name__})" if cause is not None else error))
    return one_line(plain(f"HTTP {status}: {text}" if status else text), 400)


def _text(response: Any) -> str:
    """All it said, as text or in the form; thoughts are not part of it."""
    said = []
    for part in response.parts:
        if part.part_kind == "text":
            said.append(part.content)
        elif part.part_kind == "tool-call":
            said.append(part.args_as_json_str())
    return "\n".join(said)


def _usage(response: Any) -> Usage:
    used = response.usage
    return Usage(
        cost_usd=_price(response),
        input_tokens=max(0, used.input_tokens - used.cache_read_tokens - used.cache_write_tokens),
        cache_write_tokens=used.cache_write_tokens,
        cache_read_tokens=used.cache_read_tokens,
        output_tokens=used.output_tokens,
        turns=1,
        model=response.model_name,
    )


def _price(response: Any) -> float | None:
    """Dollars by the library's list of prices; `None` for a model that it does not have, or without usage."""
    if not response.usage.input_tokens:
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None
