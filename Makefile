# Each target does its own set-up in .venv, which it makes. Nothing else on the machine is needed but Python >= 3.11
# (another one than the first found: make run PYTHON=python3.12).

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
PYTHON ?=
# A test file stays on one of so many processes; ARGS="-n0" runs all in one.
TEST_PROCESSES ?= 2
PYTEST := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile
SUITABLE = import sys, ensurepip; sys.exit(sys.version_info < (3, 11))

.PHONY: help run test test-fast check format servers clean

help:
	@echo 'make run      talk to the gateway in this terminal (arguments: ARGS="--home DIR")'
	@echo 'make test     all tests (arguments: ARGS="-k name")'
	@echo 'make test-fast without the slow ones'
	@echo 'make check    linter, formatter, types twice, layers'
	@echo 'make format   put the code into its form'
	@echo 'make clean    remove what these targets made; never the state home'

run: $(VENV)/.made
	@exec $(BIN)/python -m seriatim chat $(ARGS)

# Tests start hundreds of processes: without bytecode each of them, and each look at all tests, would compile it all anew.
test test-fast: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.made-test servers
	$(PYTEST) $(ARGS)

test-fast: $(VENV)/.made-test servers
	$(PYTEST) -m "not slow" $(ARGS)

check: $(VENV)/.made-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.made-check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Real servers that tests talk to, each a Debian package, and the compiler for the library that makes a disk fail.
# Without one its tests are skipped and say so; with SERIATIM_REQUIRE_SERVERS=1, as in CI, they fail. RUNLEVEL=1 keeps the package from starting a server of its own.
servers:
	@for server in ngircd inspircd openssl; do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v $$server >/dev/null || missing="$${missing:-}$$server "; \
	done; \
	command -v gcc >/dev/null || missing="$${missing:-}gcc libc6-dev "; \
	if [ -z "$${missing:-}" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "$${missing}missing: installing Debian's packages for the tests that need them"; \
	  export RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
	    || echo "$${missing}could not be installed"; \
	else echo "$${missing}missing, and installing needs root (apt-get install $$missing): some tests will be skipped"; \
	fi

# Made anew whenever the packaging changes; an interrupted set-up leaves no stamp and is begun again.
$(VENV)/.made: pyproject.toml setup.cfg
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14); do \
	  if "$$python" -c '$(SUITABLE)' >/dev/null 2>&1; then found="$$python"; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	  echo "Python 3.11 or newer with its venv module is needed; tried: $(or $(PYTHON),python3, python3.11 to 3.14)." >&2; \
	  echo "Name another one with PYTHON=..., or install it (Debian: python3 and python3-venv)." >&2; \
	  exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version) (once; less than a minute)"; \
	"$$found" -m venv --clear $(VENV)
	@$(PIP) --editable '.[openai]'
	@touch $@

$(VENV)/.made-test: $(VENV)/.made
	@echo "Adding what the tests need to $(VENV)"
	@$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.made-check: $(VENV)/.made-test
	@echo "Adding what the checks need to $(VENV)"
	@$(PIP) --editable '.[test,check]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
