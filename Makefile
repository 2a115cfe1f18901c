# Everything from a clone, with nothing but Python >= 3.10 and make. Environments are made on first use.
#   make demo      real veRL agent loops under autotrace-run into a local MLflow store, shown as trees
#   make test      the test suite                  make e2e    a whole GRPO step with a real engine
#   make check     linter and types                make wheel  dist/
# Longer ones, each an environment or a machine of its own:
#   make engines   vLLM and SGLang on the CPU      make packs      every list against every supported release
#   make backends  W&B's own server, MLflow, OTLP  make multinode  two Ray nodes in network namespaces (root)
#   make faults    every fault, and what it cost  make bench      every budget beside the peers (20 minutes)
#   make ray-versions  actors on old and new Ray   make host-suites  other packages' own tests, with all of them wrapped
#   make verl-releases  the agent loop of every veRL since 0.5     make docs    the pages, into site/
#   make pythons   what wraps and records, on other Pythons (PYTHONS=...)
VENV ?= .venv
E2E_VENV ?= .venv-e2e
SGLANG_VENV ?= .venv-sglang
WEAVE_SERVER ?= .venv-weave-server
WEAVE_CLIENT ?= .venv-weave-client
PACKS_CACHE ?= .packs-cache
BENCH_VENV ?= .venv-bench
BENCH ?= --results
PYTEST ?= -q
PYTHONS ?= python3.10 python3.12 python3.13
HOOKS = tests/conformance tests/faults
SHIPPING = tests/ship tests/sinks tests/cli
# what runs in an environment of its own
APART = $(addprefix --ignore=tests/,e2e engines multinode weave_server backends host torch)

# the table of the backends, printed a line a row; VERL_TABLE=0.8.0 runs the part of it about that release
TABLE = $(addprefix tests/,backends weave_server sinks secrets verl/test_late_facts.py verl/test_extension_points.py \
    ship/test_choice.py ship/test_keep.py ship/test_decode.py ship/test_into_mlflow.py record/test_sampling.py \
    cli/test_compare.py)

.PHONY: demo test test-hooks test-shipping test-rest e2e check wheel clean environment engines engines-vllm engines-sglang \
    packs backends multinode ray-versions host-suites faults bench bench-short verl-releases docs pythons
.DEFAULT_GOAL := demo

environment:
	@./tools/venv.sh $(VENV)

demo: environment
	@PATH="$(abspath $(VENV))/bin:$$PATH" ./examples/demo.sh

test: environment
	$(MAKE) --no-print-directory -k -j2 -O test-rest test-hooks test-shipping

# two at a time: most of it is waiting for processes. What puts hooks into its own process has one to itself
test-hooks:
	$(VENV)/bin/python -m pytest $(PYTEST) $(HOOKS)
test-shipping:
	$(VENV)/bin/python -m pytest $(PYTEST) $(SHIPPING)
test-rest:
	$(VENV)/bin/python -m pytest $(PYTEST) $(APART) $(addprefix --ignore=,$(HOOKS) $(SHIPPING)) tests

e2e:
	./tests/e2e/setup.sh $(E2E_VENV)
	VENV=$(E2E_VENV) $(E2E_VENV)/bin/python -m pytest $(PYTEST) tests/e2e tests/torch

engines:
	./tests/e2e/setup.sh $(E2E_VENV)
	./tests/engines/setup.sh $(SGLANG_VENV)
	$(MAKE) --no-print-directory -j2 -O engines-vllm engines-sglang
	$(E2E_VENV)/bin/python -m pytest $(PYTEST) tests/engines/test_cost.py
	$(SGLANG_VENV)/bin/python -m pytest $(PYTEST) tests/engines/test_cost.py

# side by side: most of it is waiting for imports; what measures runs alone
engines-vllm:
	$(E2E_VENV)/bin/python -m pytest $(PYTEST) --ignore=tests/engines/test_cost.py tests/engines
engines-sglang:
	$(SGLANG_VENV)/bin/python -m pytest $(PYTEST) --ignore=tests/engines/test_cost.py tests/engines

check: environment
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

packs: environment
	PACKS_CACHE=$(PACKS_CACHE) $(VENV)/bin/python tests/packs/releases.py $(RELEASES)

backends test-backends: environment
	tests/weave_server/setup.sh $(WEAVE_SERVER) $(WEAVE_CLIENT)
	$(VENV)/bin/python -m tests.packs.unpacked --cache $(PACKS_CACHE) verl==0.7.1 verl==0.8.0
	AUTOTRACE_TEST_WEAVE_SERVER=$(abspath $(WEAVE_SERVER)) AUTOTRACE_TEST_WEAVE_CLIENT=$(abspath $(WEAVE_CLIENT)) \
	VERL_RELEASES=$(abspath $(PACKS_CACHE))/unpacked \
	    $(VENV)/bin/python -m pytest $(PYTEST) -p tests.rows $(TABLE)

multinode: environment
	$(VENV)/bin/python -m pytest $(PYTEST) tests/multinode

faults: environment
	$(VENV)/bin/python -m pytest $(PYTEST) tests/faults

# BENCH="--json FILE --only small,llm" for less or for machines to read
bench: environment
	./benchmarks/setup.sh $(BENCH_VENV)
	BENCH_VERL_PYTHON=$(abspath $(VENV))/bin/python $(BENCH_VENV)/bin/python benchmarks/run.py $(BENCH)

# fails on ratios within the run, never on a time
bench-short:
	./benchmarks/setup.sh $(BENCH_VENV)
	$(BENCH_VENV)/bin/python benchmarks/run.py --short

ray-versions: environment
	$(VENV)/bin/python -m tests.conformance.ray_versions

host-suites: environment
	$(VENV)/bin/python -m tests.host.run $(PACKAGES)

verl-releases: environment
	$(VENV)/bin/python -m tests.packs.unpacked --cache $(PACKS_CACHE) verl
	VERL_RELEASES=$(abspath $(PACKS_CACHE))/unpacked $(VENV)/bin/python -m pytest $(PYTEST) \
	    tests/verl/test_releases.py tests/verl/test_extension_points.py

pythons: environment
	set -e; for python in $(PYTHONS); do $$python -V; \
	    $(VENV)/bin/python -m uv run --quiet --no-project --isolated --python $$python --with-editable . \
	        $(addprefix --with ,pytest pytest-asyncio pytest-timeout hypothesis attrs cloudpickle fastapi httpx numpy pydantic) \
	        pytest $(PYTEST) --ignore=tests/conformance/test_ray.py \
	        tests/conformance tests/record tests/spec/test_compiler.py tests/spec/test_mistakes.py; \
	done

docs: environment
	$(VENV)/bin/python -m autotrace.spec.schema --markdown | diff docs/spec-reference.md -
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m uv run --quiet --no-project --isolated --with 'mkdocs-material>=9.5,<10' \
	    mkdocs build --strict

wheel: environment
	$(VENV)/bin/python -m uv build --out-dir dist .

clean:
	rm -rf $(VENV) $(E2E_VENV) $(SGLANG_VENV) $(WEAVE_SERVER) $(WEAVE_CLIENT) $(PACKS_CACHE) $(BENCH_VENV) dist \
	    .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
