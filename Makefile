# Every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test integration check e2e collector kubernetes traces browser launchers bench gpu wheels chaos night races endurance fuzz mutants audit dist docs full clean

PYTHON ?= python3
SEED   ?= 1
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.complete
NATIVE := $(VENV)/.compiled
export PATH := $(CURDIR)/$(BIN):$(PATH)
# The tests start hundreds of processes: each of them would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

# torch is only needed as torchrun and on the CPU; the wheel of the default index brings 3 GB of CUDA with it.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# A test that hangs in its own clean-up has outlived its timeout: then its stack is printed and its process ends.
STACK_AFTER := -o faulthandler_exit_on_timeout=true -o faulthandler_timeout

PYTEST := python -m pytest -m "not e2e and not chaos and not browser and not launchers and not full and not gpu" \
	-n 4 --dist loadfile --no-loadscope-reorder $(STACK_AFTER)=400
JOBS := $(addprefix tests/,integration examples frameworks packaging upgrade benchmarks mutants contract \
	docs/test_blocks.py unit/otel_ml/launches \
	$(addprefix unit/otel_ml_service/cli/test_,$(addsuffix _command.py,serve doctor replay recover gc open) long_work.py) \
	$(addprefix unit/otel_ml/compat/,$(addprefix test_,$(addsuffix .py,frameworks mlflow_runs mlflow_refused verl wandb)) \
	itwinai/test_contexts.py) \
	$(addprefix security/test_,$(addsuffix .py,files secrets shared_folder)) unit/test_originals.py)

help:  ## This list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(NATIVE)  ## Make .venv with everything the other targets use
$(STAMP): pyproject.toml
	.ci/setup "$(PYTHON)" "$(VENV)" "$(TORCH_INDEX)"
	@touch $@
# Where it cannot be compiled everything is Python: each target then says why, and goes on.
$(NATIVE): $(STAMP) hatch_build.py $(wildcard native/*)
	python hatch_build.py && touch $@ || rm -f $@

demo: $(NATIVE)  ## The main job: real training on 5 processes, one run in TensorBoard, MLflow and W&B
	otel-ml demo

test: $(NATIVE)  ## Unit, property, security: what needs no job of its own
	$(PYTEST) $(JOBS:%=--ignore=%)

integration: $(NATIVE)  ## Tests that start jobs: integration, exporters under kills, examples, packaging, every block of the docs
	$(PYTEST) $(JOBS)

races: $(NATIVE)  ## Both of these while every thread is late at random; SEED=2 is another chance
	PYTHONPATH=$(CURDIR)/tests/lagging LAG_SEED=$(SEED) $(PYTEST)

check: $(NATIVE)  ## ruff, mypy --strict, import-linter, typing as a user writes it, C without warnings, docs build
	ruff check .
	ruff format --check .
	mypy
	mypy tests/typing/api.py hatch_build.py
	pyright tests/typing/api.py
	python -m tests.typing.complete
	python -m tests.docs.english
	CFLAGS=-Werror python hatch_build.py
	lint-imports
	mkdocs build --strict --quiet --site-dir build/site

collector:  ## The Collector of collector-config/: the one OTELCOL names, one on the PATH, or built with Go
	.ci/collector

e2e: $(NATIVE) collector  ## Real processes, the real Collector, real backends, compared value by value; needs npm
	.ci/clients
	python -m pytest -m "e2e and not full" tests/collector tests/e2e -n 2 --dist loadfile --no-loadscope-reorder --durations=20 $(STACK_AFTER)=1000

kubernetes: $(NATIVE)  ## The chart and the examples of deploy/, the rules of monitoring/: helm, kubeconform and promtool; needs Go once
	.ci/kubernetes
	python -m pytest -m full tests/deployment tests/integration/test_monitoring.py

traces: $(NATIVE)  ## Spans of a job in a real Jaeger, and otel-ml trace in Perfetto's trace_processor; needs Go once and npm
	.ci/jaeger
	.ci/trace-processor
	python -m pytest -m full tests/traces

browser: $(NATIVE)  ## TensorBoard, MLflow and the documentation in Chromium; pictures in build/screenshots
	.ci/browser
	python -m pytest -m browser tests/browser

launchers: $(NATIVE)  ## SLURM, Open MPI, MPICH, torchrun, Ray, submitit, Dask, Hydra: a run for each start; needs root and apt-get
	.ci/launchers
	python -m tests.launchers --write

bench: $(NATIVE)  ## Measure everything, compare, and write docs/performance.md: 20 minutes; BENCH=--quick: 3
	python -m tests.benchmarks --write $(BENCH)

gpu:  ## Test and measure on a GPU, 10 minutes, no setup: any PYTHON with torch, GPU_WHEELS=folder where there is no network
	$(PYTHON) .ci/gpu $(if $(GPU_WHEELS),--wheels $(GPU_WHEELS)) $(GPU_OPTIONS)
wheels:  ## What `make gpu` needs where there is no network, into GPU_WHEELS (build/wheels), for Python GPU_PYTHON (3.12)
	$(PYTHON) .ci/gpu --fetch $(or $(GPU_WHEELS),build/wheels) --python $(or $(GPU_PYTHON),3.12)

chaos: $(NATIVE) collector  ## Disturb a job in 200 ways within 10 minutes; nothing may be lost or doubled
	python -m tests.chaos --faults 200 --minutes 9
night: $(NATIVE) collector  ## The same for ten hours, and every kill with ten seeds
	python -m tests.chaos --minutes 600
	python -m pytest -m chaos -n 2 -rP

endurance: $(NATIVE)  ## A million steps, and what the worker and the service hold at each twentieth; a quarter of an hour
	python -m tests.chaos.endurance --steps 1000000

fuzz: $(NATIVE)  ## Every decoder of foreign bytes, coverage-guided, FUZZ_SECONDS (20) each; findings in build/fuzz
	.ci/install fuzz
	python -m tests.fuzz

mutants: $(NATIVE)  ## Small mistakes in the product that no test notices: a sample; MUTANTS=all, a package, or a file
	.ci/install mutants
	python -m tests.mutants $(MUTANTS)

audit: $(NATIVE)  ## Known vulnerabilities in what the package brings; exits with 2 where nobody can be asked
	.ci/install audit
	python .ci/audit

dist: $(NATIVE)  ## What an index gets, in dist/: sdist, pure wheel, manylinux wheels for the DIST_PYTHONS that are here
	.ci/install dist
	python .ci/dist

docs: $(NATIVE)  ## Read the documentation in a browser, rebuilt as you write
	mkdocs serve

full: demo test integration check e2e kubernetes traces browser chaos  ## Everything there is but the measurements
	.ci/install dist
	python -m pytest -m full --durations=20 tests

clean:  ## Remove what the other targets made, but not the runs
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis otel_ml/*.so
