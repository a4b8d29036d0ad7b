# Two commands for a newcomer: `make demo` and `make test`. Both set everything up first, in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint bench clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("patchgym needs Python 3.11 or later; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[train,value,view,dev]'
	touch $@

demo: setup
	$(BIN)/patchgym loop

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

bench: setup
	$(BIN)/python benchmarks/sandbox.py

clean:
	rm -rf .venv build dist
