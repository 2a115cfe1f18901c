# Everything from a clone, with nothing but Python >= 3.10 and make. `make` alone lists the targets; environments are made on
# first use, and each line of the list says what one costs.
PYTHON ?= python3
VENV ?= .venv
E2E_VENV ?= .venv-e2e
SGLANG_VENV ?= .venv-sglang
WEAVE_SERVER ?= .venv-weave-server
WEAVE_CLIENT ?= .venv-weave-client
HARBOR_VENV ?= .venv-harbor
PACKS_CACHE ?= .packs-cache
BENCH_VENV ?= .venv-bench
BENCH ?= --results
PYTEST ?= -q
PYTHONS ?= python3.10 python3.12 python3.13
SECONDS ?= 600
AGENTS_VENVS ?= .venv-agents
EVERY_FRAMEWORK = $(patsubst tests/agent_frameworks/%/requirements.txt,%,$(wildcard tests/agent_frameworks/*/requirements.txt))
# on no index: UNI_AGENT names a checkout of verl-project/uni-agent, RLLM one of rllm-org/rllm
FRAMEWORKS ?= $(filter-out $(if $(UNI_AGENT),,uni_agent) $(if $(RLLM),,rllm),$(EVERY_FRAMEWORK))
# of these the development environment has the newest release, so `make test` runs them too
FRAMEWORKS_HERE = openai anthropic mcp httpx
HOOKS = tests/conformance tests/faults
SHIPPING = tests/ship tests/sinks tests/cli
PROGRAMS = $(addprefix tests/,verl adapters launch bootstrap agent_frameworks packaging)
PARTS = test-programs test-rest test-shipping test-hooks test-hostile-input
HOSTILE_INPUT = $(addprefix tests/,hostile findings secrets security)
# what runs in an environment of its own
APART = $(addprefix --ignore=tests/,browser e2e engines harbor multinode weave_server backends host torch compilers \
    $(addprefix agent_frameworks/,$(filter-out $(FRAMEWORKS_HERE),$(EVERY_FRAMEWORK))))

# what other Pythons may change, beside the folders that `make pythons` runs as a whole; one test there needs MLflow
OF_PYTHONS = $(addprefix tests/,adapters/test_processes.py adapters/test_threads.py bootstrap/test_interpreters.py \
    bootstrap/test_outside.py cli/test_status.py faults/test_disk.py insight/test_endings.py launch/test_images.py \
    launch/test_main.py launch/test_own_targets.py redact/test_images.py)

# the table of the backends, printed a line a row; VERL_TABLE=0.8.0 runs the part of it about that release
TABLE = $(addprefix tests/,backends weave_server sinks secrets verl/test_late_facts.py verl/test_extension_points.py \
    ship/test_backend_choice.py ship/delivery ship/assembly/test_decoding.py ship/test_into_mlflow.py record/test_sampling.py \
    cli/test_compare.py)

# images of containers set this variable, and every process would compile what it imports: `import mlflow` takes 4.5 s of CPU
# then, and 1.8 s otherwise
unexport PYTHONDONTWRITEBYTECODE

.PHONY: findings diff peers help demo test test-all e2e-environment bench-environment size test-programs test-hooks test-shipping test-rest e2e check format wheel clean environment engines engines-vllm \
    engines-sglang packs agents backends test-backends multinode harbor ray-versions host-suites faults hostile bench bench-short \
    scale verl-releases docs pages pythons stress compilers security view screenshots recording check-js format-js
.DEFAULT_GOAL := help

# a line `##@ Group` opens a group, `target: ## what it does` is listed in it
help:
	@echo "usage: make TARGET"
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	    /^[a-z0-9-]+( [a-z-]+)*:.*## / {split($$1, names, " "); printf "  %-15s %s\n", names[1], $$2}' $(MAKEFILE_LIST)

##@ Start here
demo: environment ## real veRL agent loops, traced into a local MLflow store and shown as trees
	@PATH="$(abspath $(VENV))/bin:$$PATH" ./examples/demo.sh

environment: ## the development environment in .venv (1.5 GB: veRL, Ray, MLflow, CPU-only torch)
	@./tools/venv.sh $(VENV)

##@ Every change
check: environment check-js size ## linter, formatting, types, import contract
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

size: ## lines of code by room; fails above the ceiling of tools/size.py
	$(PYTHON) tools/size.py --check

format: environment ## apply the formatter and the linter's own fixes
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

test: environment ## the test suite, without the further cases of `make test-all`
	EXAMPLES_DIVIDED_BY=4 $(MAKE) --no-print-directory -k -j3 -O $(PARTS) \
	    PYTEST="$(PYTEST) -m 'not long'"

test-all: environment ## the whole test suite: also what is marked `long`, every case of a promise that `make test` tries once
	$(MAKE) --no-print-directory -k -j3 -O $(PARTS)

# three at a time, the longest first: most of it is waiting for processes. What puts hooks into its own process has one to
# itself; what imports veRL and torch burdens no test that forks or collects garbage
test-programs:
	$(VENV)/bin/python -m pytest $(PYTEST) $(APART) $(PROGRAMS)
test-hostile-input:
	$(VENV)/bin/python -m pytest $(PYTEST) $(HOSTILE_INPUT)
test-hooks:
	$(VENV)/bin/python -m pytest $(PYTEST) $(HOOKS)
test-shipping:
	$(VENV)/bin/python -m pytest $(PYTEST) $(SHIPPING)
test-rest:
	$(VENV)/bin/python -m pytest $(PYTEST) $(APART) $(addprefix --ignore=,$(HOOKS) $(SHIPPING) $(PROGRAMS) $(HOSTILE_INPUT)) tests

view: environment ## the page of `autotrace view`, driven in Chromium (on PATH, or Playwright's own)
	$(VENV)/bin/python -m pytest $(PYTEST) tests/browser

# of the newest run of the demo; docs/view.md shows all of them
screenshots: environment ## each page of `autotrace view`, light and dark, into docs/screenshots (after make demo)
	$(VENV)/bin/python -m tests.browser.screenshots

# pyte is the terminal; a font of fonts-dejavu-core
recording: environment ## the terminal recording of the first page, into docs/screenshots (demo.cast, demo.gif)
	$(VENV)/bin/python -m uv run --quiet --no-project --isolated --with-editable '.[view]' --with pyte --with pillow \
	    python tools/recording.py docs/screenshots

# TypeScript's checker and a formatter for the page's modules, out of a wheel: no node
DENO = DENO_NO_UPDATE_CHECK=1 NO_COLOR=1 $(VENV)/bin/python -m uv run --quiet --no-project --isolated \
    --with 'deno>=2.5,<3' deno
check-js: environment ## types and formatting of the page's JavaScript
	$(DENO) check --quiet --no-lock --config autotrace/view/deno.json autotrace/view/static/main.js
	$(DENO) fmt --check --quiet --config autotrace/view/deno.json

format-js: environment ## format the page's JavaScript
	$(DENO) fmt --quiet --config autotrace/view/deno.json

pages: environment ## write the parts of pages that are made from code: columns, findings, libraries, keys of lists, figures
	$(VENV)/bin/python -m tools.pages

docs: environment ## the pages, into site/; fails on a dead link, an outdated reference or English that is hard to read
	$(VENV)/bin/python tools/english.py
	$(VENV)/bin/python tools/sentences.py
	$(VENV)/bin/python -m tools.pages --check
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m uv run --quiet --no-project --isolated --with 'mkdocs-material>=9.5,<10' \
	    mkdocs build --strict

# with the pip of any Python: not worth the environment
wheel: ## the wheel, into dist/ (seconds, no environment)
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean: ## delete every environment, cache and build
	rm -rf $(VENV) $(E2E_VENV) $(SGLANG_VENV) $(WEAVE_SERVER) $(WEAVE_CLIENT) $(HARBOR_VENV) $(PACKS_CACHE) $(BENCH_VENV) $(AGENTS_VENVS) dist \
	    .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

##@ Real engines, releases and servers (each makes an environment or a cache of its own)
e2e: e2e-environment ## a whole GRPO step of veRL with a real vLLM engine (an environment of its own)
	VENV=$(E2E_VENV) $(E2E_VENV)/bin/python -m pytest $(PYTEST) tests/e2e tests/torch

e2e-environment:
	./tests/e2e/setup.sh $(E2E_VENV)

engines: e2e-environment ## vLLM and SGLang on the CPU (two environments of their own)
	./tests/engines/setup.sh $(SGLANG_VENV)
	$(MAKE) --no-print-directory -j2 -O engines-vllm engines-sglang
	$(E2E_VENV)/bin/python -m pytest $(PYTEST) tests/engines/test_cost.py
	$(SGLANG_VENV)/bin/python -m pytest $(PYTEST) tests/engines/test_cost.py

# side by side: most of it is waiting for imports; what measures runs alone
engines-vllm:
	$(E2E_VENV)/bin/python -m pytest $(PYTEST) --ignore=tests/engines/test_cost.py tests/engines
engines-sglang:
	$(SGLANG_VENV)/bin/python -m pytest $(PYTEST) --ignore=tests/engines/test_cost.py tests/engines

packs: environment ## the shipped lists against every supported release (RELEASES=verl for one library)
	PACKS_CACHE=$(PACKS_CACHE) $(VENV)/bin/python tests/packs/releases.py $(RELEASES)

# FRAMEWORKS="openai mcp" for some; each has requirements.txt, a program, and tests of what is recorded of it
agents: environment ## agents on each framework's real release, an environment each (FRAMEWORKS="openai mcp" for some)
	failed=0; for framework in $(FRAMEWORKS); do echo "== $$framework"; \
	    tests/agent_frameworks/setup.sh $$framework $(AGENTS_VENVS)/$$framework && \
	    AUTOTRACE_TEST_AGENTS=$(abspath $(AGENTS_VENVS)) \
	        $(VENV)/bin/python -m pytest $(PYTEST) --timeout=900 tests/agent_frameworks/$$framework || failed=1; \
	done; exit $$failed

compilers: environment ## functions that numba, triton and jax compile, on the CPU
	$(VENV)/bin/python -m uv run --quiet --no-project --isolated --with-editable . \
	    $(addprefix --with ,pytest pytest-timeout numba triton jax) pytest $(PYTEST) tests/compilers

verl-releases: environment ## the agent loop of every veRL since 0.5
	$(VENV)/bin/python -m tests.packs.unpacked --cache $(PACKS_CACHE) verl
	VERL_RELEASES=$(abspath $(PACKS_CACHE))/unpacked $(VENV)/bin/python -m pytest $(PYTEST) \
	    tests/verl/test_releases.py tests/verl/test_extension_points.py tests/verl/test_token_facts.py

test-backends backends: environment ## what MLflow and W&B's own server show of real veRL runs, a row a promise
	tests/weave_server/setup.sh $(WEAVE_SERVER) $(WEAVE_CLIENT)
	$(VENV)/bin/python -m tests.packs.unpacked --cache $(PACKS_CACHE) verl==0.7.1 verl==0.8.0
	AUTOTRACE_TEST_WEAVE_SERVER=$(abspath $(WEAVE_SERVER)) AUTOTRACE_TEST_WEAVE_CLIENT=$(abspath $(WEAVE_CLIENT)) \
	VERL_RELEASES=$(abspath $(PACKS_CACHE))/unpacked \
	    $(VENV)/bin/python -m pytest $(PYTEST) -p tests.rows $(TABLE)

harbor: environment ## exported trajectories, validated by Harbor's own package (HARBOR_PYTHON=python3.12)
	PATH="$(abspath $(VENV))/bin:$$PATH" tests/harbor/setup.sh $(HARBOR_VENV)
	AUTOTRACE_TEST_HARBOR=$(abspath $(HARBOR_VENV))/bin/python $(VENV)/bin/python -m pytest $(PYTEST) tests/harbor

multinode: environment ## two Ray nodes in network namespaces (needs root)
	$(VENV)/bin/python -m pytest $(PYTEST) tests/multinode

ray-versions: environment ## actors on old and new Ray
	$(VENV)/bin/python -m tests.conformance.ray_versions

##@ Safety
host-suites: environment ## other packages' own tests with all of their functions wrapped (PACKAGES=...)
	$(VENV)/bin/python -m tests.host.run $(PACKAGES)

faults: environment ## kills, full disks, dead servers: what was written, delivered, lost, delivered twice
	$(VENV)/bin/python -m pytest $(PYTEST) tests/faults

security: environment ## what a sender of a folder, a neighbour, the network can do to you: nothing that SECURITY.md denies
	$(VENV)/bin/python -m pytest $(PYTEST) tests/security

# FINDINGS="one turn" plays single scenarios
findings: environment ## faults planted in veRL's loops and in other agents: what is found, where, and what is false
	$(VENV)/bin/python -m tests.findings.judge $(FINDINGS)

# DIFF="seed 'tool answer'" plays single causes
diff: environment ## fourteen causes planted in two veRL runs: what `autotrace diff` names, in which pair, at which token
	$(VENV)/bin/python -m tests.findings.two_runs $(DIFF)

peers: environment ## what rldoctor, rlprobe and autotrace say about the same faults, into docs/findings.md
	$(VENV)/bin/python -m tools.peers
	$(VENV)/bin/python -m tools.pages

# in the development environment, or in one for each of PYTHONS if that is given; HOSTILE="timeouts memory" for some of the rows
hostile: environment ## programs that do what RL code does every day, bare and traced (PYTHONS=... for other Pythons)
ifeq ($(origin PYTHONS), file)
	$(VENV)/bin/python -m tests.hostile.run $(HOSTILE)
else
	failed=0; for python in $(PYTHONS); do \
	    $(VENV)/bin/python -m uv run --quiet --no-project --isolated --python $$python --with-editable . \
	        python -m tests.hostile.run $(HOSTILE) || failed=1; \
	done; exit $$failed
endif

# SECONDS are those of one Python; STRESS_SEED="7" repeats a choice of thresholds
stress: environment ## every kind of function under collections, threads, forks, signals, tracers (PYTHONS=..., SECONDS=600)
	failed=0; for python in $(if $(filter file,$(origin PYTHONS)),python3.11) $(PYTHONS); do \
	    $(VENV)/bin/python -m uv run --quiet --no-project --isolated --python $$python --with-editable . \
	        python -m tests.stress.run $(SECONDS) $(STRESS_SEED) || failed=1; \
	done; exit $$failed

pythons: environment ## what wraps and records, on other Pythons (PYTHONS="python3.10 python3.13" TESTS=tests/conformance)
	set -e; for python in $(PYTHONS); do $$python -V; \
	    $(VENV)/bin/python -m uv run --quiet --no-project --isolated --python $$python --with-editable . \
	        $(addprefix --with ,pytest pytest-asyncio pytest-timeout hypothesis attrs billiard cloudpickle coverage dask datasets dill fastapi freezegun gevent httpx huey hydra-core joblib multiprocess numpy openai pillow py-spy time-machine trio pydantic sqlalchemy typer wrapt typeguard beartype) \
	        pytest $(PYTEST) --ignore=tests/conformance/test_ray.py --ignore=tests/conformance/test_with_torch.py \
	        --deselect=tests/launch/test_main.py::TestRefusals::test_a_directory_store_is_2_with_the_remedy \
	        $(or $(TESTS),tests/conformance tests/record tests/stress tests/spec $(OF_PYTHONS)); \
	done

##@ Speed
# ONE_FORM="--scale 0.1 --rows short,calls": the run folder as a dataset, beside the commit before it
# BENCH="--json FILE --only small,llm" for less or for machines to read
bench: environment bench-environment ## every budget beside the other tracers, delivery beside what it was (45 minutes; BENCH="--only small,llm" for less)
	BENCH_VERL_PYTHON=$(abspath $(VENV))/bin/python $(BENCH_VENV)/bin/python benchmarks/run.py $(BENCH)
	$(VENV)/bin/python benchmarks/one_form.py $(ONE_FORM)

bench-environment:
	./benchmarks/setup.sh $(BENCH_VENV)

# SCALE="--seconds 60 --rate 800 --backend mlflow --tracking-uri ..." for something else
scale: environment ## the relays of 64 nodes at 1,640 calls a second for ten minutes: rates and lag of the collector
	$(VENV)/bin/python benchmarks/scale.py $(SCALE)

# fails on ratios within the run, never on a time
bench-short: bench-environment ## the same in short: fails on ratios within the run, never on a time
	$(BENCH_VENV)/bin/python benchmarks/run.py --short
