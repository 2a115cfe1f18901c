"""The tracers that are compared: each wraps functions its own way and knows how to write out what it gathered.

A subject lives in a process of its own, so no tracer pays for another's threads, imports and garbage.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import os
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

Function = Callable[..., Any]


class Subject:
    """No tracing at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wrap(self, function: Function, role: str = "tool") -> Function:
        """``function`` as users of this tracer would trace it; ``role``: ``trajectory``, ``llm`` or ``tool``."""
        return function

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        """Something for the calls to be part of."""
        yield

    def settle(self) -> None:
        """Write out what waits; called outside of what is timed."""

    def about(self) -> dict[str, Any]:
        """What it wrote and lost, for the report."""
        return {}


class Wraps(Subject):
    """The least a wrapper can be."""

    def wrap(self, function: Function, role: str = "tool") -> Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper


class Copies(Subject):
    """What any recorder must do on the caller's thread: copy the lists that the caller may change, and hand them
    over."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queue: deque[Any] = deque()

    def wrap(self, function: Function, role: str = "tool") -> Function:
        queue = self.queue

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            prompt, messages = tuple(kwargs["prompt_ids"]), [message.copy() for message in kwargs["messages"]]
            result = await function(*args, **kwargs)
            queue.append((prompt, messages, tuple(result.token_ids)))
            return result

        return wrapper

    def settle(self) -> None:
        self.queue.clear()


class DeepCopies(Subject):
    """A copy in Python of all arguments, and nothing else."""

    def wrap(self, function: Function, role: str = "tool") -> Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            copy.deepcopy(args[1:])
            return function(*args, **kwargs)

        return wrapper


class Wrapt(Subject):
    """``wrapt.FunctionWrapper`` around nothing."""

    def wrap(self, function: Function, role: str = "tool") -> Function:
        import wrapt

        wrapped: Function = wrapt.FunctionWrapper(function, lambda call, instance, args, kwargs: call(*args, **kwargs))
        return wrapped


class Autotrace(Subject):
    """This product, recording everything into a spool; no shipper runs."""

    sampling: ClassVar[dict[str, Any]] = {}
    logprobs = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from autotrace.adapters import registry
        from autotrace.config.plan import Plan, Settings, Target

        targets = (
            Target("bench.trajectory", ("bench.trajectory",), role="trajectory", attributes={
                "uid": ("uid",), "step": ("step",), "rollout_n": ("rollout_n",)}),
            Target("bench.tool", ("bench.tool",), role="tool"),
            Target("bench.llm", ("bench.llm",), role="llm", include=("sampling_params", "messages", "result"),
                   tokens={"prompt": ("prompt_ids",), "response": ("result.token_ids",),
                           "logprobs": ("result.log_probs",)},
                   attributes={"stop_reason": ("result.stop_reason",), "request_id": ("request_id",)}),
        )  # fmt: skip
        settings = Settings(sampling=self.sampling, logprobs=self.logprobs)
        registry.start(Plan((*targets, *self.shipped()), settings), str(folder), "bench")

    def shipped(self) -> tuple[Any, ...]:
        """Targets of shipped lists."""
        return ()

    def wrap(self, function: Function, role: str = "tool") -> Function:
        from autotrace.patch.wrapper import wrap

        return wrap(function, f"bench.{role}")

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        from autotrace.record import calls

        span = calls.begin(_rollout, "bench.trajectory", ("uid-1", 1, 0), {})
        try:
            yield
        finally:
            if span is not None:
                calls.end(span, None)

    def settle(self) -> None:
        from autotrace.record import flusher

        flusher.flush()

    def about(self) -> dict[str, Any]:
        from autotrace.record import faults

        size = sum(path.stat().st_size for path in (self.folder / "spool").glob("*.seg"))
        return {"spool_bytes": size, "drops": dict(faults.counts)}


def _rollout(uid: str, step: int, rollout_n: int) -> None:
    """What the trajectory of the small calls is called with."""


class AutotraceLogprobs(Autotrace):
    """With log-probabilities, which are off by default."""

    logprobs = True


class AutotraceOff(Autotrace):
    """Targets wrapped, but switched off."""

    def wrap(self, function: Function, role: str = "tool") -> Function:
        from autotrace.record import calls

        calls.probes[f"bench.{role}"].is_off = True
        return super().wrap(function, role)


class AutotraceUnsampled(Autotrace):
    """The trajectory was not sampled."""

    sampling: ClassVar[dict[str, Any]] = {"rate": 0.0}


class OpenTelemetry(Subject):
    """The SDK with its batch processor and an exporter that drops everything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

        class Nowhere(SpanExporter):
            def export(self, spans: Any) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        self.provider = TracerProvider()
        self.provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        trace.set_tracer_provider(self.provider)
        self.tracer = trace.get_tracer("bench")

    def wrap(self, function: Function, role: str = "tool") -> Function:
        import inspect

        tracer, name = self.tracer, function.__qualname__
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with tracer.start_as_current_span(name):
                    return await function(*args, **kwargs)

            return coroutine

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with tracer.start_as_current_span(name):
                return function(*args, **kwargs)

        return wrapper

    def settle(self) -> None:
        self.provider.force_flush()


class Datadog(Subject):
    """``tracer.wrap`` with a writer that drops everything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ.update(DD_INSTRUMENTATION_TELEMETRY_ENABLED="false", DD_REMOTE_CONFIGURATION_ENABLED="false",
                          DD_TRACE_STARTUP_LOGS="false")  # fmt: skip
        from ddtrace.trace import tracer

        tracer._span_aggregator.writer = _Dropping()
        self.tracer = tracer

    def wrap(self, function: Function, role: str = "tool") -> Function:
        wrapped: Function = self.tracer.wrap(function.__qualname__)(function)
        return wrapped


class _Dropping:
    """A writer of ddtrace's that writes nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class MLflow(Subject):
    """``mlflow.trace``, asynchronous logging, into a local SQLite store: what veRL sets up."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ.update(MLFLOW_DISABLE_TELEMETRY="true")
        import logging

        import mlflow

        logging.getLogger("mlflow").setLevel(logging.ERROR)
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.set_experiment("bench")
        mlflow.config.enable_async_logging()
        self.mlflow = mlflow

    def wrap(self, function: Function, role: str = "tool") -> Function:
        wrapped: Function = self.mlflow.trace(function)
        return wrapped

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        with self.mlflow.start_span(name="trajectory"):
            yield

    def settle(self) -> None:
        self.mlflow.flush_trace_async_logging()


class Weave(Subject):
    """``weave.op`` against a sink in another process (``WF_TRACE_SERVER_URL``)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ.update(WEAVE_PRINT_CALL_LINK="false", WEAVE_USE_SERVER_CACHE="false", WANDB_ERROR_REPORTING="false",
                          WANDB_SILENT="true", HOME=str(folder))  # fmt: skip
        import logging

        import weave

        logging.disable(logging.ERROR)
        self.client = weave.init("dev/bench")
        self.weave = weave

    def wrap(self, function: Function, role: str = "tool") -> Function:
        wrapped: Function = self.weave.op(function)
        return wrapped

    def settle(self) -> None:
        self.client.flush()


class Verl(Subject):
    """veRL's own ``rollout_trace_op``, from its wheel, with no backend set: what every veRL run pays."""

    backend: str | None = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.module = _rollout_trace()
        if self.backend is not None:
            os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
            self.module.RolloutTraceConfig.init("dev/bench", "bench", self.backend)

    def wrap(self, function: Function, role: str = "tool") -> Function:
        wrapped: Function = self.module.rollout_trace_op(function)
        return wrapped

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        with self.module.rollout_trace_attr(sample_index=1, step=1, rollout_n=0, name="agent_loop"):
            yield


class VerlMLflow(Verl):
    """``rollout.trace.backend=mlflow``."""

    backend = "mlflow"

    def __init__(self, folder: Path) -> None:
        os.environ.update(MLFLOW_DISABLE_TELEMETRY="true")
        import logging

        import mlflow

        logging.getLogger("mlflow").setLevel(logging.ERROR)
        self.mlflow = mlflow
        super().__init__(folder)

    def settle(self) -> None:
        self.mlflow.flush_trace_async_logging()


class VerlWeave(Verl):
    """``rollout.trace.backend=weave``."""

    backend = "weave"

    def __init__(self, folder: Path) -> None:
        os.environ.update(WEAVE_PRINT_CALL_LINK="false", WEAVE_USE_SERVER_CACHE="false", WANDB_ERROR_REPORTING="false",
                          WANDB_SILENT="true", HOME=str(folder))  # fmt: skip
        import logging

        logging.disable(logging.ERROR)
        super().__init__(folder)

    def settle(self) -> None:
        self.module.RolloutTraceConfig.get_client().flush()


def _rollout_trace() -> Any:
    """veRL's ``verl/utils/rollout_trace.py`` as it is, without the rest of veRL (torch, Ray, tensordict): the one thing
    it takes from there is an event loop."""
    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("veRL is not installed here")
    stub: Any = types.ModuleType("verl.utils.ray_utils")
    stub.get_event_loop = None
    sys.modules.setdefault("verl.utils.ray_utils", stub)
    for name in ("verl", "verl.utils"):
        sys.modules.setdefault(name, types.ModuleType(name))
    path = Path(found.submodule_search_locations[0]) / "utils" / "rollout_trace.py"
    spec = importlib.util.spec_from_file_location("verl.utils.rollout_trace", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUBJECTS: dict[str, type[Subject]] = {
    "bare call": Subject,
    "functools.wraps": Wraps,
    "copies of the lists": Copies,
    "copy.deepcopy": DeepCopies,
    "wrapt": Wrapt,
    "autotrace off": AutotraceOff,
    "autotrace not sampled": AutotraceUnsampled,
    "autotrace": Autotrace,
    "autotrace, logprobs": AutotraceLogprobs,
    "OpenTelemetry": OpenTelemetry,
    "ddtrace": Datadog,
    "mlflow.trace": MLflow,
    "weave.op": Weave,
    "veRL, no backend": Verl,
    "veRL on MLflow": VerlMLflow,
    "veRL on Weave": VerlWeave,
}
"""Everything that can be measured, by the name it has in the tables."""
NEED_WEAVE = {"weave.op", "veRL on Weave"}
