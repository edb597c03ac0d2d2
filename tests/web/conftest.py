import httpx2
import pytest
from behind import behind

from loopwright.web.bounds import Bounds
from loopwright.web.server import start


@pytest.fixture
def live(tmp_path):
    with behind(tmp_path) as live:
        yield live


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """One for all tests of a module: two who may decide, one who may look."""
    people = {"people": ("mira", "bob"), "viewers": ("vic",), "public_url": "https://loops.example.org"}
    with behind(tmp_path_factory.mktemp("lived"), **people) as live:
        yield live


@pytest.fixture(scope="module")
def served(lived):
    """The same, with its web server."""
    server = start(lived, port=0, bounds=Bounds(wrong_tokens=1_000_000, changes=1_000_000, streams=2))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ask(served):
    """Asks it as one of its people, or as nobody."""
    with httpx2.Client(base_url=served.address.url, timeout=20) as client:

        def ask(method, path, who="mira", **more):
            tokens = served.app.state.tokens.current()
            said = [] if who is None else [("authorization", f"Bearer {tokens.get(who, who)}")]
            headers = more.pop("headers", [])
            said += headers.items() if isinstance(headers, dict) else headers
            return client.request(method, path, headers=said, **more)

        yield ask
