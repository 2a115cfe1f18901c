"""How trajectories are found on MLflow's page: what docs/backends.md says of its search field, filters and addresses.

The requests are those that the page of MLflow 3.17 sends, seen in a browser's network log; that the installed
page still builds them so is looked up in its script.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import pytest

from autotrace.sinks.mlflow.sink import MlflowSink
from tests.mlflow_server import MlflowServer
from tests.sinks.rollouts import info, trajectory

Ask = Callable[[str], list[str]]
SCRIPTS = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"


@pytest.fixture(scope="module")
def ask(mlflow_server: MlflowServer) -> Iterator[Ask]:
    """Titles of the traces that the page shows for a filter; steps 3 and 12, two rollouts each, rewards 0 and 1."""
    server = mlflow_server
    sink = MlflowSink(info(tracking_uri=server.url, project="page", backends=["mlflow"]), Path("/tmp/run"))
    group = [trajectory(step=step, rollout=number, reward=float(number)) for step in (3, 12) for number in (0, 1)]
    sink.deliver(group)
    title_of = {f"tr-{one.trace_id}": "step {step} rollout {rollout_n}".format(**one.attributes) for one in group}
    experiment = sink.page(group[0]).split("/experiments/")[1].split("/")[0]
    location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}

    def shown(text: str) -> list[str]:
        body = {"locations": [location], "filter": text, "max_results": 25, "order_by": ["timestamp DESC"]}
        request = urllib.request.Request(
            f"{server.url}/ajax-api/3.0/mlflow/traces/search",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return sorted(title_of[trace["trace_id"]] for trace in json.load(answer).get("traces", []))

    yield shown
    sink.close()


def test_the_search_field_looks_through_texts_alone(ask: Ask) -> None:
    assert ask("trace.text ILIKE '%rollout 1.%'") == ["step 12 rollout 1", "step 3 rollout 1"]
    assert ask("trace.text ILIKE '%tags.step = ''12''%'") == [], "a filter typed there is taken for text"


def test_filters_and_addresses_find_tags_and_feedback(ask: Ask) -> None:
    assert ask("tags.step = '12'") == ["step 12 rollout 0", "step 12 rollout 1"]
    assert ask("attributes.timestamp_ms < 9995330984867 AND tags.step = '12' AND tags.rollout_n = '1'") == [
        "step 12 rollout 1"
    ]
    assert ask("feedback.`reward` = '1.0'") == ["step 12 rollout 1", "step 3 rollout 1"]


def test_search_in_python_compares_feedback_as_numbers(ask: Ask) -> None:
    assert ask("tags.step = '3' AND feedback.reward < 0.1") == ["step 3 rollout 0"]


@pytest.mark.parametrize(
    "built",
    [
        "`trace.text ILIKE '%${",  # the search field
        'case"tag":return`${',  # Filters: Tag
        'case"assessment":return`feedback.\\`${',  # Filters: Feedback
        ".tagFilters,e.map(({key:e,value:t})=>`${",  # ?tag=step%3D12 of the address
        "tags.${",
    ],
)
def test_the_installed_page_builds_these_requests(built: str) -> None:
    pages = [path for path in SCRIPTS.glob("*.chunk.js") if "`trace.text ILIKE '%${" in path.read_text()]
    assert pages, "the page searches in another way: docs/backends.md, README.md"
    assert any(built in path.read_text() for path in pages)
