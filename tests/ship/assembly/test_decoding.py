"""Texts come from the run's tokenizer; what cannot be decoded costs the text alone."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from autotrace.config import environment as env
from autotrace.config.plan import Plan, Settings
from autotrace.run import layout
from autotrace.ship.assembly.decoding import Decoder
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.sinks import payload
from autotrace.sinks.jsonl.sink import line_of
from autotrace.sinks.mlflow.info import previews
from autotrace.spool.blobs import keep_tokenizer
from autotrace.trajectory.markup import prompt_messages, response_message
from autotrace.trajectory.model import Trajectory
from tests.cases import some
from tests.ship.spools import Process, attributes, new_run

pytestmark = pytest.mark.row("token2text")

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
FIRST = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
SAID = f"Let me see.\n{CALL}<|im_end|>"
TOLD = "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
ANSWER = "It is 4.<|im_end|>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of bytes with ChatML's marks, saved as a model folder has it."""
    folder = tmp_path_factory.mktemp("model")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    from tokenizers import decoders

    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False})
    )
    return folder


@pytest.fixture(autouse=True)
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are the run's own shipper; ``tests/security`` has what a stranger's folder may do."""
    monkeypatch.setenv(env.OWN_RUN, str(tmp_path / "run"))


def recorded(tmp_path: Path, model: Path, **bind: object) -> tuple[Path, bytes]:
    """A run with one trajectory of two turns."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    first, said, told, answer = (tokenizer.encode(text).ids for text in (FIRST, SAID, TOLD, ANSWER))
    run = new_run(tmp_path)
    process = Process(run)
    process.bind("tokenizer", **{"path": str(model), "trust_remote_code": False, **bind})
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes())
    agent = process.open(trace, "agent", root)
    llm = process.open(trace, "llm", agent, first)
    process.close(trace, llm, said)
    llm = process.open(trace, "llm", agent, first + said + told)
    process.close(trace, llm, answer)
    process.close(trace, agent)
    process.close(trace, root)
    process.exit()
    return run, trace


def test_turns_are_messages_and_special_tokens_are_kept(tmp_path: Path, model: Path) -> None:
    run, trace = recorded(tmp_path, model)
    loaded = of_run(run).load(trace.hex())
    first, second = loaded.llm_spans
    assert (first.new_prompt_text, first.response_text) == (FIRST, SAID)
    assert (second.new_prompt_text, second.response_text) == (TOLD, ANSWER)
    assert second.prompt_text == FIRST + SAID + TOLD
    assert [message["role"] for message in first.messages or []] == ["system", "user", "assistant"]
    assert (first.messages or [])[-1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2}'}
    assert second.messages == [{"role": "tool", "content": "4"}, {"role": "assistant", "content": "It is 4."}]
    agent = loaded.spans[1]
    assert (agent.prompt_text, agent.response_text) == (FIRST, SAID + TOLD + ANSWER)
    assert loaded.tokenizer and loaded.notes == []


def test_previews_are_words_without_the_marks_of_the_template(tmp_path: Path, model: Path) -> None:
    run, trace = recorded(tmp_path, model)
    assert previews(of_run(run).load(trace.hex())) == ("2+2?", "It is 4.")


def test_a_copy_in_the_run_folder_is_preferred(tmp_path: Path, model: Path) -> None:
    run, trace = recorded(tmp_path, model, path="/no/such/model", blob="abc")
    (run / "blobs" / "abc").symlink_to(model)
    assert of_run(run).load(trace.hex()).llm_spans[0].response_text == SAID


def test_without_its_tokenizer_a_trajectory_has_no_text_and_says_so(tmp_path: Path, model: Path) -> None:
    run, trace = recorded(tmp_path, model, path=str(tmp_path / "gone"))
    loaded = of_run(run).load(trace.hex())
    assert loaded.llm_spans[0].response_text is None and loaded.llm_spans[0].response_ids
    assert any("tokenizer cannot be loaded" in note for note in loaded.notes)


def _as_mlflow(one: Trajectory) -> str:
    from autotrace.sinks.mlflow.spans import encode

    return " ".join(map(str, encode(one)))


def _as_weave(one: Trajectory) -> str:
    from autotrace.sinks.weave.calls import WeaveCalls

    return json.dumps([WeaveCalls(one, "team/project", None).of(span) for span in one.spans])


def _as_otlp(one: Trajectory) -> str:
    from opentelemetry.sdk.resources import Resource

    from autotrace.sinks.otlp.spans import otel_span

    return json.dumps([dict(otel_span(one, span, Resource({})).attributes or {}) for span in one.spans])


def _as_jsonl(one: Trajectory) -> str:
    return json.dumps(line_of(one))


def _slow(folder: Path) -> None:
    """One that transformers has no fast form of: no ``tokenizer.json``, pure Python."""
    from transformers import ByT5Tokenizer

    ByT5Tokenizer(extra_ids=0, additional_special_tokens=["<|im_start|>", "<|im_end|>"]).save_pretrained(folder)


def _remote_code(folder: Path) -> None:
    """One whose class comes with the model."""
    _slow(folder)
    (folder / "tokenization_mine.py").write_text(
        "from transformers import ByT5Tokenizer\n\n\nclass Mine(ByT5Tokenizer):\n    pass\n"
    )
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.update(tokenizer_class="Mine", auto_map={"AutoTokenizer": ["tokenization_mine.Mine", None]})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _processor(folder: Path, model: Path) -> None:
    """A multimodal model's: the tokenizer within a processor."""
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    LlavaProcessor(image_processor=CLIPImageProcessor(), tokenizer=tokenizer, patch_size=14).save_pretrained(folder)


@pytest.mark.parametrize("kind", some(["slow", "remote code", "processor"], "remote code"))
def test_every_kind_of_tokenizer_is_loaded_as_the_run_loaded_it(tmp_path: Path, model: Path, kind: str) -> None:
    from transformers import AutoTokenizer

    folder = tmp_path / "theirs"
    folder.mkdir()
    {"slow": _slow, "remote code": _remote_code, "processor": lambda to: _processor(to, model)}[kind](folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=kind == "remote code")
    ids = [tokenizer(text, add_special_tokens=False).input_ids for text in (FIRST, SAID)]
    run = new_run(tmp_path)
    process = Process(run)
    process.bind("tokenizer", path=str(folder), trust_remote_code=kind == "remote code")
    trace = os.urandom(16)
    process.close(trace, process.open(trace, "llm", 0, ids[0]), ids[1])
    process.exit()
    kept = keep_tokenizer(run, folder)
    assert kept is not None
    shutil.rmtree(folder)  # as a run with a temporary folder does: the copy is enough
    decoder = Decoder(run)
    decoder.bind({"blob": kept, "path": str(folder), "trust_remote_code": kind == "remote code"})
    loaded = of_run(run).load(trace.hex(), texts=False)
    decoder.add_texts(loaded)
    (span,) = loaded.llm_spans
    assert (span.new_prompt_text, span.response_text) == (FIRST, SAID), decoder.problem


def test_code_of_a_model_runs_only_if_the_run_allowed_it(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    _remote_code(folder)
    with (folder / "tokenization_mine.py").open("a") as file:
        file.write(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    for allowed in (False, True):
        decoder = Decoder(tmp_path / "run")
        decoder.bind({"path": str(folder), "trust_remote_code": allowed})
        decoder.decode([1])
        assert (tmp_path / "ran").exists() is allowed


@pytest.mark.parametrize("shown", [_as_mlflow, _as_weave, _as_otlp, _as_jsonl])
def test_text_only_has_texts_and_no_token_ids(tmp_path: Path, model: Path, shown: Callable[[Trajectory], str]) -> None:
    run, trace = recorded(tmp_path, model)
    whole = of_run(run).load(trace.hex())
    (run / layout.PLAN_JSON).write_text(Plan((), Settings(content="text")).dumps())
    loaded = of_run(run).load(trace.hex(), texts=False)
    loaded.spans[1].output = {"token_ids": [7001, 7002], "extra": {"prompt_ids": [[7003]]}, "steps": [1, 2]}
    decoder = Decoder(run)
    decoder.bind({"path": str(model)})
    decoder.add_texts(loaded)

    assert [span.response_text for span in loaded.llm_spans] == [SAID, ANSWER]
    told, full = shown(loaded), shown(whole)
    assert "It is 4." in told
    (first, *_) = whole.llm_spans
    for ids in (first.new_prompt_ids or [], first.response_ids or []):
        for spelt in (payload.packed(ids), json.dumps(ids)):
            assert spelt not in told
        assert payload.packed(ids) in full or json.dumps(ids) in full
    assert not re.search(r"\b700[123]\b", told)  # a time may end so
    assert payload.usage(loaded.llm_spans[0]) == payload.usage(first)


def test_text_only_delivers_no_token_ids_where_there_is_no_text_either(tmp_path: Path, model: Path) -> None:
    run, trace = recorded(tmp_path, model, path=str(tmp_path / "gone"))
    (run / layout.PLAN_JSON).write_text(Plan((), Settings(content="text")).dumps())
    assert ship(run, once=True).state == "done"
    (line,) = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert line["trace_id"] == trace.hex()
    assert not any(name in span for span in line["spans"] for name in ("new_prompt_ids", "response_ids"))
    assert any("no text" in note for note in line["notes"])


def test_impossible_token_ids_cost_the_text_alone(tmp_path: Path, model: Path) -> None:
    run, trace = recorded(tmp_path, model)
    loaded: Trajectory = of_run(run).load(trace.hex(), texts=False)
    loaded.spans[2].response_ids = [-5, 2**31 - 1]
    decoder = Decoder(run)
    decoder.bind({"path": str(model)})
    decoder.add_texts(loaded)
    assert len(loaded.spans) == 4


def test_what_is_tokenised_anew_keeps_the_role_that_the_template_gives_it() -> None:
    begun = FIRST + "Let me"
    added = [(message["role"], message["content"]) for message in prompt_messages(" see.<|im_end|>" + TOLD, begun)]
    assert added == [("assistant", "see."), ("tool", "4")]
    assert prompt_messages(" think", FIRST + "I") == [{"role": "assistant", "content": "think"}]
    deepseek = "<｜begin▁of▁sentence｜>Be brief.<｜User｜>2+2?<｜Assistant｜>It"  # noqa: RUF001
    assert prompt_messages(" is 4", deepseek) == [{"role": "assistant", "content": "is 4"}]


def test_a_models_words_are_nobodys_where_the_markup_is_not_known(tmp_path: Path, model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    run = new_run(tmp_path)
    process = Process(run)
    process.bind("tokenizer", path=str(model))
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes())
    prompt, said = tokenizer.encode("Q: 2+2?\nA:").ids, tokenizer.encode(" It is  four").ids
    anew = tokenizer.encode("Q: 2+2?\nA: It is four\nQ: Sure?\nA:").ids
    for read in (prompt, anew):
        process.close(trace, process.open(trace, "llm", root, read), said)
    process.close(trace, root)
    process.exit()
    assert ship(run, once=True).state == "done"
    first, second = of_run(run).load(trace.hex()).llm_spans
    roles = [[message["role"] for message in span.messages or []] for span in (first, second)]
    assert roles == [["user", "assistant"], ["history", "assistant"]]


def test_llama_markup_and_none_at_all() -> None:
    llama = (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert prompt_messages(llama) == [{"role": "user", "content": "Hi"}]
    assert prompt_messages("Q: 2+2?\nA:") == [{"role": "user", "content": "Q: 2+2?\nA:"}]
    assert prompt_messages(" ") == []
    assert response_message("4") == {"role": "assistant", "content": "4"}
    broken = "<tool_call>{not json}</tool_call>"
    assert response_message(broken) == {"role": "assistant", "content": broken}


def test_other_families_of_templates_than_chatml() -> None:
    gemma = "<bos><start_of_turn>user\n2+2?<end_of_turn>\n<start_of_turn>model\n4<end_of_turn>\n<start_of_turn>model\n"
    assert prompt_messages(gemma) == [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    deepseek = "<｜begin▁of▁sentence｜>Be brief.<｜User｜>2+2?<｜Assistant｜>"  # noqa: RUF001
    said = [(message["role"], message["content"]) for message in prompt_messages(deepseek)]
    assert said == [("system", "Be brief."), ("user", "2+2?")]
    phi = "<|system|>\nBe brief.<|end|>\n<|user|>\n2+2?<|end|>\n<|assistant|>\n"
    assert [message["role"] for message in prompt_messages(phi)] == ["system", "user"]
    assert prompt_messages("Question: 2+2?\nAnswer:") == [{"role": "user", "content": "Question: 2+2?\nAnswer:"}]


def test_patches_of_an_image_are_counted() -> None:
    prompt = f"<|im_start|>user\n<|vision_start|>{'<|image_pad|>' * 1024}<|vision_end|>What is it?<|im_end|>\n"
    (message,) = prompt_messages(prompt)
    assert message["content"] == "<|vision_start|><|image_pad|>x1024<|vision_end|>What is it?"
