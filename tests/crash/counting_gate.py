"""A gate that takes a moment and passes once the work has three lines."""

import os
import sys
import time

open(os.path.join(os.environ["MARKS"], "gate-" + os.environ["LOOPWRIGHT_ITERATION"]), "w").close()
time.sleep(float(sys.argv[1]))
with open("work.txt") as work:
    sys.exit(0 if len(work.readlines()) >= 3 else 1)
