"""An agent that does a little work and leaves processes behind: a setsid child and a double-forked daemon."""

import os
import sys
import time


def linger(detach: bool) -> None:
    if os.fork():
        return
    os.setsid()
    if detach and os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    if detach:
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    time.sleep(600)
    os._exit(0)


marks = os.environ["MARKS"]
call = os.environ["LOOPWRIGHT_KEY"].replace("/", "-") + "." + os.environ["LOOPWRIGHT_ATTEMPT"]
open(os.path.join(marks, "call-" + call), "x").close()
linger(detach=False)
linger(detach=True)
with open("work.txt", "a") as work:
    work.write(call + "\n")
print("working", flush=True)
time.sleep(float(sys.argv[1]))
