"""An agent that is killed half way through its first call and does the whole of its work in the next.

`half_then_whole.py MARKS`: a mark in that folder says that it holds; it goes on when MARKS/go is there.
"""

import sys
import time
from pathlib import Path

marks = Path(sys.argv[1])


def hold(name):
    (marks / name).touch()
    end = time.monotonic() + 60
    while not (marks / "go").exists() and time.monotonic() < end:
        time.sleep(0.005)


def add(name, line):
    text = Path(name).read_bytes()
    if not text.endswith(line):
        Path(name).write_bytes(text + line)


if not (marks / "half").exists():
    Path("junk.txt").write_text("half done\n")
    Path("tracked.txt").write_text("half done\n")
    Path("tool.sh").chmod(0o644)
    Path("link").unlink()
    hold("half")
(marks / f"found-junk-{Path('junk.txt').exists()}").touch()
Path("tracked.txt").write_text("agent\n")
Path("tool.sh").write_text("#!/bin/sh\necho agent\n")
Path("tool.sh").chmod(0o755)
Path("link").unlink(missing_ok=True)
Path("link").symlink_to("new.txt")
Path("gone.txt").unlink(missing_ok=True)
Path("new.txt").write_text("new\n")
Path("bin").mkdir(exist_ok=True)
Path("bin/new.sh").write_text("#!/bin/sh\n")
Path("bin/new.sh").chmod(0o755)
Path("copy.bin").write_bytes(Path("big.bin").read_bytes())
add("edited.txt", b"agent\n")
add("crlf.txt", b"agent\r\n")
hold("whole")
print("done")
