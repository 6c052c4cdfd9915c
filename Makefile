# `make demo` and `make test` work on a fresh clone: they need only python3 (3.10 or newer) with venv and pip.
# PYTHON chooses the interpreter that .venv is made with; ARGS is handed on, e.g. make demo ARGS="--steps 50".

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PEERS := .venv-peers
PEERS_INSTALLED := $(PEERS)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-browser peers peers-test lint format typecheck docs-check wheel gallery clean distclean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

# pip older than 22 cannot install a pyproject.toml project in editable form; a newer one is left as it is.
$(INSTALLED): pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(BIN)/python -m pip install 'pip>=22'
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(INSTALLED)  ## make .venv with the pinned versions

demo: $(INSTALLED)  ## train a Transformer through annealing circuits on Aer
	$(BIN)/python examples/train_dqa.py --backend aer_simulator $(ARGS)

test: $(INSTALLED)  ## run the tests
	$(BIN)/python -m pytest $(ARGS)

test-slow: $(INSTALLED)  ## run the tests that take minutes
	$(BIN)/python -m pytest -m "slow and not hardware" $(ARGS)

# Debian: apt-get install chromium. The tests say so too if there is none.
test-browser: $(INSTALLED)  ## look at reports in headless Chromium
	$(BIN)/python -m pytest -m browser tests/test_report.py $(ARGS)

# The packages that benchmarks/against_peers.py compares with live in an environment of their own.
$(PEERS)/pyvenv.cfg:
	$(PYTHON) -m venv $(PEERS)

$(PEERS_INSTALLED): pyproject.toml constraints.txt benchmarks/peers-requirements.txt | $(PEERS)/pyvenv.cfg
	$(PEERS)/bin/python -m pip install 'pip>=22'
	$(PEERS)/bin/python -m pip install --constraint constraints.txt --requirement benchmarks/peers-requirements.txt \
		--editable '.[dev]'
	@touch $@

peers: $(PEERS_INSTALLED)  ## make .venv-peers with the packages of the comparison
	@echo "now: $(PEERS)/bin/python benchmarks/against_peers.py"

peers-test: $(PEERS_INSTALLED)  ## run the tests that need these packages
	$(PEERS)/bin/python -m pytest -m peers tests/test_peers.py $(ARGS)

lint: $(INSTALLED)  ## check style and formatting
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

format: $(INSTALLED)  ## mend what the linter can mend
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

typecheck: $(INSTALLED)  ## type-check the package, strictly
	$(BIN)/python -m mypy

docs-check: $(INSTALLED)  ## run the code of the README, check links and tables
	$(BIN)/python -m pytest tests/test_readme.py $(ARGS)
	$(BIN)/python benchmarks/report.py --check

# Without isolation the build uses the pinned hatchling.
wheel: $(INSTALLED)  ## build the sdist and, from it, the wheel
	$(BIN)/python -m build --no-isolation

gallery: $(INSTALLED)  ## regenerate the circuit gallery
	$(BIN)/python circuits/regenerate.py $(ARGS)

clean:  ## remove what was built or cached
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -not -path './$(PEERS)/*' -prune -exec rm -rf {} +

distclean: clean  ## remove .venv and .venv-peers too
	rm -rf $(VENV) $(PEERS)
