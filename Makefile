# Every target builds what it needs in .venv, from the exact versions in constraints.txt.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
export PYTHONHASHSEED := 0
# Else every command of a test would compile the library again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all test-integrations check bench experiments figures docs clean

demo: $(VENV)/demo.stamp
	$(BIN)/dosimeter demo

# A ledger waits for the disk at every commit. Its tests need no disk where there is memory to write to.
MEMORY := $(shell test "$$(df -k --output=avail /dev/shm 2> /dev/null | tail -1)" -gt 2000000 2> /dev/null && \
	echo TMPDIR=/dev/shm)

# Each of two processes takes half of the tests in their order, so that what the tests of a file share is
# mostly made once; whoever is done first takes over some of the rest. One thread each: two would wait for
# the other process' turns.
PYTEST := $(MEMORY) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test: $(VENV)/test.stamp
	$(PYTEST)

test-all: $(VENV)/test.stamp
	$(PYTEST) -m "slow or not slow" --hypothesis-profile random

# A folder of tests/integrations with a requirements.txt has an environment of its own:
# `make test-integrations` runs all of them, `make test-integrations-NAME` one.
FOREIGN := $(patsubst tests/integrations/%/requirements.txt,%,$(wildcard tests/integrations/*/requirements.txt))

.PRECIOUS: .venvs/%.stamp
test-integrations: $(FOREIGN:%=test-integrations-%)

test-integrations-%: .venvs/%.stamp
	@! grep -q '^pyspark' tests/integrations/$*/requirements.txt || command -v java > /dev/null || \
		{ echo "test-integrations-$* runs Spark, which needs Java 17: on Debian, apt install openjdk-17-jre-headless"; exit 1; }
	INTEGRATION=$* .venvs/$*/bin/python -m pytest -m "slow or not slow" tests/integrations/$*

.venvs/%.stamp: tests/integrations/%/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venvs/$*
	.venvs/$*/bin/python -m pip --disable-pip-version-check install --quiet --requirement $< --editable .
	touch $@

check: $(VENV)/lint.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks

# What is finished is not run again. DATA, or DOSIMETER_DATA, says where CIFAR-10 is.
experiments: $(VENV)/experiments.stamp
	$(BIN)/python -m experiments.adaptive_filter.run $(if $(DATA),--data $(DATA))
	$(BIN)/python -m experiments.fine_tuning.run $(if $(DATA),--data $(DATA))
	$(BIN)/python -m experiments.from_scratch.run $(if $(DATA),--data $(DATA))
	$(PIP) --group no_tuning
	$(BIN)/python -m experiments.no_tuning
	$(MAKE) figures

figures: $(VENV)/experiments.stamp
	$(BIN)/python -m experiments.accounting.plot
	$(BIN)/python -m experiments.published_runs.plot
	$(BIN)/python -m experiments.adaptive_filter.plot
	$(BIN)/python -m experiments.fine_tuning.plot
	$(BIN)/python -m experiments.no_tuning.plot

# Links are checked: a page or an anchor that is not there fails the build. Search needs a server.
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "read them with: $(BIN)/python -m http.server --directory build/site 8000"

clean:
	rm -rf $(VENV) .venvs

$(VENV)/core.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip
	$(PIP) --group build
	$(PIP) --no-build-isolation --editable .
	touch $@

$(VENV)/%.stamp: $(VENV)/core.stamp
	$(PIP) --group $*
	touch $@

# mypy reads the types of torch.
$(VENV)/lint.stamp: $(VENV)/demo.stamp

# The tests also run the demo and the examples of the documentation.
$(VENV)/test.stamp: $(VENV)/demo.stamp
