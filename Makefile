# Two commands for a newcomer: `make demo` and `make test`. Both set everything up first, in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint bench clean

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("patchgym needs Python 3.11 or later; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[train,value,view,dev]'
	touch $@

# What only tests need, for they run a real cluster and a real trainer of others: the demo does without.
.venv/whole: .venv/ready
	$(INSTALL) '.[train,value,view,ray,trl,dev]'
	touch $@

demo: setup
	$(BIN)/patchgym loop

lint: .venv/whole
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: .venv/whole lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

bench: setup
	$(BIN)/python benchmarks/sandbox.py

clean:
	rm -rf .venv build dist
