# Every target builds what it needs in .venv, from the exact versions in constraints.txt.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
export PYTHONHASHSEED := 0

.PHONY: demo test test-all check bench clean

demo: $(VENV)/demo.stamp
	$(BIN)/dosimeter demo

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest --numprocesses 2

test-all: $(VENV)/test.stamp
	$(BIN)/python -m pytest --numprocesses 2 -m "slow or not slow"

check: $(VENV)/lint.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)

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
