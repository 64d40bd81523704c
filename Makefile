# The whole interface of a developer: setup, check, test, e2e, bench, soak, docs. A user's: quickstart.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.setup-stamp

.PHONY: help quickstart setup check format test e2e bench soak docs clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

setup: $(STAMP) ## a virtual environment with everything, in .venv

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "benchmax needs Python 3.11, 3.12 or 3.13; set PYTHON=/path/to/one"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[data,train,platform,dev]'
	@touch $@

quickstart: RUN := quickstart-$(shell date +%Y%m%d-%H%M%S)
quickstart: setup ## train a real model on the arithmetic environment, in minutes, on the CPU
	$(BIN)/benchmax models pull smollm2-135m
	$(BIN)/benchmax validate arithmetic
	$(BIN)/benchmax train --config examples/quickstart.toml --output.name $(RUN)
	$(BIN)/benchmax plot runs/$(RUN) runs/$(RUN)/reward.png

check: setup ## format, lint, types, import layers
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite files the way check wants them
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/ruff check --fix .

test: check ## everything that proves the code, in minutes
	$(BIN)/pytest -m 'not slow and not gpu'

e2e: setup ## the commands a newcomer types, as a newcomer types them
	$(BIN)/pytest tests/e2e

bench: setup ## every number in the documents
	$(BIN)/python benchmarks/rollouts.py
	$(BIN)/python benchmarks/engine.py --model "$$($(BIN)/benchmax models path smollm2-135m)" --device cpu --batches 1,8,64 --compare-generate
	$(BIN)/python benchmarks/trainer.py --seeds 3
	$(BIN)/python benchmarks/results.py

soak: setup ## load and fault tests that take long
	$(BIN)/pytest -m 'slow and not gpu' --timeout 3600

docs: setup ## run every code block in the documents
	$(BIN)/pytest tests/docs

clean: ## remove what was made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
