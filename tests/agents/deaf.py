"""Say "working", then live on whatever TERM and INT say."""

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("working", flush=True)
while True:
    signal.pause()
