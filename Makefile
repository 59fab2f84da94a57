# Every target does its own set-up: the environment is .venv, made from the hash-pinned lock.

PYTHON ?= python3
BIN := .venv/bin
# Some images forbid bytecode to be kept; then every process of every test compiles all it loads.
export PYTHONDONTWRITEBYTECODE =
STAMP := .venv/.installed
WEB := user_agent/web
NODE_MODULES := $(WEB)/node_modules/.package-lock.json

# Of the images: another base, BASE=name@sha256:…, with BUILDER=… if that has no pip, and options of
# `docker build`, BUILD=….
IMAGES = SHUFFLEDP_BASE="$(BASE)" SHUFFLEDP_BUILDER="$(BUILDER)" SHUFFLEDP_BUILD='$(BUILD)'
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header

.PHONY: help install web demo test test-all audit mutants containers-test images up up-scale up-two-shufflers down docs dist lint scale-test protos bench vectors reference figures lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

install: $(STAMP)  ## make the environment in .venv

$(STAMP): SHELL := bash
$(STAMP): .SHELLFLAGS := -o pipefail -c
# Warnings of pip are about this machine, such as its caches; those of retries are shown.
$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "shuffledp needs Python 3.11 or newer, and '$(PYTHON)' is not on the PATH: install it (Debian: apt install python3 python3-venv) or call make with PYTHON=/path/to/python3."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "shuffledp needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1): call make with PYTHON=/path/to/a/newer/python3."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "shuffledp needs Python's venv module: install it (Debian and Ubuntu: apt install python3-venv) and call make again."; exit 1; }
	@echo "Installing into .venv: a minute or two, longer on a busy machine; one line for each package."
	$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes --progress-bar off -r requirements.lock \
	    2> >(sed -e '/^WARNING: Retrying/b' -e '/^WARNING: /d' >&2) | sed -n -u -e 's/^Collecting \([^ ;]*\).*/  \1/p' -e 's/^Processing .*\/\([^/-]*\)-[^/]*$$/  \1/p' -e 's/^Installing collected packages.*/  installing them/p'
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

web: $(NODE_MODULES)  ## build the device in TypeScript again (needs Node 20 or newer)
	cd $(WEB) && npm run --silent build

$(NODE_MODULES): $(WEB)/package-lock.json
	cd $(WEB) && npm ci

demo: install  ## collect a real histogram privately, with local processes
	$(BIN)/shuffledp demo --open

test: install  ## everything that must hold (a few minutes)
	$(BIN)/python -m pytest -q -n logical --dist worksteal -m "not slow"

test-all: install  ## also the long suites
	$(BIN)/python -m pytest -q -n logical --dist worksteal

USERS ?= 200000
KILLS ?= 50
SEED ?= 1
scale-test: install  ## kill front-ends, PostgreSQL, engines, both shufflers and others at random (USERS=, KILLS=, SEED=)
	SHUFFLEDP_SCALE_USERS=$(USERS) SHUFFLEDP_SCALE_KILLS=$(KILLS) SHUFFLEDP_SCALE_SEED=$(SEED) \
	    $(BIN)/python -m pytest -q -s tests/scale

audit: install  ## simulate attacks by every coalition (20 seconds)
	@mkdir -p .audit
	$(BIN)/shuffledp audit --quick --output .audit/audit.json --html .audit/audit.html

containers-test: install  ## build the images, run the services in containers, kill each, collect
	$(IMAGES) $(BIN)/python -m pytest -q -s tests/containers

images: install  ## build an image for each party, and one for operators
	$(IMAGES) $(BIN)/python -m shuffledp.deploy.docker images

up: install  ## build, prepare and start the services in containers
	$(IMAGES) $(BIN)/python -m shuffledp.deploy.docker up

up-scale: install  ## the same with several front-ends, PostgreSQL and an engine for each party
	$(IMAGES) $(BIN)/python -m shuffledp.deploy.docker up --scale

up-two-shufflers: install  ## the same with a second shuffler that has its own authority
	$(IMAGES) $(BIN)/python -m shuffledp.deploy.docker up --two-shufflers

down: install  ## stop them; keys and state stay
	$(BIN)/python -m shuffledp.deploy.docker down

dist: install  ## make wheel, npm package, documents, images and their bill of materials in dist/
	rm -rf dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(IMAGES) sh deploy/docker/make_dist.sh dist

docs: install  ## build the site of documents in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: install  ## formatting, types, imports between folders, generated code up to date, links of documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m shuffledp.protos.compile --check
	@if command -v npm >/dev/null && $(MAKE) --silent $(NODE_MODULES); then cd $(WEB) && npm run --silent lint; \
	else echo "The TypeScript of $(WEB) is not checked: npm is not installed (Debian: apt install nodejs npm), or no registry is reachable." >&2; [ "$$SHUFFLEDP_REQUIRE_TOOLS" != 1 ]; fi
	@folder=$$(mktemp -d) && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir $$folder; status=$$?; rm -rf $$folder; exit $$status

protos: install  ## generate the protocol buffer code again
	$(BIN)/python -m shuffledp.protos.compile

vectors: install  ## make the test vectors again
	$(BIN)/python -m tests.vectors.make_hpke_vectors
	$(BIN)/python -m tests.vectors.make_placement_vectors
	$(BIN)/python -m tests.vectors.make_task_vectors
	$(BIN)/python -m tests.vectors.make_transcripts

reference: install  ## write the page of the functions for notebooks again
	$(BIN)/python -m docs.reference

figures: install  ## record the output of seeded commands again
	$(BIN)/python -m tests.support.recorded_commands

mutants: install  ## mutate the critical cores (hours; ONLY='*_3' for the third mutant of each function), apply the faults
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/mutmut run $(if $(ONLY),"$(ONLY)")
	$(BIN)/python -m pytest -q tests/mutation

bench: install  ## measured ratios, as JSON lines
	@$(BIN)/python -m pytest -q --no-header --benchmark-quiet -o python_files='bench_*.py' tests/benchmarks --deselect tests/benchmarks/bench_refinements.py

lock: install  ## pin every dependency again, with hashes
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) --extra research --extra scale --group dev pyproject.toml -o requirements.lock
	$(LOCK) --constraint requirements.lock pyproject.toml -o deploy/docker/operator.lock
	for party in shuffler analyzer issuer user_agent witness checking-witness publisher shuffler-scale analyzer-scale; do \
	    $(LOCK) --constraint requirements.lock --group pyproject.toml:$$party -o deploy/docker/$$party.lock || exit 1; \
	done

clean:  ## remove what make made
	rm -rf .venv dist site result.json result.html audit.json audit.html .audit
