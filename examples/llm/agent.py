"""An agent over any server that speaks OpenAI's chat completions: a cloud's, or vLLM, Ollama, llama.cpp of your own."""

import json
import os
from urllib.request import Request, urlopen

from loopwright import Attempt, Result, Usage


def write(attempt: Attempt) -> Result:
    """One answer of the model, and the tokens it took."""
    url = os.environ.get("LLM_URL", "http://localhost:11434/v1")
    asked = {
        "model": os.environ.get("LLM_MODEL", "llama3.2"),
        "messages": [{"role": "user", "content": attempt.prompt}],
    }
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('LLM_KEY', '')}",
    }
    request = Request(f"{url}/chat/completions", json.dumps(asked).encode(), headers)
    with urlopen(request, timeout=attempt.deadline_s) as answer:
        said = json.load(answer)
    used = said.get("usage") or {}
    usage = Usage(tokens=used.get("total_tokens"), model=said.get("model"))
    return Result(said["choices"][0]["message"]["content"], usage=usage)
