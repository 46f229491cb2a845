# Two commands matter: `make lab` shows the product on this machine, `make test` proves it. Both do all their set-up.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first interpreter that runs and is new enough; a name on PATH may be a shim of one that is not there.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
BIN := .venv/bin
UVFLAGS := --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet

.PHONY: help venv lab lab-down kernels kernels-nightly test test-all faults lint lock bench-restart

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

.venv/done: requirements/bootstrap.lock requirements/dev.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer on PATH: install one, or make PYTHON=/path/to/it"; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "installing python3-venv"; apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null; }
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/bootstrap.lock
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

venv: .venv/done ## the controller's venv, for running playbooks by hand

lab: .venv/done ## a real systemd machine in a box, the real engine on its CPU, a question answered through the pair
	@$(BIN)/python -m lab.tour

lab-down: .venv/done ## take the lab machine down and leave nothing behind
	@$(BIN)/python -m lab down

lint: .venv/done ## ruff, mypy --strict, yamllint, ansible-lint: no skip lists
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/yamllint --strict .
	ANSIBLE_INVENTORY=inventory/example.yml $(BIN)/ansible-lint --offline --strict

.venv-kernels/done: .venv/done requirements/kernels.lock kernels/pyproject.toml
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-kernels
	@$(BIN)/uv pip sync --quiet --python .venv-kernels/bin/python --require-hashes requirements/kernels.lock
	@command -v nvcc >/dev/null || $(BIN)/uv pip install --quiet --python .venv-kernels/bin/python --require-hashes -r requirements/nvcc.lock
	@$(BIN)/uv pip install --quiet --python .venv-kernels/bin/python --no-deps --editable kernels
	@touch $@

kernels: .venv-kernels/done ## tests (Triton's interpreter, SGLang's own wheel) and compile gates of kernels/, without a GPU
	cd kernels && TRITON_INTERPRET=1 ../.venv-kernels/bin/python -m pytest -q -n 2
	@set -e; for gate in $(wildcard kernels/gates/*_gate.py); do echo $$gate; .venv-kernels/bin/python $$gate; done

kernels-nightly: .venv-kernels/done ## more rows, planted races, and planted defects that must turn the kernels' tests red
	cd kernels && TRITON_INTERPRET=1 ../.venv-kernels/bin/python -m pytest -q -n 2 nightly
	.venv-kernels/bin/python kernels/gates/ptx_gate.py planted
	.venv-kernels/bin/python kernels/gates/mutate.py

test: .venv/done lint ## everything CI runs: lint, unit, module, style, render, kernels, lab, host (doubles), e2e (real engines)
	$(BIN)/pytest -q -n 2 tests/unit tests/module tests/style
	$(BIN)/pytest -q tests/double tests/render
	@$(MAKE) kernels
	$(BIN)/pytest -q -n 3 --dist worksteal tests/lab tests/host
	$(BIN)/pytest -q tests/e2e

test-all: test faults kernels-nightly ## and what takes too long for CI: the fault matrix, the kernels' defects

faults: .venv/done ## the fault matrix: every fault on a booted machine of its own, and on the real engines
	$(BIN)/pytest -q -n 3 --dist worksteal tests/faults --ignore-glob 'tests/faults/test_faults_real*'
	$(BIN)/pytest -q tests/faults/test_faults_real*.py

bench-restart: .venv/done ## measure what a co-restart costs (30 min, the machine to itself); results in bench/results/
	$(BIN)/python -m bench.restart gate
	$(BIN)/python -m bench.restart outage
	$(BIN)/python -m bench.restart real
	$(BIN)/python -m bench.crash --out bench/results/crash.json
	$(BIN)/python -m bench.table

lock: .venv/done ## resolve every lock file anew from its .in file
	cd requirements && for name in bootstrap dev ops router double nvcc; do ../$(BIN)/uv pip compile $(UVFLAGS) $$name.in -o $$name.lock; done
	cd requirements && for name in engine-cuda engine-cpu; do ../$(BIN)/uv pip compile $(UVFLAGS) --excludes $$name.excludes $$name.in -o $$name.lock; done
	cd requirements && ../$(BIN)/uv pip compile $(UVFLAGS) --excludes engine-cpu.excludes kernels.in -o kernels.lock
