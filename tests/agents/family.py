"""family.py FILE stay|leave: a process with every kind of relative that likes to be forgotten.

FILE gets a line `NAME PID` from each. With `leave` this process exits once they are all there.
"""

import os
import signal
import sys
from pathlib import Path

FILE = sys.argv[1]


def live(name: str) -> None:
    if name in {"deaf", "daemon"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Path(FILE).open("a") as file:
        file.write(f"{name} {os.getpid()}\n")
    if name == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        signal.pause()


def fork(name: str, *, session: bool = False, orphan: bool = False) -> None:
    pid = os.fork()
    if pid:
        if orphan:
            os.waitpid(pid, 0)
        return
    if session:
        os.setsid()
    if orphan and os.fork():
        os._exit(0)
    live(name)


fork("child")
fork("deaf")
fork("stopped")
fork("session", session=True)
fork("orphan", orphan=True)
fork("daemon", session=True, orphan=True)
while len(Path(FILE).read_text().splitlines() if Path(FILE).exists() else ()) < 6:
    os.sched_yield()
print("ready", flush=True)
while sys.argv[2] == "stay":
    signal.pause()
