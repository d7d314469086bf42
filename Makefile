# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
#
# Needs make, g++ and Python 3.11 or 3.12 with venv and headers; everything else is installed into $(VENV).

VENV ?= .venv
# Python to make $(VENV) with; empty: the first fitting one is looked for.
PYTHON ?=
# Package index to take torch from; empty: pip's own. PyTorch's index of CPU builds saves a gigabyte.
TORCH_INDEX ?=
# Where the policy runs in `make demo` and `make bench`. DEVICE=cuda also makes `make install` install what an NVIDIA
# GPU needs and compile the kernels for it.
DEVICE ?= cpu
# Further arguments for python -m flashrt_ros.demo, for pytest, for the benchmarks.
ARGS ?=

RUN := $(VENV)/bin/python
BOOTSTRAP = python=$$(tools/find_python.sh $(PYTHON)) && \
	"$$python" tools/bootstrap.py $(if $(PYTHON),--this-python) --torch-index '$(TORCH_INDEX)'

.DEFAULT_GOAL := help
.PHONY: help install demo test lint guards bench ci-extra clean distclean

help: ## this list
	@echo "make TARGET [VENV=.venv] [PYTHON=python3.12] [TORCH_INDEX=URL] [DEVICE=cpu] [ARGS=…]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' Makefile | expand -t 14

install: ## make the environment and build the package, if that is not done yet
	@$(if $(filter-out cpu cuda cuda:%,$(DEVICE)),$(error DEVICE=$(DEVICE): expected cpu, cuda, cuda:1, …))
	@$(BOOTSTRAP) --venv $(VENV)
	@$(if $(filter cuda%,$(DEVICE)),$(RUN) -m tools.install_cuda --torch-index '$(TORCH_INDEX)')

demo: ## a simulated robot driven by the policy node; ends by itself; writes demo_report/
	@echo "flashrt_ros: demo on $(DEVICE)"
	@$(MAKE) --no-print-directory install
	@$(RUN) -u -m flashrt_ros.demo --device $(DEVICE) $(ARGS)

lint: install ## formatter, linter, type checker
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

test: lint ## lint, then all tests
	$(RUN) -m pytest -n 2 -m "not serial" $(ARGS)
	$(if $(ARGS),,$(RUN) -m pytest -m serial)

guards: install ## switch off what each row of robot-behaviour relies on: its tests must fail. ARGS="R12 R20"
	$(RUN) -m test.guards $(ARGS)

bench: install ## measure, print a table, write benchmarks/results/
	$(RUN) -m benchmarks --device $(DEVICE) $(ARGS)

ci-extra: install ## the guards, ROS 2 Jazzy, colcon, the wheel in an empty environment, all kernels for all GPUs
	@.ci/extra $(VENV)

clean: ## remove what builds, tests and runs leave behind; keeps the environments
	rm -rf build install log dist demo_report replay_report .cache .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -rf *.egg-info flashrt_kernels/cuda/fatbin
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove the environments too
	rm -rf .venv .venv-jazzy .venv-colcon .venv-wheel .venv-kernels .venv-python3.*
