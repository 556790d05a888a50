# Every target sets up what it needs by itself, in seven environments:
#   .venv        the library (editable) and the tools that test, check and document it, added when needed
#   .venv-sdk    the official SDK: the real agents that tests and benchmarks talk to on loopback
#   .venv-sdk03  the last official SDK of protocol 0.3: a real agent and the client, for tests
#   .venv-ag2    AG2 on the newest SDK: a real agent that calls the tests' tools, and AG2's client
#   .venv-adk    Google ADK on the newest SDK: its client, for tests
#   .venv-oauth  django-oauth-toolkit: a real authorization server, for tests
#   .venv-celery Celery and a Redis server: a task queue, for tests
# with uv where it is on PATH, else with venv and pip. A stamp inside the environment records each
# step, so that a second run installs nothing; a change of pyproject.toml or of the pins, another
# interpreter or another installer installs again.

PYTHON ?= python3
VENV := .venv
SDK_VENV := .venv-sdk
SDK03_VENV := .venv-sdk03
AG2_VENV := .venv-ag2
ADK_VENV := .venv-adk
OAUTH_VENV := .venv-oauth
CELERY_VENV := .venv-celery
BIN := $(VENV)/bin

# A uv too old to know dependency groups counts as none.
UV := $(shell (uv pip install --help 2>/dev/null | grep -q -e '--group') && echo uv)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# The stamp of an empty environment.
MADE = .made-by-$(or $(UV),pip)-$(VERSION)

# More arguments for the program behind demo, test, bench, compare and outage: make test ARGS='-k retry'
ARGS ?=

# Where the tests and benchmarks find the real agents, and the tests other people's clients.
export HOLDFAST_SDK_PYTHON := $(CURDIR)/$(SDK_VENV)/bin/python
export HOLDFAST_SDK03_PYTHON := $(CURDIR)/$(SDK03_VENV)/bin/python
export HOLDFAST_AG2_PYTHON := $(CURDIR)/$(AG2_VENV)/bin/python
export HOLDFAST_ADK_PYTHON := $(CURDIR)/$(ADK_VENV)/bin/python
export HOLDFAST_OAUTH_PYTHON := $(CURDIR)/$(OAUTH_VENV)/bin/python
export HOLDFAST_CELERY_PYTHON := $(CURDIR)/$(CELERY_VENV)/bin/python
# Pyright runs on the node that comes from the package index, and looks for no newer version.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start some hundred processes, of which none should compile again what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test thorough soak environment agents check check-style check-mypy check-pyright check-imports check-words docs bench compare outage format clean

help: ## list the targets (the default)
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

# AGENT, from the command line or the environment, reaches the script in its environment.
demo: $(VENV)/.library ## watch calls survive a failing agent; AGENT=<url> makes it yours
	$(BIN)/python examples/demo.py $(ARGS)

# A file is run by one process, which may share a server; tests/conftest.py says which come first.
TOGETHER := -n auto --dist loadfile --no-loadscope-reorder

test: $(VENV)/.test agents ## run every test
	$(BIN)/python -m pytest $(TOGETHER) $(ARGS)

# ROUNDS=<number>, SEED=<where they begin> and TOGETHER=<how many at once> reach it in its environment.
soak: $(VENV)/.test ## kill client processes for long: no message executed twice, no call lost
	$(BIN)/python -m tests.soak $(ARGS)

thorough: $(VENV)/.test agents ## run every test with more rounds of what is random
	HOLDFAST_THOROUGH=1 $(BIN)/python -m pytest $(TOGETHER) $(ARGS)

# What the others are installed with.
environment: $(VENV)/$(MADE)

# make -j4 agents sets all of them up at once.
agents: $(SDK_VENV)/.sdk $(SDK03_VENV)/.sdk $(AG2_VENV)/.sdk $(ADK_VENV)/.sdk $(OAUTH_VENV)/.sdk $(CELERY_VENV)/.sdk ## set up the real agents, and other people's clients, for the tests

docs: $(VENV)/.docs ## build the documentation into site/, without the network
	rm -rf site
	$(BIN)/sphinx-build --builder html --fresh-env --doctree-dir build/doctrees \
		--fail-on-warning --keep-going --quiet docs site
	find site -type d -empty -delete
	@echo "see site/index.html"

# The groups whose packages may be imported there; DEP002 is about packages that nothing imports.
IGNORED := --no-ansi --ignore DEP002 --known-first-party holdfast
TESTS_IMPORT := $(IGNORED) --known-first-party tests --known-first-party benchmarks \
	--extend-exclude tests/agents --extend-exclude benchmarks/ag2_caller \
	--non-dev-dependency-groups test
AGENTS_IMPORT := $(IGNORED) --non-dev-dependency-groups sdk,sdk03,ag2,adk,oauth-server,celery

# make -j2 check does two at once.
check: check-style check-mypy check-pyright check-imports check-words docs ## run the linters, the type checkers and the import contracts, and build the documentation

check-style: $(VENV)/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check-mypy: $(VENV)/.lint
	$(BIN)/mypy

check-pyright: $(VENV)/.lint
	$(BIN)/pyright --pythonpath $(BIN)/python

check-imports: $(VENV)/.lint
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry src
	$(BIN)/deptry tests benchmarks examples $(TESTS_IMPORT)
	$(BIN)/deptry tests/agents $(AGENTS_IMPORT)

check-words: $(VENV)/.test
	$(BIN)/python -m tests.glossary

bench: $(VENV)/.test $(SDK_VENV)/.sdk ## run the benchmarks and print their figures
	$(BIN)/python benchmarks/run.py $(ARGS)
	$(BIN)/python benchmarks/walk.py
	$(BIN)/python benchmarks/duplicates.py
	$(BIN)/python benchmarks/journal_cost.py
	$(BIN)/python benchmarks/journals.py
	$(BIN)/python benchmarks/shared_runs.py
	$(BIN)/python benchmarks/fan_out.py
	$(BIN)/python benchmarks/dead_agent.py
	$(BIN)/python benchmarks/hedging.py
	$(BIN)/python benchmarks/telemetry.py
	$(BIN)/python benchmarks/command_line.py

# The callers on the SDK run in .venv, those on AG2 in an environment of its own.
compare: $(VENV)/.test $(SDK_VENV)/.sdk $(AG2_VENV)/.sdk ## put clients side by side through the same faults; ARGS='--calls 5' for a glance
	$(BIN)/python benchmarks/side_by_side.py $(ARGS)

# A quarter of an hour on two cores. ARGS='--curves docs/pictures/outage_curves.json' is for the page's picture.
outage: $(VENV)/.library ## print what outages cost; ARGS='--seeds 2' for a glance
	$(BIN)/python benchmarks/outage.py $(ARGS)

format: $(VENV)/.lint ## sort imports, apply safe fixes and format the code
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

clean: ## remove the environments and everything else that can be made again
	rm -rf $(VENV) $(SDK_VENV) $(SDK03_VENV) $(AG2_VENV) $(ADK_VENV) $(OAUTH_VENV) $(CELERY_VENV) build dist site .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# --- environments -----------------------------------------------------------------------------

# $(call create,directory): an empty environment. pip before 25.1 knows no dependency groups, so .venv
# gets a newer one, which installs into all of them.
define create
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "holdfast needs Python 3.11 or newer; '$(PYTHON)' is $(or $(VERSION),not there). Name one: make PYTHON=python3.12" >&2; exit 1; }
@echo "making $(1) with Python $(VERSION) and $(or $(UV),pip)"
@rm -rf $(1)
@$(if $(UV),\
	uv venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(1),\
	$(PYTHON) -m venv $(if $(filter-out $(VENV),$(1)),--without-pip) $(1))
@$(if $(UV)$(filter-out $(VENV),$(1)),,\
	$(1)/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip)
endef

# $(call install,directory,constraints,what)
define install
@echo "installing $(3) in $(1)"
@$(if $(UV),uv pip install --python $(1)/bin/python,$(BIN)/python -m pip --python $(1)/bin/python install) \
	--quiet --constraint $(2) $(3)
@touch $@
endef

$(VENV)/$(MADE):
	$(call create,$(VENV))
	@touch $@

$(VENV)/.library: $(VENV)/$(MADE) pyproject.toml constraints.txt
	$(call install,$(VENV),constraints.txt,--editable '.[cli]')

$(VENV)/.test: $(VENV)/.library
	$(call install,$(VENV),constraints.txt,--editable '.[all]' --group test)

$(VENV)/.lint: $(VENV)/.test
	$(call install,$(VENV),constraints.txt,--group lint)

# The reference is made from the modules themselves, those of all extras.
$(VENV)/.docs: $(VENV)/.test
	$(call install,$(VENV),constraints.txt,--group docs)

# Two installations at once would write to one environment.
ifneq ($(filter check,$(MAKECMDGOALS)),)
$(VENV)/.docs: | $(VENV)/.lint
endif

# Most of what these bring is never imported, and compiling it takes half of the time.
LAZILY := $(if $(UV),,--no-compile)

$(SDK_VENV)/$(MADE): $(VENV)/$(MADE)
	$(call create,$(SDK_VENV))
	@touch $@

$(SDK_VENV)/.sdk: $(SDK_VENV)/$(MADE) pyproject.toml constraints-sdk.txt
	$(call install,$(SDK_VENV),constraints-sdk.txt,$(LAZILY) --group sdk)

$(SDK03_VENV)/$(MADE): $(VENV)/$(MADE)
	$(call create,$(SDK03_VENV))
	@touch $@

$(SDK03_VENV)/.sdk: $(SDK03_VENV)/$(MADE) pyproject.toml constraints-sdk03.txt
	$(call install,$(SDK03_VENV),constraints-sdk03.txt,$(LAZILY) --group sdk03)

$(AG2_VENV)/$(MADE): $(VENV)/$(MADE)
	$(call create,$(AG2_VENV))
	@touch $@

$(AG2_VENV)/.sdk: $(AG2_VENV)/$(MADE) pyproject.toml constraints-ag2.txt
	$(call install,$(AG2_VENV),constraints-ag2.txt,$(LAZILY) --group ag2)

$(ADK_VENV)/$(MADE): $(VENV)/$(MADE)
	$(call create,$(ADK_VENV))
	@touch $@

$(ADK_VENV)/.sdk: $(ADK_VENV)/$(MADE) pyproject.toml constraints-adk.txt
	$(call install,$(ADK_VENV),constraints-adk.txt,$(LAZILY) --group adk)

$(OAUTH_VENV)/$(MADE): $(VENV)/$(MADE)
	$(call create,$(OAUTH_VENV))
	@touch $@

$(OAUTH_VENV)/.sdk: $(OAUTH_VENV)/$(MADE) pyproject.toml constraints-oauth.txt
	$(call install,$(OAUTH_VENV),constraints-oauth.txt,$(LAZILY) --group oauth-server)

$(CELERY_VENV)/$(MADE): $(VENV)/$(MADE)
	$(call create,$(CELERY_VENV))
	@touch $@

$(CELERY_VENV)/.sdk: $(CELERY_VENV)/$(MADE) pyproject.toml constraints-celery.txt
	$(call install,$(CELERY_VENV),constraints-celery.txt,$(LAZILY) --group celery)
