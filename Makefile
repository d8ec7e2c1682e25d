# Two commands matter: `make demo` shows it at work, and `make test` proves it. They need only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
LOCK := requirements/dev.txt
READY := $(VENV)/.ready
BENCH := .venv-bench
BENCH_LOCK := requirements/bench.txt
BENCH_READY := $(BENCH)/.ready
COMPILE := pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" --upgrade
# Older Airflows, each with packages from soon after its last patch: later ones may break it. All need a newer
# common-compat.
OLDER := 3.1=2026-03-31 3.2=2026-06-15
ALWAYS := $(addsuffix =2100-01-01,apache-airflow-providers-common-compat asgiref)

# So has an Airflow on several machines: nothing else needs what its workers do.
EXECUTORS_VENV := .venv-executors
EXECUTORS_LOCK := requirements/executors.txt
EXECUTORS_READY := $(EXECUTORS_VENV)/.ready
STACK_BIN := $(if $(EXECUTOR),$(EXECUTORS_VENV)/bin,$(BIN))
STACK_READY := $(READY) $(if $(EXECUTOR),$(EXECUTORS_READY))

# So have Airflow's agents: the package has to work where they are missing.
AGENTS_VENV := .venv-agents
AGENTS_LOCK := requirements/agents.txt
AGENTS_READY := $(AGENTS_VENV)/.ready

# Crews have an environment of their own: CrewAI cannot be installed beside Airflow.
CREW_VENV := .venv-crew
CREW_LOCK := requirements/crewai.txt
CREW_READY := $(CREW_VENV)/.ready

# So has mutation testing, which brings an interface for terminals.
MUTANTS_VENV := .venv-mutants
MUTANTS_LOCK := requirements/mutants.txt
MUTANTS_READY := $(MUTANTS_VENV)/.ready

# So has the documentation site: what builds it needs another docutils than twine.
DOCS_VENV := .venv-docs
DOCS_LOCK := requirements/docs.txt
DOCS_READY := $(DOCS_VENV)/.ready
DOCS_HTML := docs/_build/html

# Installing takes minutes, and is quiet: this shows that it goes on.
SHOW := @$(PYTHON) -m dev.progress

# The next Airflow, which has only a beta so far. Only the packages named here may be a pre-release.
NEXT := apache-airflow~=3.4.0b1 apache-airflow-core~=3.4.0b1 apache-airflow-task-sdk~=1.4.0b1

# Images often set it. Then each program that the tests start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo airflow test coverage test-all test-system test-agents test-crews test-faults test-fuzz mutants defects nightly \
	fault-table golden picture docs bench matrix lint types format lock release clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# With CREW=example_crews/briefing, or another project, with a real crew.
demo: $(READY) $(if $(CREW),$(CREW_READY))  ## Run a crew from a DAG, all on this machine, and print its result
	@$(BIN)/python -m dev.run demo $(if $(CREW),$(CREW) $(CREW_VENV)/bin/python)

# With EXECUTOR=celery, one on Redis and PostgreSQL with two of everything, as on several machines.
airflow: $(STACK_READY)  ## Open an Airflow on this machine, with the example DAGs and a crew
	@$(STACK_BIN)/python -m dev.run explore $(EXECUTOR)

# Two cores wait less when three processes take turns on them. Each more costs the CPU seconds of its imports.
test: $(READY)  ## Run the tests: three minutes on two cores
	$(BIN)/python -m pytest --no-cov $(or $(ARGS),--numprocesses 3)

# Each run keeps its coverage data in a folder of its own: a run would take in the data of another beside it.
coverage: $(READY)  ## Run the tests, and fail where they cover less than 95 % of the branches
	@data=$$(mktemp -d) && trap 'rm -r "$$data"' EXIT && \
	COVERAGE_FILE="$$data/coverage" $(BIN)/python -m pytest --cov --cov-report=term $(or $(ARGS),--numprocesses 4)

test-all: test test-system test-agents test-crews test-faults test-fuzz  ## Run those, a real Airflow and all that can go wrong

# Each core has an Airflow of its own: while the tests of one wait, those of the other go on.
test-system: $(STACK_READY)  ## Test the built wheels, a real Airflow and its pages, for nine minutes
	$(STACK_BIN)/python -m pytest --no-cov $(or $(ARGS),tests/system --numprocesses 2 --dist loadfile) \
		$(EXECUTOR:%=--executor %)

test-agents: $(AGENTS_READY)  ## Test a crew as a tool of Airflow's agents, for a minute and a half
	$(AGENTS_VENV)/bin/python -m pytest --no-cov $(or $(ARGS),tests/agents --numprocesses 2 --dist loadfile)

test-crews: $(READY) $(CREW_READY)  ## Test real crews and flows of CrewAI, in an environment of their own
	$(BIN)/python -m pytest --no-cov tests/crews $(ARGS)

test-faults: $(STACK_READY)  ## Play every fault in a real Airflow, for an hour (needs PostgreSQL: apt-get install postgresql)
	$(STACK_BIN)/python -m pytest --no-cov $(or $(ARGS),tests/faults --executions 100) $(EXECUTOR:%=--executor %)

test-fuzz: $(READY)  ## Try tens of thousands of cases of bad input
	CREW_FUZZ_CASES=7000 $(BIN)/python -m pytest --no-cov tests/fuzz tests/integration/test_local_description.py
	CREW_FUZZ_CASES=7000 $(BIN)/python -m pytest --no-cov tests/unit -m hypothesis

# With ARGS=decide, or other modules, those alone.
mutants: $(MUTANTS_READY)  ## List mistakes in the code that decides about money which no test notices
	$(MUTANTS_VENV)/bin/python -m dev.mutants $(ARGS)

# Those of a crew as a tool need Airflow's agents.
defects: $(READY) $(AGENTS_READY)  ## Put known defects back, one at a time, and check that a test notices
	$(BIN)/python -m dev.defects $(ARGS)
	$(AGENTS_VENV)/bin/python -m dev.defects $(ARGS)

nightly:  ## Run what takes too long for every change: all faults, and every Airflow
	.ci/nightly

fault-table: $(READY)  ## Write tests/faults/cases/ from the tests of faults
	$(BIN)/python -m pytest --no-cov --quiet tests/faults/test_page.py --write-tables

golden: $(READY)  ## Write what this version stores into tests/golden/, once for each release
	$(BIN)/python -m dev.golden

picture: $(READY)  ## Take the pictures of README and docs in a real Airflow (needs Chromium)
	$(BIN)/python -m dev.picture

# From nothing each time: a page that is not written anew warns of nothing. Airflow writes its configuration into its
# home as soon as it is imported.
docs: $(DOCS_READY)  ## Build the documentation site, with the reference of the API, into docs/_build/html
	@home=$$(mktemp -d) && trap 'rm -r "$$home"' EXIT && rm -rf $(DOCS_HTML) && \
	AIRFLOW_HOME="$$home" $(DOCS_VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env \
		--conf-dir docs --doctree-dir docs/_build/doctrees . $(DOCS_HTML)
	@echo "Open file://$(abspath $(DOCS_HTML))/docs/index.html"

bench: $(BENCH_READY)  ## Measure side by side with other providers, into benchmarks/RESULTS.md
	@$(BENCH)/bin/python -m benchmarks $(ARGS)

matrix: $(READY)  ## Run the tests on every supported Airflow and Python, with nox (ARGS=-l lists the sessions)
	@$(BIN)/nox $(ARGS)

lint: $(READY)  ## Check style with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## Check types with mypy
	$(BIN)/mypy

format: $(READY)  ## Apply ruff's format and its safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

define lock_older
echo "apache-airflow~=$(1).0" | $(UV) $(COMPILE) --group test --constraint - --exclude-newer $(2) \
	$(addprefix --exclude-newer-package=,$(ALWAYS)) --output-file requirements/airflow-$(1).txt pyproject.toml

endef

lock: $(UV)  ## Pin all environments anew
	$(UV) $(COMPILE) --group dev --output-file $(LOCK) pyproject.toml
	$(UV) $(COMPILE) --group bench --constraint $(LOCK) --output-file $(BENCH_LOCK) pyproject.toml
	sed '/^python-dateutil==/,/[^\\]$$/d' $(LOCK) | $(UV) $(COMPILE) --group executors --constraint - \
		--output-file $(EXECUTORS_LOCK) pyproject.toml
	$(UV) $(COMPILE) --group agents --constraint $(LOCK) --output-file $(AGENTS_LOCK) pyproject.toml
	echo "apache-airflow-providers-common-ai>=1.1.0rc1" | $(UV) $(COMPILE) --group agents --constraint $(LOCK) \
		--constraint - --output-file requirements/agents-next.txt pyproject.toml
	$(UV) $(COMPILE) --group mutants --constraint $(LOCK) --output-file $(MUTANTS_LOCK) pyproject.toml
	$(UV) $(COMPILE) --group docs --output-file $(DOCS_LOCK) pyproject.toml
	$(UV) $(COMPILE) --output-file $(CREW_LOCK) example_crews/briefing/pyproject.toml
	printf '%s\n' $(NEXT) | $(UV) $(COMPILE) --group test --constraint - --output-file requirements/airflow-3.4.txt \
		pyproject.toml
	$(foreach each,$(OLDER),$(call lock_older,$(firstword $(subst =, ,$(each))),$(lastword $(subst =, ,$(each)))))

release: $(READY)  ## Check that this can be released, and build it into dist/
	$(BIN)/python -m dev.release
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

clean:  ## Remove the virtual environments and everything else that make has made
	rm -rf $(VENV) $(BENCH) $(EXECUTORS_VENV) $(AGENTS_VENV) $(CREW_VENV) $(MUTANTS_VENV) $(DOCS_VENV) .airflow .nox \
		build dist docs/_build htmlcov .coverage* .hypothesis .mutants .mypy_cache .pytest_cache .ruff_cache

$(UV):
	$(SHOW) "Making $(VENV)" $(PYTHON) -m venv $(VENV)
	$(SHOW) "Installing uv" $(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(READY): $(LOCK) pyproject.toml | $(UV)
	$(SHOW) "Installing Airflow and what the tests need into $(VENV)" \
		$(UV) pip install --quiet --compile-bytecode --require-hashes --python $(BIN)/python --requirements $(LOCK)
	$(SHOW) "Installing this package into $(VENV)" \
		$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $(READY)

$(BENCH_READY): $(BENCH_LOCK) pyproject.toml | $(UV)
	$(SHOW) "Making $(BENCH)" $(PYTHON) -m venv --clear --without-pip $(BENCH)
	$(SHOW) "Installing what the benchmarks need into $(BENCH)" \
		$(UV) pip install --quiet --require-hashes --python $(BENCH)/bin/python --requirements $(BENCH_LOCK)
	$(SHOW) "Installing this package into $(BENCH)" \
		$(UV) pip install --quiet --python $(BENCH)/bin/python --no-deps --no-build-isolation --editable .
	@touch $(BENCH_READY)

$(EXECUTORS_READY): $(EXECUTORS_LOCK) pyproject.toml | $(UV)
	$(SHOW) "Making $(EXECUTORS_VENV)" $(PYTHON) -m venv --clear --without-pip $(EXECUTORS_VENV)
	$(SHOW) "Installing Airflow with other executors into $(EXECUTORS_VENV)" \
		$(UV) pip install --quiet --require-hashes --python $(EXECUTORS_VENV)/bin/python --requirements $(EXECUTORS_LOCK)
	$(SHOW) "Installing this package into $(EXECUTORS_VENV)" \
		$(UV) pip install --quiet --python $(EXECUTORS_VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $(EXECUTORS_READY)

$(AGENTS_READY): $(AGENTS_LOCK) pyproject.toml | $(UV)
	$(SHOW) "Making $(AGENTS_VENV)" $(PYTHON) -m venv --clear --without-pip $(AGENTS_VENV)
	$(SHOW) "Installing Airflow with agents into $(AGENTS_VENV)" \
		$(UV) pip install --quiet --require-hashes --python $(AGENTS_VENV)/bin/python --requirements $(AGENTS_LOCK)
	$(SHOW) "Installing this package into $(AGENTS_VENV)" \
		$(UV) pip install --quiet --python $(AGENTS_VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $(AGENTS_READY)

$(MUTANTS_READY): $(MUTANTS_LOCK) pyproject.toml | $(UV)
	$(SHOW) "Making $(MUTANTS_VENV)" $(PYTHON) -m venv --clear --without-pip $(MUTANTS_VENV)
	$(SHOW) "Installing mutmut and what the tests need into $(MUTANTS_VENV)" \
		$(UV) pip install --quiet --require-hashes --python $(MUTANTS_VENV)/bin/python --requirements $(MUTANTS_LOCK)
	$(SHOW) "Installing this package into $(MUTANTS_VENV)" \
		$(UV) pip install --quiet --python $(MUTANTS_VENV)/bin/python --no-deps --no-build-isolation --editable .
	@touch $(MUTANTS_READY)

$(CREW_READY): $(CREW_LOCK) | $(UV)
	$(SHOW) "Making $(CREW_VENV)" $(PYTHON) -m venv --clear --without-pip $(CREW_VENV)
	$(SHOW) "Installing CrewAI into $(CREW_VENV)" \
		$(UV) pip install --quiet --require-hashes --python $(CREW_VENV)/bin/python --requirements $(CREW_LOCK)
	@touch $(CREW_READY)

$(DOCS_READY): $(DOCS_LOCK) pyproject.toml | $(UV)
	$(SHOW) "Making $(DOCS_VENV)" $(PYTHON) -m venv --clear --without-pip $(DOCS_VENV)
	$(SHOW) "Installing what builds the documentation into $(DOCS_VENV)" \
		$(UV) pip install --quiet --require-hashes --python $(DOCS_VENV)/bin/python --requirements $(DOCS_LOCK)
	@touch $(DOCS_READY)
