# Two commands are all a newcomer needs: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The oldest Spark that the source promises to work with, and what Spark Connect needs besides.
OLDEST := .venv-compat
OLDEST_READY  := $(OLDEST)/.ready
CONNECT_READY := $(VENV)/.ready-connect
INSTALL := -m pip install --disable-pip-version-check --progress-bar on --config-settings editable_mode=compat
# Every Spark process must run this interpreter, or its workers cannot import the package.
export PYSPARK_PYTHON        := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
export SPARK_LOCAL_IP        := 127.0.0.1

.PHONY: help demo test test-source test-compat check format bench bench-plan clean jars

# Python and Java are looked at before anything is downloaded, and here rather than in a recipe: when a
# recipe fails, make adds words of its own and ends with 2. With --question it runs none, says nothing
# and ends with 1, so all that is said is the one sentence of the check.
define FIT
command -v $(PYTHON) >/dev/null \
  || { echo "No $(PYTHON) on PATH: install Python 3.10 or newer, or name one with make PYTHON=python3.x." >&2; exit; }; \
$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "Python " + sys.version.split()[0] \
  + " is too old: install Python 3.10 or newer, or name one with make PYTHON=python3.x.")' \
  && $(if $(JAVA_HOME),JAVA_HOME='$(JAVA_HOME)') $(PYTHON) -m rocketmq_spark.local_cluster.java && echo fit
endef
ifneq ($(filter-out help clean,$(MAKECMDGOALS)),)
ifneq ($(shell $(FIT)),fit)
MAKEFLAGS += --question
endif
endif

help:
	@echo "make demo    a real RocketMQ and Spark on this machine: orders are counted under change"
	@echo "make test    formatter, linter, types and the tests (needs no running RocketMQ)"
	@echo "make test-source  all tests that start Spark, also those that take minutes"
	@echo "make test-compat  a part of them on Spark 4.0, and through Spark Connect"
	@echo "make check   formatter, linter and types only"
	@echo "make format  let the formatter and the linter mend what they can"
	@echo "make bench   how fast we read, write and stream, beside the Java client, and how fast we plan"
	@echo "make bench-plan   how the work of planning grows, in instructions (needs valgrind, 15 minutes)"
	@echo "make clean   remove the virtual environment and caches"

demo: jars
	@$(BIN)/rocketmq-spark demo

test: check
	@$(BIN)/rocketmq-spark jars --version 5.5.0 --version 4.9.7
	@$(BIN)/python -m pytest -n 2 --dist loadfile

test-source: jars
	@$(BIN)/python -m pytest -m "" tests/spark tests/examples tests/cli/test_demo.py

# Spark 4.0 leaves sockets of its own to the garbage collector, which warns of them.
test-compat: jars $(OLDEST_READY) $(CONNECT_READY)
	@echo "Spark 4.0"
	@PYSPARK_PYTHON=$(CURDIR)/$(OLDEST)/bin/python PYSPARK_DRIVER_PYTHON=$(CURDIR)/$(OLDEST)/bin/python \
	  $(OLDEST)/bin/python -m pytest -m compat tests/spark -W ignore::pytest.PytestUnraisableExceptionWarning
	@echo "Spark Connect"
	@$(BIN)/python -m pytest -m compat tests/spark --connect

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: jars
	@$(BIN)/python -m tests.bench.read_bench
	@$(BIN)/python -m tests.bench.sink_bench
	@$(BIN)/python -m tests.bench.stream_bench
	@$(BIN)/python tests/bench/plan_bench.py

bench-plan: $(READY)
	@$(BIN)/python tests/bench/plan_instructions.py

jars: $(READY)
	@$(BIN)/rocketmq-spark jars

$(READY): setup.cfg pyproject.toml
	@echo "Setting up .venv: the first time takes two or three minutes"
	@$(PYTHON) -m venv $(VENV) || { echo "Cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(BIN)/python $(INSTALL) -e '.[dev]'
	@touch $@

$(CONNECT_READY): $(READY)
	@echo "Adding what Spark Connect needs"
	@$(BIN)/python $(INSTALL) -e '.[dev,connect]'
	@touch $@

$(OLDEST_READY): setup.cfg pyproject.toml
	@echo "Setting up $(OLDEST) with Spark 4.0: the first time takes two or three minutes"
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python $(INSTALL) -e '.[dev]' 'pyspark==4.0.*'
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
