# The same commands serve people and CI.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: install demo check test test-slow bench clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: install ## one real episode: fetches the default model, needs no GPU, key or hub
	$(BIN)/agentrt run --benchmark mini --index 0

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: install
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: install ## the rest: kills for every scheme, whole kernel grids, machine code
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

bench: install
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.attention
