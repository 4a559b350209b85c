# What you need beforehand: Python 3.11 or newer and make; Java 17 or newer for everything that runs Spark.
# Each target sets up .venv by itself, once: again only when requirements.lock or pyproject.toml change.

VENV := .venv
INSTALLED := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK = 1
RUN := PYTHONPATH=. $(VENV)/bin/python
PYTEST := $(VENV)/bin/python -m pytest
TEST_ARGS ?=
SEEDS ?= 1000

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint bench faults test-kafka clean java

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: java $(INSTALLED) ## Spark writes a topic, the broker dies and comes back, Spark reads every row
	@$(RUN) -m pylog.demo --peer-jars "$$($(RUN) -m tests.support.jars --spark-kafka)"

test: java $(INSTALLED) ## all tests, on our own broker (TEST_ARGS="-k name" to choose)
	$(PYTEST) $(TEST_ARGS)

lint: $(INSTALLED) ## style, formatting and types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

bench: java $(INSTALLED) ## pylog beside its peers, measured in one run
	$(RUN) -m benchmarks $(BENCH_ARGS)

faults: $(INSTALLED) ## only the tests that break things, with more rounds and a thousand seeds
	PYLOG_FAULT_ROUNDS=20 PYLOG_FAULT_SEEDS=$(SEEDS) $(PYTEST) -m faults $(TEST_ARGS)

test-kafka: java $(INSTALLED) ## against a real Apache Kafka: the connector, and data directories both ways
	$(RUN) -m tests.support.jars
	$(PYTEST) --broker=kafka $(TEST_ARGS)

clean: ## remove all that these targets made, .venv and fetched jars included
	rm -rf $(VENV) .cache build dist artifacts spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Listed first by the targets that need it, so that it speaks before anything is installed. The same choice as Spark's.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1); \
	if [ "$${version:-0}" -lt 17 ]; then \
	  echo "This needs Java 17 or newer; '$$java' is $${version:+version }$${version:-not there}." >&2; \
	  echo "Install a JDK, e.g. 'apt install openjdk-17-jre-headless' or 'brew install openjdk@17'," >&2; \
	  echo "then put its java on PATH or set JAVA_HOME." >&2; \
	  exit 1; \
	fi

$(INSTALLED): requirements.lock pyproject.toml
	@set -e; \
	if ! $(VENV)/bin/python -c '' 2>/dev/null; then \
	  for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python; do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && found=$$python && break; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "This needs Python 3.11 or newer: install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	  fi; \
	  echo "Setting up $(VENV) with $$("$$found" --version) ..."; \
	  "$$found" -m venv --clear $(VENV) || { \
	    echo "Python cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; \
	fi; \
	echo "Installing what requirements.lock names (a few minutes the first time) ..."; \
	$(VENV)/bin/python -m pip install --quiet -r requirements.lock; \
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .; \
	$(VENV)/bin/python -m pylog.storage.kernels
	@touch $@
