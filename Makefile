# `make setup` needs Python 3.11 or newer and nothing else; everything goes into .venv.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# -qq: errors only; without it pip complains of index folders that some machines are configured with
PIP = $(BIN)/python -m pip --disable-pip-version-check --no-input -qq

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format docs bench figures lock clean

help:  ## what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv and install everything pinned into it

$(STAMP): pyproject.toml requirements.lock requirements-build.lock
	@test -n "$(PYTHON)" || { echo "clew needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/pip || { echo "making $(VENV)" >&2; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing what requirements.lock pins (500 MB, a minute or two the first time)" >&2
	@$(PIP) install --require-hashes -r requirements-build.lock
	@$(PIP) install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)  ## run the demo
	@$(BIN)/clew demo --fresh

test: $(STAMP)  ## run the tests
	@$(BIN)/python -m pytest

lint: $(STAMP)  ## check style, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMP)  ## put the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(STAMP)  ## write docs/reference.md and the documents' output blocks anew
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.documents README.md ARCHITECTURE.md $$(find docs -name '*.md')

bench: $(STAMP)  ## list the benchmarks; one runs with `.venv/bin/clew bench NAME`
	@$(BIN)/clew bench --list

figures: $(STAMP)  ## write docs/benchmarks.md and its plots from docs/benchmarks/*.json
	@$(BIN)/python -m tools.benchmarks_page

lock:  ## renew the lock files from pyproject.toml, for every platform and Python
	@$(PYTHON) -m venv --clear build/lock && build/lock/bin/python -m pip install -qq uv
	@cd build/lock && bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --group ../../pyproject.toml:dev ../../pyproject.toml -o all.txt
	@cd build/lock && sed -n '/^\[build-system\]/,/^\[project\]/s/^requires = \["\(.*\)"\]/\1/p' ../../pyproject.toml | bin/uv pip compile \
		-q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -o build.txt -
	@{ echo "# made by 'make lock' from pyproject.toml"; cat build/lock/all.txt; } > requirements.lock
	@{ echo "# made by 'make lock' from pyproject.toml"; cat build/lock/build.txt; } > requirements-build.lock
	@rm -rf build/lock

clean:  ## take away .venv and what tools left behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
