# Two commands matter: `make demo` shows it at work, `make test` proves it. Both need only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
LOCK := requirements/dev.txt
READY := $(VENV)/.ready
BENCH := .venv-bench
BENCH_LOCK := requirements/bench.txt
BENCH_READY := $(BENCH)/.ready
COMPILE := pip compile --quiet --universal --python-version 3.11 --extra local --generate-hashes --no-annotate \
	--custom-compile-command "make lock" --upgrade

.DEFAULT_GOAL := help
.PHONY: help demo airflow test test-faults fault-table bench lint types format lock build clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## Run a crew from a DAG, all on this machine, and print its result
	@$(BIN)/python -m dev.demo

airflow: $(READY)  ## Open an Airflow on this machine, with the example DAGs and a crew
	@$(BIN)/python -m dev.explore

test: $(READY)  ## Run every test, with branch coverage
	$(BIN)/python -m pytest --cov --cov-report=term $(ARGS)

test-faults: $(READY)  ## Play every fault in a real Airflow, for an hour (needs PostgreSQL: apt-get install postgresql)
	$(BIN)/python -m pytest --no-cov $(or $(ARGS),tests/faults --executions 100)
	$(if $(ARGS),,CREW_FUZZ_CASES=100000 $(BIN)/python -m pytest --no-cov tests/fuzz -k much)

fault-table: $(READY)  ## Write the tables of docs/what-happens-when.md from the tests
	$(BIN)/python tests/faults/table.py

bench: $(BENCH_READY)  ## Measure side by side with other providers, into benchmarks/RESULTS.md
	@$(BENCH)/bin/python -m benchmarks $(ARGS)

lint: $(READY)  ## Check style with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## Check types with mypy
	$(BIN)/mypy

format: $(READY)  ## Apply ruff's format and its safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(UV)  ## Pin the environments for development and benchmarks anew
	$(UV) $(COMPILE) --group dev --output-file $(LOCK) pyproject.toml
	$(UV) $(COMPILE) --group bench --constraint $(LOCK) --output-file $(BENCH_LOCK) pyproject.toml

build: $(READY)  ## Build wheel and sdist into dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

clean:  ## Remove the virtual environment and everything made here
	rm -rf $(VENV) $(BENCH) .airflow build dist htmlcov .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(UV):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(READY): $(LOCK) pyproject.toml | $(UV)
	$(UV) pip install --quiet --require-hashes --python $(BIN)/python --requirements $(LOCK)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $(READY)

$(BENCH_READY): $(BENCH_LOCK) pyproject.toml | $(UV)
	$(PYTHON) -m venv --clear --without-pip $(BENCH)
	$(UV) pip install --quiet --require-hashes --python $(BENCH)/bin/python --requirements $(BENCH_LOCK)
	$(UV) pip install --quiet --python $(BENCH)/bin/python --no-deps --no-build-isolation --editable .
	@touch $(BENCH_READY)
