"""Trajectories in the real MLflow: in an SQLite store directly, and through a real tracking server."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import re
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from mlflow.entities import Trace
from rollouts import info, trajectory

from autotrace.insight import profile
from autotrace.insight.profile import Mark, Profile
from autotrace.sinks.mlflow.info import describe
from autotrace.sinks.mlflow.sending import PATIENCE, MlflowTrace, StoreError, isolate
from autotrace.sinks.mlflow.sink import MlflowSink
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.mlflow.sql_store import SqlStore
from autotrace.sinks.mlflow.uri import check_uri, initialise, ui_command
from autotrace.sinks.protocol import Refused, Rejected, Unavailable
from autotrace.trajectory.model import Trajectory
from tests.cases import some
from tests.mlflow_server import MlflowServer
from tests.sinks.mlflow_tokens import token_ids
from tests.waiting import DEADLINE


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"
    initialise(uri)
    return uri


@pytest.fixture(params=["store", pytest.param("mlflow_server", marks=pytest.mark.long)])
def uri(request: pytest.FixtureRequest) -> str:
    """Both ways to write."""
    place = request.getfixturevalue(request.param)
    return place.url if isinstance(place, MlflowServer) else str(place)


_numbers = itertools.count(100)


@pytest.fixture
def number() -> int:
    """Sample index of the test's own trajectories: the stores are shared, and ids follow from it."""
    return next(_numbers)


@pytest.fixture
def project(uri: str, number: int) -> str:
    """An experiment of the test's own."""
    mlflow.set_tracking_uri(uri)
    return f"project {number}"


@pytest.fixture
def rollout(number: int) -> Callable[..., Trajectory]:
    """Makes trajectories of the test's own."""
    return functools.partial(trajectory, sample=number)


def make(uri: str, project: str | None, folder: Path = Path("/tmp/run")) -> MlflowSink:
    return MlflowSink(info(tracking_uri=uri, project=project, backends=["mlflow"]), folder)


def traces(project: str, query: str | None = None, **more: Any) -> list[Trace]:
    experiment = mlflow.get_experiment_by_name(project)
    return mlflow.search_traces(
        locations=[experiment.experiment_id], filter_string=query, return_type="list", max_results=500, **more
    )


def test_ids_times_parents_and_statuses_are_ours(uri: str, project: str, rollout: Callable[..., Trajectory]) -> None:
    sent = rollout()
    tool = sent.spans[3]
    tool.status, tool.error = "ERROR", ("ValueError", "no such tool", "Traceback ...\nValueError: no such tool")
    sent.spans[4].status = "INTERRUPTED"
    make(uri, project).deliver([sent])
    (found,) = traces(project)
    assert found.info.trace_id == f"tr-{sent.trace_id}"
    spans = {span.span_id: span for span in found.data.spans}
    assert set(spans) == {span.span_id for span in sent.spans}
    for span in sent.spans:
        got = spans[span.span_id]
        assert (got.name, got.parent_id, got.start_time_ns, got.end_time_ns) == (
            span.name, span.parent_id, span.start_ns, span.end_ns,
        )  # fmt: skip
    assert [spans[span.span_id].span_type for span in sent.spans] == [
        "AGENT",
        "AGENT",
        "CHAT_MODEL",
        "TOOL",
        "CHAT_MODEL",
    ]
    failed = spans[tool.span_id]
    assert failed.status.status_code.value == "ERROR"
    assert failed.events[0].attributes["exception.type"] == "ValueError"
    assert "died" in spans[sent.spans[4].span_id].status.description
    assert found.info.state.value == "OK"
    assert found.info.execution_duration == 9000


@pytest.mark.row("filters")
def test_a_step_is_found_by_its_tag(uri: str, project: str, rollout: Callable[..., Trajectory]) -> None:
    sink = make(uri, project)
    trainer = Trajectory(rollout(step=99).trace_id, "run", [copy.deepcopy(rollout().spans[0])], {"step": 3})
    trainer.spans[0].role = "trainer"
    sink.deliver([*(rollout(step=step, rollout=n) for step in (3, 4) for n in range(4)), trainer])
    found = traces(project, "tags.step = '3'")
    assert sorted(trace.info.tags["rollout_n"] for trace in found) == ["0", "1", "2", "3"]
    tags = found[0].info.tags
    assert (tags["validate"], tags["sample_index"]) == ("False", str(rollout().attributes["sample_index"]))
    assert len(traces(project, "tags.trainer_step = '3'")) == 1
    (session,) = {trace.info.trace_metadata["mlflow.trace.session"] for trace in found}
    assert re.fullmatch(rf"step 3, sample {rollout().attributes['sample_index']} \([0-9a-f]{{6}}\)", session)


def test_a_root_that_recorded_nothing_shows_question_and_answer(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    one = rollout(step=3)
    root, (first, *_, last) = one.spans[0], one.llm_spans
    root.inputs, root.output = {}, None
    first.messages = [{"role": "system", "content": "Help."}, {"role": "user", "content": "2+2?"}]
    last.messages = [{"role": "assistant", "content": "4"}]
    encoded = encode(one)[0].attributes
    assert json.loads(str(encoded["mlflow.spanInputs"])) == {"messages": [{"role": "user", "content": "2+2?"}]}
    (choice,) = json.loads(str(encoded["mlflow.spanOutputs"]))["choices"]
    assert choice["message"] == {"role": "assistant", "content": "4"}
    assert encoded["mlflow.message.format"] == "openai", "MLflow's page shows them as messages"


def test_an_llm_turn_is_a_chat_with_usage_and_its_exact_tokens(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    sent = rollout()
    make(uri, project).deliver([sent])
    (found,) = traces(project)
    spans = {span.span_id: span for span in found.data.spans}
    first, second = sent.llm_spans
    shown = spans[first.span_id]
    assert shown.inputs["messages"] == [{"role": "user", "content": "What is 6 times 7?"}]
    assert shown.inputs["sampling_params"]["max_tokens"] == 512
    message = shown.outputs["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["name"] == "multiply"
    assert shown.attributes["mlflow.chat.tokenUsage"] == {"input_tokens": 40, "output_tokens": 60, "total_tokens": 100}
    read = [len(span.prompt_ids or ()) for span in (first, second)]
    written = [len(span.response_ids or ()) for span in (first, second)]
    assert found.info.token_usage["input_tokens"] == sum(read)
    assert found.info.token_usage["total_tokens"] == sum(read) + sum(written)
    tokens = token_ids({id: span.attributes for id, span in spans.items()})
    assert tokens == {span.span_id: (span.prompt_ids, span.response_ids) for span in (first, second)}
    assert "6 times 7" in found.info.request_preview and "It is 42" in found.info.response_preview


@pytest.mark.row("server faults")
def test_sent_again_nothing_is_doubled(uri: str, project: str, rollout: Callable[..., Trajectory]) -> None:
    sink = make(uri, project)
    sink.deliver([rollout(reward=0.5)])
    before = traces(project)[0]
    sink.deliver([rollout(reward=0.5)])
    make(uri, project).deliver([rollout(reward=0.5)])
    (found,) = traces(project)
    said = [(one.name, one.feedback.value) for one in found.info.assessments]
    assert ("reward", 0.5) in said and len(said) == len(dict(said)) == len(before.info.assessments)
    assert found.info.token_usage == before.info.token_usage
    assert len(found.data.spans) == len(before.data.spans)


def test_late_facts_are_tags_and_feedback_and_no_call_is_sent_again(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    sink = make(uri, project)
    sent, gone = rollout(reward=None), rollout(rollout=1)
    sink.deliver([sent])
    (before,) = traces(project)
    first = sink.sent
    for reward, trained in ((0.75, 4), (0.25, 5)):
        known = [
            replace(one, spans=[one.root], facts={"reward": reward, "trained_in_step": trained}) for one in (sent,)
        ]
        assert not sink.needs_calls
        sink.facts(known)
    assert sink.sent == first == sink.size(sent)
    (found,) = traces(project, "feedback.reward < 0.5 AND tags.trained_in_step = '5'")
    assert len([one for one in found.info.assessments if one.name == "reward"]) == 1
    was, now = before.info.to_dict(), found.info.to_dict()
    for told in (was, now):
        told.pop("assessments", None)
        del told["tags"]
    assert now == was and found.data.to_dict() == before.data.to_dict(), "previews, times, token counts, spans"
    with contextlib.suppress(Rejected):  # a person has deleted it, or it was never there
        sink.facts([replace(gone, spans=[gone.root])])
    assert len(traces(project)) == 1


@pytest.mark.row("filters")
def test_numbers_said_about_a_trajectory_are_feedback_to_search_by(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    sink = make(uri, project)
    sent = rollout()
    sink.deliver([sent, rollout(rollout=1)])
    sent.facts = {
        "reward": 0.75,
        "reward_extra_info": {"acc": True, "format": 0.1, "note": "text"},
        "advantage": float("nan"),
        "dropped": "stale",
    }
    sink.deliver([sent])
    (found,) = traces(project, "feedback.reward > 0.5 AND tags.step = '3'")
    said = {one.name: one.feedback.value for one in found.info.assessments}
    assert said == {"reward": 0.75, "acc": True, "format": 0.1, "advantage": "nan"}
    assert found.info.tags["dropped"] == "stale"
    assert found.data.spans[0].outputs["reward"] == 0.75


@pytest.mark.row("filters")
def test_findings_are_feedback_to_search_by_and_say_where(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    sink = make(uri, project)
    sent = rollout(reward=0.5)
    marks = [Mark("AT-TURN-LIMIT", 2), Mark("AT-RETOKENIZED", 2, 117, "31 tokens\x1b are missing")]
    sent.profile = profile.encode(Profile("1", marks=marks, found=[Mark("AT-GROUP-INCOMPLETE")]))
    sink.deliver([sent, rollout(rollout=1)])
    for code in ("AT-TURN-LIMIT", "AT-RETOKENIZED", "AT-GROUP-INCOMPLETE"):
        (found,) = traces(project, f"feedback.finding = '{code}'")
        assert found.info.trace_id == f"tr-{sent.trace_id}"
    assert not traces(project, "feedback.finding = 'AT-HUNG'")
    assert traces(project, "tags.findings LIKE '%AT-RETOKENIZED%'")
    said = {one.feedback.value: one.rationale for one in found.info.assessments if one.name == "finding"}
    assert said["AT-RETOKENIZED"] == "turn 2, token 117: 31 tokens\ufffd are missing"
    sink.deliver([sent])
    (again,) = traces(project, "feedback.finding = 'AT-TURN-LIMIT'")
    assert len(again.info.assessments) == len(found.info.assessments)


def test_a_report_about_a_step_goes_into_the_trainers_run(uri: str, project: str) -> None:
    experiment = mlflow.set_experiment(project)
    with mlflow.start_run() as run:
        pass
    nowhere = make(uri, project)
    nowhere.report(1, {"autotrace/truncated": 0.5}, "nobody has a run for it")
    reporter = make(uri, project)
    reporter.bind("mlflow", {"run_id": run.info.run_id, "experiment_id": experiment.experiment_id, "tracking_uri": uri})
    for value in (0.5, 0.25):
        reporter.report(
            3, {"autotrace/truncated": value, "autotrace/finding/AT-NO-EOS": 0.1}, f"half is cut: {value} é"
        )
    client = mlflow.MlflowClient()
    assert client.get_run(run.info.run_id).data.metrics == {
        "autotrace/truncated": 0.25, "autotrace/finding/AT-NO-EOS": 0.1,
    }  # fmt: skip
    assert {metric.step for metric in client.get_metric_history(run.info.run_id, "autotrace/truncated")} == {3}
    page = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/autotrace/findings-step-000003.txt")
    assert page == "half is cut: 0.25 é"
    reporter.bind("mlflow", {"run_id": "f" * 32, "tracking_uri": uri})
    with pytest.raises(Refused, match="did not store the report"):
        reporter.report(4, {"autotrace/truncated": 0.5}, "")


@pytest.mark.row("link to the run")
def test_the_training_run_holds_its_trajectories_also_when_known_late(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    experiment = mlflow.set_experiment(project)
    with mlflow.start_run(run_name="exp") as run:
        pass
    sink = make(uri, None)
    sink.bind("config", {"project_name": project})
    sink.deliver([rollout(rollout=0)])
    sink.bind("mlflow", {"run_id": run.info.run_id, "experiment_id": experiment.experiment_id, "tracking_uri": uri})
    trainer = Trajectory(
        rollout(step=99).trace_id, "run", [copy.deepcopy(rollout().spans[0])], {"project_name": project}
    )
    trainer.spans[0].role = "trainer"
    sink.deliver([rollout(rollout=0), rollout(rollout=1), trainer])
    found = mlflow.search_traces(
        locations=[experiment.experiment_id], run_id=run.info.run_id, return_type="list", include_spans=False
    )
    assert sorted(trace.info.tags["rollout_n"] for trace in found) == ["0", "1"]
    assert found[0].info.trace_metadata["mlflow.sourceRun"] == run.info.run_id


def test_a_run_in_another_store_is_not_linked(uri: str, project: str, rollout: Callable[..., Trajectory]) -> None:
    sink = make(uri, project)
    sink.bind("mlflow", {"run_id": "f" * 32, "experiment_id": "1", "tracking_uri": "http://elsewhere:5000"})
    sink.deliver([rollout()])
    assert "mlflow.sourceRun" not in traces(project)[0].info.trace_metadata


def test_what_mlflow_cannot_take_costs_itself_only(uri: str, project: str, rollout: Callable[..., Trajectory]) -> None:
    sink = make(uri, project)
    other = make(uri, f"{project} other")
    foreign = rollout(rollout=2)
    bad = rollout(rollout=3)
    bad.spans[2].span_id = "no hex"
    odd = rollout(rollout=4)
    odd.attributes["uid"] = "u" * 400
    odd.spans[2].inputs = {"lone": "\ud800", "nan": float("inf"), "big": 1 << 80, "deep": [[[["x"]]]], "nul": "\0"}
    other.deliver([foreign])
    with pytest.raises(Rejected) as refused:
        sink.deliver([rollout(rollout=0), foreign, rollout(rollout=1), bad, odd])
    assert bad.trace_id in refused.value.reasons
    kept = {trace.info.tags["rollout_n"] for trace in traces(project)}
    assert {"0", "1", "4"} <= kept and "3" not in kept
    assert set(refused.value.reasons) <= {bad.trace_id, foreign.trace_id}


@pytest.mark.row("link to the run")
def test_more_than_a_hundred_are_all_linked(uri: str, project: str, rollout: Callable[..., Trajectory]) -> None:
    experiment = mlflow.set_experiment(project)
    with mlflow.start_run() as run:
        pass
    sink = make(uri, None)
    sink.bind("mlflow", {"run_id": run.info.run_id, "experiment_id": experiment.experiment_id, "tracking_uri": uri})
    sink.deliver([rollout(step=n, rollout=n) for n in range(120)])
    found = mlflow.search_traces(
        locations=[experiment.experiment_id], run_id=run.info.run_id, return_type="list", include_spans=False,
        max_results=500,
    )  # fmt: skip
    assert len(found) == 120


def test_a_server_has_pages_and_a_store_has_a_command(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    memory: dict[str, str] = {}
    sink = MlflowSink(info(tracking_uri=uri, project=project), Path("/tmp/run"), memory)
    sink.deliver([rollout()])
    page = sink.page(rollout())
    assert memory["place"] == uri
    if uri.startswith("http"):
        assert page and page.startswith(f"{uri}/#/experiments/") and rollout().trace_id in page
        assert "open_with" not in memory
    else:
        assert page is None and memory["open_with"] == ui_command(uri)


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["file:///tmp/mlruns", "./mlruns", "mlruns", "/tmp/mlruns"])
def test_a_directory_store_is_refused_with_the_remedy(uri: str) -> None:
    with pytest.raises(ValueError, match="sqlite:////absolute"):
        check_uri(uri)
    with pytest.raises(Refused, match="directory store"):
        make(uri, "p").deliver([trajectory()])


@pytest.mark.parametrize("uri", ["databricks", "uc:main", "http://", "sqlite://", "sqlite:////no/such/folder/x.db"])
def test_other_places_that_cannot_work_are_refused(uri: str) -> None:
    with pytest.raises(ValueError):
        check_uri(uri)


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("postgresql+nowhere://bob:hunter2@h/db", "nowhere, .* postgresql\\+psycopg://"),
        ("mysql+nowhere.driver://bob:hunter2@h/db", "install it"),
    ],
)
def test_a_database_without_its_driver_is_refused_before_the_run(uri: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy) as refused:
        check_uri(uri)
    assert "hunter2" not in str(refused.value)


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(ValueError, match="bob") as refused:
        check_uri("htp://bob:hunter2@host")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("uri", ["http://host:5000", "https://u:p@host/mlflow", "postgresql+psycopg://u@h/db"])
def test_places_that_may_work_are_accepted(uri: str) -> None:
    check_uri(uri)


def test_checking_a_uri_imports_no_mlflow() -> None:
    code = (
        "import sys; from autotrace.sinks.mlflow.uri import check_uri; check_uri('http://h')\n"
        "print('mlflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("count", some([3, 8], 3))
def test_processes_make_one_fresh_store_at_once(tmp_path: Path, count: int) -> None:
    uri = f"sqlite:///{tmp_path}/fresh.db"
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
        "from rollouts import trajectory, info\n"
        "from autotrace.sinks.mlflow.sink import MlflowSink; import mlflow.store.tracking.sqlalchemy_store\n"
        "def work(sample):\n"
        "    sink = MlflowSink(info(tracking_uri=sys.argv[1], project='p'), Path('.'))\n"
        "    sink.deliver([trajectory(sample=sample, rollout=n) for n in range(3)])\n"
        "children = []\n"
        f"for sample in range({count}):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        code = 1\n"
        "        try: work(sample); code = 0\n"
        "        finally: os._exit(code)\n"
        "    children.append(pid)\n"
        "print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, uri, str(Path(__file__).parent)], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.stdout == f"{[0] * count}\n", done.stderr[-2000:]
    mlflow.set_tracking_uri(uri)
    assert len(traces("p")) == 3 * count
    with sqlite3.connect(tmp_path / "fresh.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        db.execute("CREATE TABLE another (n)")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("fresh.db*")}
    assert modes == dict.fromkeys(["fresh.db", "fresh.db-wal", "fresh.db-shm", "fresh.db.lock"], 0o600)


def test_a_store_of_another_release_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE alembic_version (version_num TEXT)")
        db.execute("INSERT INTO alembic_version VALUES ('0a8213491aaa')")
        db.execute("CREATE TABLE experiments (experiment_id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(Refused, match="mlflow db upgrade"):
        make(f"sqlite:///{path}", "p").deliver([trajectory()])
    assert path.read_bytes() == before


def test_without_a_uri_a_file_beside_the_runs_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "run-1"
    folder.mkdir(parents=True)
    memory: dict[str, str] = {}
    sink = MlflowSink(info(), folder, memory)
    sink.deliver([trajectory()])
    assert memory["place"] == f"sqlite:///{tmp_path}/runs/mlflow.db"
    mlflow.set_tracking_uri(memory["place"])
    assert len(traces(trajectory().attributes["project_name"])) == 1


def test_the_store_of_verls_own_logger_is_waited_for(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/verl.db"
    memory: dict[str, str] = {}
    sink = MlflowSink(info(), tmp_path / "run", memory)
    sink.bind("config", {"logger": ["console", "mlflow"], "project_name": "p"})
    with pytest.raises(Unavailable, match="waiting"):
        sink.deliver([trajectory()])
    sink.bind("mlflow", {"tracking_uri": uri})
    sink.deliver([trajectory()])
    assert memory["place"] == uri
    again = MlflowSink(info(), tmp_path / "run", memory)
    again.deliver([trajectory(rollout=1)])
    mlflow.set_tracking_uri(uri)
    assert len(traces(trajectory().attributes["project_name"])) == 2


# -- a server in trouble -----------------------------------------------------------------------------------------------


class Sulky(BaseHTTPRequestHandler):
    """Answers every request with what ``answer`` says."""

    answer: tuple[int, dict[str, str], str] = (200, {}, "{}")

    def _reply(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        code, headers, body = self.answer
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = _reply

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def sulky(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[Sulky]]]:
    handler = type("Handler", (Sulky,), {})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "canary-token")
    yield f"http://user:canary-password@127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((401, {}, "no"), Refused, "MLFLOW_TRACKING_USERNAME"),
        ((403, {}, "Invalid Host header"), Refused, "--allowed-hosts"),
        ((429, {"retry-after": "7"}, ""), Unavailable, "asked to wait"),
        ((503, {}, ""), Unavailable, "asked to wait"),
        ((500, {}, json.dumps({"message": "boom"})), Unavailable, "boom"),
        ((200, {}, "<html>"), Refused, "not an MLflow server"),
    ],
)
def test_trouble_is_told_apart(
    sulky: tuple[str, type[Sulky]], answer: tuple[int, dict[str, str], str], kind: type[Exception], words: str
) -> None:
    uri, handler = sulky
    handler.answer = answer
    with pytest.raises(kind, match=words) as raised:
        make(uri, "p").deliver([trajectory()])
    assert "canary" not in str(raised.value)
    if isinstance(raised.value, Unavailable) and answer[0] == 429:
        assert raised.value.retry_after == 7.0


@pytest.mark.row("server faults")
def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        make("http://127.0.0.1:9", "p").deliver([trajectory()])


def test_a_passing_500_loses_nothing_and_a_lasting_one_costs_its_trajectory() -> None:
    batch = [MlflowTrace(describe(trajectory(sample=sample), None), [], 0) for sample in range(3)]
    bad = batch[1].id
    tries: Counter[str] = Counter()

    def send(part: Any) -> None:
        if any(one.id == bad for one in part):
            raise StoreError("HTTP 500", passing=True)

    for _ in range(PATIENCE - 1):
        with pytest.raises(Unavailable, match="answers with errors"):
            isolate(batch, send, tries)
    rejected, taken = isolate(batch, send, tries)
    assert list(rejected) == [bad] and len(taken) == 2
    for _ in range(2 * PATIENCE):
        with pytest.raises(Unavailable):  # alone it proves nothing: the server may be down for all
            isolate([batch[1]], send, Counter())


def test_trajectories_that_failed_often_take_no_other_with_them() -> None:
    batch = [MlflowTrace(describe(trajectory(sample=sample), None), [], 0) for sample in range(8)]
    bad = [one.id for one in batch[:4]]

    def send(part: Any) -> None:
        if found := [one.id for one in part if one.id in bad]:
            raise StoreError(f"HTTP 500: {found[0]}", passing=True)

    rejected, taken = isolate(batch, send, Counter(dict.fromkeys(bad, PATIENCE)))
    assert list(rejected) == bad and [one.id for one in taken] == [one.id for one in batch[4:]]


def test_a_server_that_answers_500_to_everything_is_asked_about_three_trajectories() -> None:
    batch = [MlflowTrace(describe(trajectory(sample=sample), None), [], 0) for sample in range(64)]
    asked: list[int] = []

    def send(part: Any) -> None:
        asked.append(len(part))
        raise StoreError("HTTP 500", passing=True)

    with pytest.raises(Unavailable, match="answers with errors"):
        isolate(batch, send, Counter())
    assert asked.count(1) == 3


@pytest.mark.row("findings")
def test_findings_are_issues_that_mlflows_client_reads_back(
    uri: str, project: str, rollout: Callable[..., Trajectory]
) -> None:
    from mlflow.tracking._tracking_service.utils import _get_store

    one, other = rollout(reward=0.5), rollout(rollout=1)
    for sent in (one, other):
        marks = [Mark("AT-RETOKENIZED", 2, 117, "31 tokens are missing"), Mark("AT-OF-SOMEBODY-ELSE")]
        sent.profile = profile.encode(Profile("1", marks=marks))
        make(uri, project).deliver([sent])  # a sink of its own: it finds what the first one made
    make(uri, project).deliver([one])
    experiment = mlflow.get_experiment_by_name(project)
    assert experiment is not None
    issues = _get_store().search_issues(experiment_id=experiment.experiment_id, include_trace_count=True)
    by_name = {issue.name.partition(":")[0]: issue for issue in issues}
    assert by_name.keys() == {"AT-RETOKENIZED", "AT-OF-SOMEBODY-ELSE"} and len(issues) == 2
    issue = by_name["AT-RETOKENIZED"]
    assert (issue.created_by, issue.status.value, issue.trace_count) == ("autotrace", "pending", 2)
    assert issue.severity is not None and issue.categories == ["tokens"] and issue.root_causes
    assert _get_store().get_issue(issue.issue_id).description == issue.description != ""
    (read,) = [trace for trace in traces(project, "") if trace.info.trace_id == f"tr-{one.trace_id}"]
    (reference,) = [said for said in read.info.assessments if said.name == issue.issue_id]
    assert reference.issue.issue_name == issue.name
    assert reference.rationale == "turn 2, token 117: 31 tokens are missing"
    assert reference.span_id == one.llm_spans[1].span_id and reference.span_id in {s.span_id for s in read.data.spans}


@pytest.mark.parametrize(
    "error", [Refused("HTTP 403"), Unavailable("HTTP 503"), StoreError("HTTP 500"), AttributeError("a list")], ids=repr
)
def test_a_server_that_takes_no_issues_gets_the_traces_all_the_same(
    uri: str, project: str, rollout: Callable[..., Trajectory], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    asked: list[str] = []

    def issue(_: object, name: str, __: object) -> str:
        asked.append(name)
        raise error

    sink = make(uri, project)
    monkeypatch.setattr(type(sink._opened()), "issue", issue)
    for number in range(3):
        sent = rollout(rollout=number)
        sent.profile = profile.encode(Profile("1", marks=[Mark("AT-RETOKENIZED", 2), Mark("AT-NO-EOS")]))
        sink.deliver([sent])
    assert len(traces(project, "feedback.finding = 'AT-RETOKENIZED'")) == 3
    assert len(asked) == 1, "not for each trajectory again"


def test_an_mlflow_without_issues_gets_the_feedback_alone(
    uri: str, project: str, rollout: Callable[..., Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, sent = make(uri, project), rollout(reward=0.5)
    sent.profile = profile.encode(Profile("1", marks=[Mark("AT-RETOKENIZED", 2)]))
    opened = sink._opened()
    if isinstance(opened, SqlStore):
        names = {"get_experiment_by_name", "create_experiment", "engine"}
        without = SimpleNamespace(**{name: getattr(opened._store, name) for name in names})
        monkeypatch.setattr(opened, "_store", without)
    else:
        monkeypatch.setattr(opened, "_version", (3, 10))
    sink.deliver([sent])
    (found,) = traces(project, "feedback.finding = 'AT-RETOKENIZED'")
    assert not any(said.name.startswith("iss-") for said in found.info.assessments)
