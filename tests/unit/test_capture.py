"""What is kept of a process's output: the log file, head and tail, the last result line."""

import random
from pathlib import Path

import pytest

from loopwright.capture import LINE_BYTES, PEEKS, Ends, Lines, open_log

RESULT = b'{"type":"result","is_error":false,"result":"ok"}'


def logged(path, chunks, cap):
    log = open_log(path, cap)
    for chunk in chunks:
        log.add(chunk)
    return log.close(), path.read_bytes(), log


def pieces(data, seed):
    chance = random.Random(seed)
    while data:
        size = chance.choice([1, 7, 100, 3000])
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("seed", range(8))
def test_a_log_within_its_cap_is_whole_and_a_longer_one_keeps_head_and_tail(tmp_path, seed):
    cap, tail = 8000, 2000
    head = cap - tail - 64
    data = b"".join(b"line %d\n" % n for n in range(5000))
    for size in (0, 1, head, head + 1, head + tail):
        assert logged(tmp_path / "log", pieces(data[:size], seed), cap)[:2] == (0, data[:size])
    for size in (head + tail + 1, 9000, len(data)):
        left_out, text, _ = logged(tmp_path / "log", pieces(data[:size], seed), cap)
        assert len(text) <= cap
        assert left_out == size - head - tail
        marker = b"\n[loopwright: truncated %d bytes]\n" % left_out
        assert text == data[:head] + marker + data[size - tail : size]


def test_a_log_never_follows_a_symlink_and_is_ours_alone(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "log").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"):
        open_log(tmp_path / "log", 1000)
    assert (tmp_path / "precious").read_text() == "kept"
    logged(tmp_path / "new" / "log", [b"x"], 1000)
    assert (tmp_path / "new" / "log").stat().st_mode & 0o077 == 0


def test_a_full_disk_costs_the_log_and_is_said(tmp_path):
    log = open_log(Path("/dev/full"), 1000)
    log.add(b"x" * 300)
    log.add(b"y" * 300)
    assert log.close() > 0
    assert "No space left" in log.problem


def test_ends_are_bounded_and_exact():
    data = bytes(range(256)) * 40
    for seed in range(4):
        ends = Ends(100, 300)
        for piece in pieces(data, seed):
            ends.add(piece)
            assert len(ends.last) <= 600
        text, left_out = ends.text()
        assert left_out == len(data) - 400
        assert text == data[:100] + b"\n[loopwright: truncated %d bytes]\n" % left_out + data[-300:]
    whole = Ends(100, 300)
    whole.add(data[:400])
    assert whole.text() == (data[:400], 0)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (b"", None),
        (b"prose about a result\n", None),
        (RESULT, RESULT),
        (RESULT + b"\r\nbye\n", RESULT),
        (b"\n\n" + RESULT + b"\n\n\n", RESULT),
        (b'{"type":"result","result":"first"}\n' + RESULT + b"\n", RESULT),
        (RESULT + b'\n{"type":"tool","name":"result"\n"result" "type"\n', RESULT),
        (RESULT + b'\n{"type":"assistant","text":"' + b"z" * 30_000 + b'"}\n', RESULT),
        (
            b'{"type":"result","result":"' + b"z" * 30_000 + b'"}\nx',
            b'{"type":"result","result":"' + b"z" * 30_000 + b'"}',
        ),
        (b"x\n" + RESULT + b'\n{"type":"tool","name":"result"\n"result" "type"\nx', RESULT),
        (b'{"result":1}\n{"type":"x"}\n', None),
    ],
)
def test_the_last_result_line_is_found_however_it_is_cut(text, result):
    for cut in ([text], *(pieces(text, seed) for seed in range(6))):
        lines = Lines()
        for piece in cut:
            lines.add(piece)
        lines.close()
        assert lines.result == result


def test_a_line_without_end_is_given_up_and_the_next_one_is_read():
    lines = Lines()
    for _ in range(LINE_BYTES // 1_000_000 + 2):
        lines.add(b'{"type":"result","result":"' + b"z" * 1_000_000)
        assert len(lines.carried) <= LINE_BYTES
    lines.add(b"}\n" + RESULT + b"\n")
    assert lines.result == RESULT


def test_finished_is_asked_about_json_lines_until_it_holds():
    for seed in range(6):
        seen = []
        lines = Lines(lambda line, seen=seen: seen.append(line) or b"done" in line)
        for piece in pieces(b'{"n":1}\nprose {done}\n{"n":2}\r\n{"done":3}\n{"n":4}\n', seed):
            lines.add(piece)
        assert lines.done
        assert list(dict.fromkeys(seen)) == [b'{"n":1}', b'{"n":2}', b'{"done":3}']


def test_a_line_without_its_end_is_asked_about_and_not_for_ever():
    seen = []
    lines = Lines(seen.append)
    lines.add(b'x\n{"n":1')
    lines.add(b"}")
    assert seen == [b'{"n":1}']
    for _ in range(1000):
        lines.add(b"}")
    assert len(seen) == PEEKS
    lines.add(b'\n{"n":2}')
    assert seen[-1] == b'{"n":2}'
