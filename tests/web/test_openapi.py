"""The description of the API: complete, and the one that is frozen in docs/openapi.json.

`LOOPWRIGHT_FREEZE=1 python -m pytest tests/web/test_openapi.py` writes it anew; look at what changed before you commit it.
"""

import json
import os
from pathlib import Path

import pytest
from fastapi.routing import iter_route_contexts

FROZEN = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def described(ask):
    return ask("GET", "/api/v1/openapi.json").json()


def operations(described):
    return [(path, method, each) for path, one in described["paths"].items() for method, each in one.items()]


def test_it_is_the_one_that_is_frozen(described):
    text = json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("LOOPWRIGHT_FREEZE"):
        FROZEN.write_text(text)
    assert FROZEN.read_text() == text, f"the API changed: {__doc__}"


def test_every_operation_says_how_it_can_end(described):
    assert described["openapi"].startswith("3.1") and described["security"] == [{"token": []}]
    for path, method, each in operations(described):
        assert each["description"] and each["operationId"], path
        usual = {"400", "401", "403", "413", "421", "422", "429", "431", "500", "503"}
        assert each["responses"].keys() >= usual | ({"408", "415"} if method == "post" else set()), path
        for status, response in each["responses"].items():
            assert response["description"], (path, status)
            media = {"application/problem+json"} if int(status) >= 400 else {"application/json", "text/plain"}
            assert response["content"].keys() <= media, (path, status)
        if "{run}" in path:
            assert "404" in each["responses"], path
    names = [each["operationId"] for _, _, each in operations(described)]
    assert len(names) == len({*names})


def test_every_route_of_the_api_is_in_it_and_no_other(served, described):
    declared = {
        route.path for route in iter_route_contexts(served.app.routes) if route.path.startswith("/api/")
    }
    assert {*described["paths"]} == declared - {"/api/v1/openapi.json"}
