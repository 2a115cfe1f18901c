"""When a process gets a file of its own."""

from __future__ import annotations

import shutil

from autotrace.record import context, faults, flusher
from autotrace.spool import layout
from autotrace.spool.records import Bind, Counters, Seal
from tests.record.conftest import Recorder


def test_a_process_that_has_nothing_to_say_leaves_no_file(recorder: Recorder) -> None:
    flusher.shutdown()
    assert not list(recorder.folder.rglob("*.seg"))


def test_what_was_dropped_is_something_to_say(recorder: Recorder) -> None:
    faults.count("drop:memory_limit")
    flusher.shutdown()
    assert recorder.records(Counters)[-1].drops == {"drop:memory_limit": 1}  # they are cumulative
    assert recorder.records(Seal)


def test_the_tokenizer_of_a_temporary_folder_is_copied_by_the_process_that_has_it(recorder: Recorder) -> None:
    model = recorder.folder / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text('{"model": 1}')
    (model / "model.safetensors").write_bytes(b"0" * 100)
    context.bind("tokenizer", {"path": str(model), "trust_remote_code": False})
    flusher.flush()
    shutil.rmtree(model)
    (bind,) = recorder.records(Bind)
    kept = recorder.folder / layout.BLOBS / bind.value["blob"]
    assert [file.name for file in kept.iterdir()] == ["tokenizer.json"]

    context.bind("tokenizer", {"path": "some/model-of-the-hub"})
    assert "blob" not in recorder.records(Bind)[-1].value
    assert not faults.counts
