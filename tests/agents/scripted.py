"""An agent that does what a JSON file says: `scripted.py PLAN`, a list with one object per call, the last one repeated.

    write {file: text} · append {file: text} · delete [file] · env FILE (its environment, as JSON) · hold true ·
    sleep SECONDS · say TEXT · stderr TEXT · result {field: value} · exit CODE

Each call appends its key and attempt to PLAN.calls before it does anything; a held one makes PLAN.held and goes on
once PLAN.go exists.
"""

import json
import os
import sys
import time

plan = sys.argv[1]
with open(plan) as file:
    calls = json.load(file)
with open(plan + ".calls", "a+") as log:
    log.seek(0)
    number = len(log.readlines())
    log.write(f"{os.environ['LOOPWRIGHT_KEY']} {os.environ['LOOPWRIGHT_ATTEMPT']}\n")
do = calls[min(number, len(calls) - 1)]

for name, text in do.get("write", {}).items():
    with open(name, "w") as work:
        work.write(text.replace("{call}", str(number + 1)))
for name, text in do.get("append", {}).items():
    with open(name, "a") as work:
        work.write(text.replace("{call}", str(number + 1)))
for name in do.get("delete", ()):
    os.unlink(name)
if "env" in do:
    with open(do["env"], "w") as work:
        json.dump(dict(os.environ), work)
if do.get("hold"):
    open(plan + ".held", "w").close()
    end = time.monotonic() + 60
    while not os.path.exists(plan + ".go") and time.monotonic() < end:
        time.sleep(0.005)
time.sleep(do.get("sleep", 0))
if "stderr" in do:
    sys.stderr.write(do["stderr"] + "\n")
if "say" in do:
    sys.stdout.write(do["say"] + "\n")
if "result" in do:
    sys.stdout.write(json.dumps({"type": "result", **do["result"]}) + "\n")
sys.exit(do.get("exit", 0))
