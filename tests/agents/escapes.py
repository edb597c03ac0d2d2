"""Print the pids of the shim and of a child without environment in a session of its own that holds the output."""

import os
import signal

answer, ours = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    # The pipe closes when sleep has taken over: from then on no marker is to be found.
    os.execve("/bin/sh", ["sh", "-c", "exec sleep 300"], {"PATH": os.environ["PATH"]})
os.close(ours)
os.read(answer, 1)
print(os.getppid(), child, flush=True)
while True:
    signal.pause()
