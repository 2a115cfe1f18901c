"""Packages whose own tests are run with and without autotrace: what they need, and what is known to differ.

Any other package can be named too (``python -m tests.host.run NAME``); it then gets its ``test`` extras and no
exceptions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    package: str
    version: str
    module: str = ""
    """Name to import; default: the package's."""
    needs: tuple[str, ...] = ()
    """Requirements of the tests."""
    arguments: tuple[str, ...] = ()
    """For pytest, below the unpacked source distribution."""
    exclude: tuple[str, ...] = ()
    """Names the glob leaves out (tests that are installed with the package)."""
    contents: bool = True
    """Whether arguments and results are recorded."""
    differs: tuple[tuple[str, str], ...] = ()
    """(part of a test's name, why it cannot be the same)."""

    @property
    def imported(self) -> str:
        """Top-level module."""
        return self.module or self.package.replace("-", "_")


SUITES = (
    Suite(
        "attrs",
        "25.4.0",
        module="attr",
        needs=("pytest", "hypothesis", "cloudpickle", "pympler"),
        arguments=("tests", "--ignore=tests/test_mypy.yml", "--ignore=tests/test_pyright.py"),
    ),
    Suite(
        "anyio",
        "4.11.0",
        needs=(
            "pytest",
            "trio",
            "hypothesis",
            "psutil",
            "trustme",
            "pytest-mock",
            "blockbuster",
            "truststore",
            "exceptiongroup",
        ),
        # what the garbage collector finds it reports in whichever test it happens to run, without IPv6 a lot
        arguments=("tests", "-p", "no:unraisableexception"),
    ),
    Suite(
        "httpx",
        "0.28.1",
        needs=(
            "pytest",
            "trio",
            "trustme",
            "uvicorn",
            "chardet",
            "brotli",
            "zstandard",
            "h2",
            "socksio",
            "click",
            "rich",
            "pygments",
        ),
        arguments=("tests",),
    ),
    Suite(
        "networkx",
        "3.4.2",
        needs=("pytest", "numpy<2.3", "scipy"),
        arguments=("networkx/algorithms", "networkx/classes", "-k", "not slow"),
        exclude=("networkx.**.tests.**", "networkx.conftest.*"),
    ),
    Suite("tenacity", "9.2.1", needs=("pytest", "tornado", "typeguard"), arguments=("tests",)),
    Suite("pluggy", "1.6.0", needs=("pytest",), arguments=("testing",)),
    # three that live on registries: filters in dicts, receivers behind weak references, hooks found by marks
    Suite("jinja2", "3.1.6", needs=("pytest", "trio"), arguments=("tests",)),
    Suite(
        "blinker",
        "1.9.0",
        needs=("pytest", "pytest-asyncio"),
        arguments=("tests", "-o", "asyncio_default_fixture_loop_scope=function"),
    ),
    Suite("marshmallow", "4.4.0", needs=("pytest", "simplejson"), arguments=("tests",)),
    Suite(
        "structlog", "26.1.0", needs=("pytest", "pytest-asyncio", "simplejson", "time-machine"), arguments=("tests",)
    ),
    Suite("click", "8.5.1", needs=("pytest",), arguments=("tests",)),
    Suite(
        "more-itertools",
        "11.2.1",
        needs=("pytest",),
        # these two count through millions of numbers, each of them a recorded call
        arguments=("tests", "-k", "not PrimeFunctionTests and not DiscreteFourierTransformTests"),
        differs=(
            (
                "test_repeated_zero_cache_peek_has_bounded_memory",
                "it allows 256 KB for 10,000 calls; recorded ones wait to be written, up to 64 MB a process",
            ),
        ),
    ),
    Suite(
        "werkzeug",
        "3.1.9",
        needs=("pytest", "pytest-timeout", "cffi", "cryptography", "ephemeral-port-reserve"),
        # bare, too, the reloader of the server for development may not come to an end
        arguments=("tests", "-m", "not dev_server"),
    ),
    Suite(
        "starlette",
        "1.10.0",
        needs=(
            "pytest",
            "trio",
            "blockbuster",
            "itsdangerous",
            "jinja2",
            "python-multipart",
            "httpx<0.29",
            "httpx2[zstd]",
            "opentelemetry-sdk",
            "importlib-metadata",
        ),
        arguments=("tests",),
    ),
    Suite(
        "trio",
        "0.35.0",
        needs=("pytest", "trustme", "pyopenssl", "async-generator", "astor", "jedi", "isort"),
        # the tests are installed with the package; those of its own tools need linters
        arguments=("--pyargs", "trio", "-k", "not test_exports and not test_gen_exports"),
        exclude=("trio._tests.**", "trio._core._tests.**"),
        # a task holds all that runs: 2,000 containers of it are copied in 3 ms, at each step, and timers of tests pass
        contents=False,
        differs=tuple(
            (test, "what a plain function returns is awaited below a coroutine of ours, which the awaited frames show")
            for test in ("test_task_iter_await_frames", "test_task_iter_await_frames_async_gen")
        ),
    ),
    Suite(
        "pydantic",
        "2.14.3",
        needs=(
            "pytest",
            "pytest-mock",
            "pytest-benchmark",
            "pytest-run-parallel",
            "dirty-equals",
            "faker",
            "jsonschema",
            "pytz",
            "packaging",
            "time-machine",
            "email-validator",
        ),
        arguments=("tests", "--ignore=tests/test_docs.py", "--ignore=tests/mypy", "--ignore=tests/benchmarks"),
        differs=(
            *(
                (
                    test,
                    "the names of an unfinished model are looked for five frames up, behind a stand-in's `__getattr__`",
                )
                for test in (
                    "test_global_namespace_variables",
                    "test_local_namespace_variables",
                    "test_root_model_recursive",
                )
            ),
            (
                "test_implicit_type_alias_recursive_error_message",
                "it fills the stack, in which a wrapper takes a place of its own",
            ),
        ),
    ),
    # libraries that agents and trainers are built on
    Suite("toolz", "1.2.0", needs=("pytest",), arguments=("toolz",), exclude=("toolz.tests.**", "toolz.**.tests.**")),
    Suite("cachetools", "8.0.2", needs=("pytest",), arguments=("tests",)),
    Suite(
        "joblib",
        "1.6.0",
        needs=("pytest", "pytest-asyncio", "pytest-timeout", "numpy", "lz4", "threadpoolctl"),
        # the other files start pools of processes for minutes
        arguments=tuple(
            f"joblib/test/test_{name}.py" for name in ("func_inspect", "hashing", "logger", "memory", "utils")
        ),
        exclude=("joblib.test.**", "joblib.externals.**"),
    ),
    Suite(
        "sympy",
        "1.14.0",
        needs=("pytest", "hypothesis"),
        arguments=("sympy/core", "sympy/logic", "-k", "not slow"),
        exclude=("sympy.**.tests.**", "sympy.testing.**"),
        # an expression is a tree that holds the whole computation
        contents=False,
    ),
    Suite(
        "mcp",
        "2.3.0",
        needs=(
            "pytest", "mcp[cli,rich]==2.3.0", "trio", "inline-snapshot", "dirty-equals", "pytest-examples", "pillow",
            "logfire", "opentelemetry-sdk", "blockbuster", "pydantic-settings",
        ),
        arguments=("tests/client", "tests/server", "tests/shared"),
    ),
    Suite(
        "openai",
        "3.57.0",
        needs=(
            "pytest", "pytest-asyncio", "pytest-xdist", "websockets", "dirty-equals", "time-machine", "rich",
            "nest-asyncio", "inline-snapshot", "importlib-metadata", "trio", "httpx-aiohttp",
        ),
        # the other files test wires, certificates and the repository's own tools for a quarter of an hour
        arguments=(
            "-n", "0", "tests/test_utils", "tests/lib/chat", "tests/lib/streaming",
            # the source distribution lacks the answers of this file
            "--ignore=tests/lib/chat/test_completions_streaming.py",
            *(f"tests/test_{name}.py" for name in (
                "client", "streaming", "models", "transform", "qs", "required_args", "response", "legacy_response",
                "extract_files", "files", "module_client", "lazy_imports",
            )),
            *(f"tests/lib/test_{name}.py" for name in ("azure", "assistants", "audio", "pydantic", "streaming_deltas")),
        ),
        # 3,000 models of pydantic and typed dicts
        exclude=("openai.types.**",),
    ),
    Suite(
        "langchain-core",
        "1.8.3",
        needs=(
            "pytest>=9,<10", "freezegun", "pytest-mock", "syrupy>=5,<6", "pytest-asyncio>=1.3,<2", "grandalf",
            "responses", "pytest-socket", "pytest-xdist<4", "blockbuster>=1.5.18,<1.6", "numpy",
            "langchain-tests>=1.1.9", "pytest-benchmark", "pytest-codspeed",
        ),
        arguments=(
            "--disable-socket", "--allow-unix-socket", "--benchmark-skip",
            # limits of 50 ms to 1 s: too little on a busy machine, where every function is recorded too
            "--ignore-glob=*/chat_models/test_benchmark.py", "--ignore-glob=*/chat_models/test_rate_limiting.py",
            *(f"tests/unit_tests/{name}" for name in (
                "runnables", "output_parsers", "callbacks", "tracers", "language_models", "test_tools.py",
            )),
        ),
    ),
    Suite(
        "langgraph",
        "1.2.24",
        needs=(
            "pytest", "pytest-dotenv", "pytest-mock", "syrupy", "httpx", "pytest-xdist[psutil]", "pytest-repeat",
            "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary]", "pycryptodome", "redis",
            "uvloop", "pytest-asyncio", "anyio", "langgraph-cli[inmem]",
        ),
        # checkpoints in PostgreSQL and Redis need servers
        arguments=(
            "-k", "not postgres and not redis and not sqlite"
            # two tests allow 100 ms: too little on a busy machine, where every function is recorded too
            " and not test_stream_subgraphs_during_execution and not test_stream_buffering_single_node",
            *(f"tests/test_{name}.py" for name in (
                "algo", "channels", "state", "runnable", "utils", "subgraph_detection", "pregel",
            )),
        ),
    ),
    Suite(
        "anthropic",
        "2.14.0",
        needs=(
            "respx", "pytest", "pytest-asyncio", "time-machine", "dirty-equals", "importlib-metadata", "rich",
            "pytest-xdist", "hypothesis", "inline-snapshot", "http-snapshot[httpx]==0.1.9", "packaging",
            "httpx2>=2.9", "opentelemetry-sdk", "boto3", "google-auth", "httpx-aiohttp",
        ),
        # the other files test clouds, credentials and more tools for a quarter of an hour
        arguments=(
            "-n", "0", "tests/decoders", "tests/lib/streaming", "tests/lib/_parse",
            *(f"tests/test_{name}.py" for name in (
                "client", "streaming", "models", "middleware", "response", "qs", "tracing", "required_args", "files",
            )),
            *(f"tests/lib/tools/test_{name}.py" for name in ("functions", "runners", "open_telemetry")),
        ),
        # models of pydantic and typed dicts
        exclude=("anthropic.types.**",),
    ),
    Suite(
        "datasets",
        "5.2.0",
        needs=("pytest", "transformers"),
        # the source distribution lacks the helpers of the other files, and the fixtures of 45 tests in these files
        arguments=tuple(
            f"tests/test_{name}.py" for name in (
                "buckets", "data_files", "dataset_list", "experimental", "filelock", "fingerprint_tokenizer_stability",
                "info", "info_utils", "metadata_util", "sharding_utils", "splits", "tqdm", "version",
            )
        ),
    ),
    Suite(
        "verl",
        "0.9.1",
        needs=(
            "pytest", "pytest-asyncio", "pytest-rerunfailures", "torch", "torchvision", "cachetools", "fastapi",
            "uvicorn",
        ),
        # the other files start Ray, or need transfer_queue
        arguments=(
            "tests/tools", "tests/test_base_config_on_cpu.py", "tests/test_protocol_on_cpu.py",
            "tests/test_protocol_v2_on_cpu.py", "tests/trainer/test_constants_ppo_on_cpu.py",
            "tests/experimental/agent_loop/test_call_tool_on_cpu.py",
            *(f"tests/trainer/ppo/test_{name}_on_cpu.py" for name in (
                "core_algos", "metric_utils", "loss_aggregation", "reinforce_pp_multiturn", "value_loss_normalization",
                "dynamic_policy_losses",
            )),
            "-o", "python_files=test_*_on_cpu.py", "-o", "asyncio_mode=auto",
        ),
    ),
)  # fmt: skip

EACH_KIND = [suite.package for suite in SUITES if suite.package not in ("httpx", "networkx")]
"""What runs unless packages are named: together they have every kind of function."""
