# make demo: the whole job on shipped data, on a CPU.  make test: lint, types and every test that needs no GPU.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test lint types tests clean

help:
	@echo "make demo   install into $(VENV), run the whole job on shipped data, say where the report lies"
	@echo "make test   install into $(VENV), then lint, types and every test that needs no GPU"

demo: $(VENV)/.cpu
	$(BIN)/calib demo --out calib-demo

test: lint types tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

# Slow tests run too: the coverage of intervals by simulation takes about a minute of one core.
tests: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not gpu" -n auto

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "calib needs Python 3.10 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.cpu: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[cpu]'
	@touch $@

# torch is needed to export networks, to resize images without antialias, and to train the demo's network.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[dev,torch]'
	@touch $@ $(VENV)/.cpu

clean:
	rm -rf $(VENV) calib-demo .mypy_cache .pytest_cache .ruff_cache
