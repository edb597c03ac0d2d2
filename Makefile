# Every target sets up all it needs in .venv; nothing outside this folder is changed.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python,$(shell command -v $(p) >/dev/null 2>&1 && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(p))))
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test test-tools test-agents test-web check bench bench-peers soak fmt clean
help:
	@echo "make demo    watch a loop repair a small program (offline, under a minute)"
	@echo "make test    run the tests        make check   format, lint, types, import contracts"
	@echo "make test-tools   loops on other people's projects with their tools (needs npm and a package index)"
	@echo "make test-agents  loops with the real Claude Code, Codex, opencode and aider, offline (needs npm and a package index)"
	@echo "make test-web     the page in a browser, and the API by its description (needs chromium and a package index)"
	@echo "make bench   measure the speed    make bench-peers   measure it beside other engines"
	@echo "make clean   remove what these made"
	@echo "make soak    crash and power-loss tests at full size (a quarter of an hour; LOOPWRIGHT_SOAK=0.1 for a tenth)"

.venv/made:
	@test -n "$(PYTHON)" || { echo "loopwright needs Python 3.11 or newer on PATH (or: make PYTHON=/path/to/python3)"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: install the package python3-venv, then try again"; exit 2; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/demo: .venv/made requirements/base.txt requirements/demo.txt pyproject.toml
	$(PIP) install -r requirements/demo.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev: .venv/demo requirements/dev.txt requirements/llm.txt requirements/serve.txt
	$(PIP) install -r requirements/dev.txt
	@touch $@

demo: .venv/demo
	$(BIN)/loopwright demo

test: .venv/dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist worksteal

RELEASES := boltons==26.2.0 cachetools==8.0.2
.venv/tools/made: .venv/dev requirements/tools.txt tests/tools/npm/package.json
	@command -v npm >/dev/null || { echo "make test-tools needs npm on PATH"; exit 2; }
	rm -rf .venv/tools && mkdir -p .venv/tools/npm
	$(PIP) download --no-deps --no-binary :all: --dest .venv/tools $(RELEASES)
	cp tests/tools/npm/package.json .venv/tools/npm/
	cd .venv/tools/npm && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

test-tools: .venv/tools/made
	$(BIN)/python -m pytest tests/tools -n 2

.venv/agents/made: requirements/agents.txt tests/agents_real/package.json tests/agents_real/install.py | .venv/dev
	$(BIN)/python tests/agents_real/install.py
	@touch $@

.venv/web: .venv/dev requirements/web.txt
	$(PIP) install -r requirements/web.txt
	@touch $@

test-web: .venv/web
	@command -v chromium >/dev/null || { echo "make test-web needs chromium on PATH (Debian: apt-get install chromium)"; exit 2; }
	$(BIN)/python -m pytest tests/web_real -n 2 --dist loadfile

# Where the system lets anybody make a network, the agents get one that has nothing but loopback.
ALONE := unshare -rn sh -c 'ip link set lo up && exec "$$@"' alone
test-agents: .venv/agents/made
	@run="$(BIN)/python -m pytest tests/agents_real -n 4 --dist load --maxschedchunk 1"; \
	if $(ALONE) true 2>/dev/null; then $(ALONE) $$run; else $$run; fi

soak: .venv/dev
	$(BIN)/python tests/crash/soak.py

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fmt: .venv/dev
	$(BIN)/ruff check --fix-only --quiet . || true
	$(BIN)/ruff format --quiet .

bench: .venv/dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m benchmarks

.venv/peers/made: .venv/made requirements/peers.txt
	$(BIN)/python -m venv --clear .venv/peers
	.venv/peers/bin/python -m pip --disable-pip-version-check --quiet install -r requirements/peers.txt
	@touch $@

bench-peers: .venv/dev .venv/peers/made
	$(BIN)/python -m benchmarks.peers

clean:
	rm -rf .venv loopwright-demo build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
