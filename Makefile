# Every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test check e2e hops collector bench chaos endurance docs full clean

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.complete
export PATH := $(CURDIR)/$(BIN):$(PATH)

# torch is only needed as torchrun and on the CPU; the wheel of the default index brings 3 GB of CUDA with it.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

help:  ## This list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv with everything the other targets use
$(STAMP): pyproject.toml
	.ci/setup "$(PYTHON)" "$(VENV)" "$(TORCH_INDEX)"
	@touch $@

demo: $(STAMP)  ## The main job: real training on 5 processes, one run in TensorBoard, MLflow and W&B
	otel-ml demo

test: $(STAMP)  ## Unit, property, contract, integration, examples, packaging, every block of the docs
	python -m pytest -m "not e2e and not chaos" -n 2 --dist loadfile

check: $(STAMP)  ## ruff, mypy --strict, import-linter, typing as a user writes it, docs build
	ruff check .
	ruff format --check .
	mypy
	mypy tests/typing/api.py
	lint-imports
	mkdocs build --strict --quiet --site-dir build/site

collector:  ## The Collector of collector-config/: the one OTELCOL names, one on the PATH, or built with Go
	.ci/collector

e2e: $(STAMP)  ## Real processes to real backends, compared value by value with an oracle
	python -m pytest -m e2e tests/e2e

hops: $(STAMP) collector  ## The same through the real Collector, each hop killed; needs Go and npm
	.ci/clients
	python -m pytest -m e2e tests/collector

bench: $(STAMP)  ## Measure: cost of a call, throughput of the service
	python -m tests.benchmarks

chaos: $(STAMP) collector  ## Kill what can be killed, for minutes, and count that nothing is lost or doubled
	python -m tests.chaos --faults 200 --minutes 9
	python -m pytest -m chaos
	python -m tests.chaos.endurance --steps 20000

endurance: $(STAMP)  ## A million steps, and what the worker and the service hold at each twentieth; hours
	python -m tests.chaos.endurance --steps 1000000

docs: $(STAMP)  ## Read the documentation in a browser, rebuilt as you write
	mkdocs serve

full: demo test check e2e hops chaos bench  ## Everything there is

clean:  ## Remove what the other targets made, but not the runs
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
