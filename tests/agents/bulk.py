"""bulk.py MEGABYTES: that much text on stdout, a fiftieth of it on stderr, DONE in the end."""

import sys

block = (b"y" * 127 + b"\n") * 8192
errors = b"e" * (len(block) // 50)
for _ in range(int(sys.argv[1])):
    sys.stdout.buffer.write(block)
    sys.stderr.buffer.write(errors)
print("DONE")
