# Everything from a clone, with nothing but Python >= 3.10 and make. Environments are made on first use.
#   make demo    real veRL agent loops under autotrace-run into a local MLflow store, shown as trees
#   make test    the test suite            make e2e    a whole GRPO step with a real engine
#   make check   linter and types          make wheel  dist/
VENV ?= .venv
E2E_VENV ?= .venv-e2e
PYTEST ?= -q

.PHONY: demo test e2e check wheel clean environment
.DEFAULT_GOAL := demo

environment:
	@./tools/venv.sh $(VENV)

demo: environment
	@PATH="$(abspath $(VENV))/bin:$$PATH" ./examples/demo.sh

test: environment
	$(VENV)/bin/python -m pytest $(PYTEST) --ignore tests/e2e tests

e2e:
	./tests/e2e/setup.sh $(E2E_VENV)
	VENV=$(E2E_VENV) $(E2E_VENV)/bin/python -m pytest $(PYTEST) tests/e2e

check: environment
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

wheel: environment
	$(VENV)/bin/python -m uv build --out-dir dist .

clean:
	rm -rf $(VENV) $(E2E_VENV) dist .pytest_cache .mypy_cache .ruff_cache
