"""Errors of HTTP clients that a function may use, in the shapes these have; none of them is needed to look."""

import asyncio
import http.client
import io
import socket
import time
from email.message import Message
from email.utils import formatdate
from types import SimpleNamespace
from urllib.error import HTTPError, URLError

import pytest

from loopwright.agents.http_errors import failure, passing


class Shaped(Exception):
    """An error with these attributes."""

    def __init__(self, *args, cause=None, **fields):
        super().__init__(*args)
        self.__dict__.update(fields)
        self.__cause__ = cause


def of(error):
    return asyncio.run(failure(error))


def urllib_error(status, body=b"", **headers):
    told = Message()
    for name, value in headers.items():
        told[name.replace("_", "-")] = value
    return HTTPError("http://x", status, "why", told, io.BytesIO(body))


def response(status, text="", **headers):
    return SimpleNamespace(
        status_code=status, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


BODY = '{"error": {"type": "rate_limit_error", "code": "slow", "message": "wait a bit"}}'
ANSWERS = [
    (urllib_error(429, BODY.encode(), Retry_After="4"), "rate_limited", 4.0, "rate_limit_error · slow · wait a bit"),
    (Shaped("x", response=response(429, BODY, retry_after="4")), "rate_limited", 4.0, "slow · wait a bit"),
    (Shaped("x", status_code=429, body={"message": "wait", "code": "slow"}, response=response(429, retry_after_ms="500")), "rate_limited", 0.5, "slow · wait"),
    (Shaped("429, busy", status=429, headers={"Retry-After": "4"}), "rate_limited", 4.0, "busy"),
    (Shaped("x", status_code=404, body=[{"error": {"status": "NOT_FOUND", "message": "nothing"}}]), "permanent", None, "NOT_FOUND · nothing"),
    (Shaped("x", status_code=418, body={"error": "a teapot"}), "unknown", None, "a teapot"),
    (Shaped("x", status_code=599, body={"odd": 1}), "transient", None, "HTTP 599"),
    (urllib_error(502, b"<html>Bad Gateway</html>"), "transient", None, "Bad Gateway"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "kind", "wait", "words"), ANSWERS, ids=range(len(ANSWERS)))
def test_an_answer_has_its_kind_its_wait_and_its_words(error, kind, wait, words):
    found = of(error)
    assert (found.kind, found.retry_after_s) == (kind, wait)
    assert words in found.message


def test_a_wait_until_a_date_is_kept_whatever_follows_it():
    at = formatdate(time.time() + 3600, usegmt=True)
    found = of(urllib_error(429, BODY.encode(), Retry_After=at))
    assert 3500 < found.retry_after_s < 3700


class Broken(Exception):
    @property
    def status_code(self):
        raise RuntimeError("not read yet")


@pytest.mark.parametrize(
    "error",
    [ValueError("429"), Shaped(status_code=200), Shaped(status_code="429"), Shaped(code=500), Broken(), Shaped(status=True)],
)  # fmt: skip
def test_what_is_no_http_error_is_none(error):
    assert of(error) is None


def test_an_answer_without_end_is_read_in_part():
    class Endless(io.RawIOBase):
        def read(self, n=-1):
            assert 0 < n < 100_000
            return b"x" * n

    error = HTTPError("http://x", 500, "why", Message(), Endless())
    assert len(of(error).message) < 2000


def test_words_of_the_answer_are_cleaned():
    assert "\x1b" not in of(Shaped(status_code=500, body="\x1b[31mred\n## Goal")).message


PASSING = [
    ConnectionResetError(),
    TimeoutError(),
    URLError(ConnectionRefusedError(111, "refused")),
    URLError(socket.gaierror(-2, "no such name")),
    http.client.IncompleteRead(b""),
    Shaped("no connection", cause=Shaped("x", cause=ConnectionRefusedError())),
    Shaped(Shaped("Connection aborted.", ConnectionResetError())),
]


@pytest.mark.parametrize("error", PASSING, ids=range(len(PASSING)))
def test_a_fault_of_the_way_passes(error):
    assert passing(error)


def test_what_was_raised_while_another_was_dealt_with_is_not_excused_by_it():
    try:
        try:
            raise ConnectionError
        except ConnectionError:
            raise ValueError("a mistake")  # noqa: B904 - that is the point
    except ValueError as error:
        found = error
    assert not passing(found)
    ring = Shaped("a")
    ring.__cause__ = ring
    assert not passing(ring)
