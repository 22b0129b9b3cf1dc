# Two commands are all a newcomer needs: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Every Spark process must run this interpreter, or its workers cannot import the package.
export PYSPARK_PYTHON        := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
export SPARK_LOCAL_IP        := 127.0.0.1

.PHONY: help demo test test-source check format bench clean java jars

help:
	@echo "make demo    a real RocketMQ on this machine, messages in and out"
	@echo "make test    formatter, linter, types and all tests (needs no running RocketMQ)"
	@echo "make test-source  all tests of the Spark source, some minutes more"
	@echo "make check   formatter, linter and types only"
	@echo "make format  let the formatter and the linter mend what they can"
	@echo "make bench   how fast we read and write, side by side with the Java client, and how fast we plan"
	@echo "make clean   remove the virtual environment and caches"

demo: jars
	@$(BIN)/rocketmq-spark demo

test: check
	@$(BIN)/rocketmq-spark jars --version 5.5.0 --version 4.9.7
	@$(BIN)/python -m pytest

test-source: jars
	@$(BIN)/python -m pytest -m "" tests/spark tests/examples

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
	@$(BIN)/python tests/bench/plan_bench.py

jars: $(READY)
	@$(BIN)/rocketmq-spark jars

# Java and Python are looked at before anything is downloaded.
java:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else \
	  "rocketmq-spark needs Python 3.10 or newer and found " + sys.version.split()[0] + "; name one with make PYTHON=python3.x")'
	@$(PYTHON) -m rocketmq_spark.local_cluster.java

$(READY): setup.cfg pyproject.toml | java
	@echo "Setting up .venv: the first time takes two or three minutes"
	@$(PYTHON) -m venv $(VENV) || { echo "Cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
