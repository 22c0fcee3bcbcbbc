"""`evaluate.py`: scripted models with known scores, servers that fail, interruptions, tiny models."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from render.image import IMAGE_STYLES
from render.text import CAPTION_STYLES
from tests import oracle, tiny_chat
from tests.chat_server import ChatServer, text_and_picture
from tests.helpers import generated, page_data, wait_for
from tests.oracle import answer
from train.ask import command, evaluation
from train.ask.config import Evaluation, ShownStyle
from train.ask.evaluation import evaluate
from train.ask.local import ChatModel
from train.ask.requests import Reply, Request
from train.config import Run, Training
from train.data.text import grammar_tokenizer
from train.models import make_model
from train.models.loading import save_statistics
from train.results.answers import read_answers
from train.results.predictions import read_predictions
from train.results.store import read_results
from train.run import run
from travlr.config import Count, Image
from travlr.dataset import open_dataset
from travlr.questions import FORMS, PROMPTS
from travlr.questions.forms import SETTINGS
from travlr.tasks import PAPER, TASKS

pytestmark = pytest.mark.usefixtures("rules_not_fitted")
COUNT = Count(train=200, validation=20, test_ind=20, test_ood=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small dataset of each task."""
    folder = tmp_path_factory.mktemp("data")
    image = Image(cell=36)
    return {name: generated(folder / name, TASKS[name].Config(count=COUNT, image=image)) for name in PAPER}


class Scripted:
    """A model whose replies a function makes from the text and the picture of a request."""

    settings = SETTINGS

    def __init__(self, respond: Any) -> None:
        self.respond = respond
        self.keys: list[tuple[str, str, str]] = []

    def replies(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Reply]]:
        for request in requests:
            self.keys.append((request.split, request.setting, request.id))
            content = request.messages[0]["content"]
            texts = [part["text"] for part in content if part["type"] == "text"]
            pictures = [part["image"] for part in content if part["type"] == "image"]
            yield request, Reply(self.respond("\n\n".join(texts), pictures[0] if pictures else None))


def ask(monkeypatch: pytest.MonkeyPatch, model: Any, data: Path, runs: Path, **changes: Any) -> list[dict[str, Any]]:
    """The rows of an evaluation of a scripted model."""
    identity = {"model": "scripted", "origin": "zero-shot", "weights": "none"}
    monkeypatch.setattr(evaluation, "load_backend", lambda *_: (model, identity))
    config = Evaluation(model="scripted", task=data.name, data=str(data), runs=str(runs), **changes)
    return evaluate(config, log=lambda _: None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("task", PAPER)
def test_evaluate_scores_100_for_the_right_answers(
    task: str, form: str, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for prompt in PROMPTS if task == "cardinality" else ("reason",):
        rows = ask(monkeypatch, Scripted(answer), data[task], tmp_path, form=form, prompt=prompt, limit=8)
        assert {(row["test_setting"], row["split"]) for row in rows} == {
            (setting, split) for setting in ("image", "caption", "image+caption") for split in ("test_ind", "test_ood")
        }
        for row in rows:
            scores = [row[name] for name in ("accuracy", "macro_f1", "couples_right", "unparsed", "bias")]
            assert scores == [100, 100, 100, 0, 0], row


@pytest.mark.parametrize(
    ("image", "caption"),
    [*((image, "sentences") for image in IMAGE_STYLES), *(("plain", caption) for caption in CAPTION_STYLES)],
)
def test_evaluate_shows_every_style(
    image: str, caption: str, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle, "IMAGE_STYLE", [image])
    monkeypatch.setattr(oracle, "CAPTION_STYLE", [caption])
    style = ShownStyle(image=image, caption=caption)
    seen: set[bytes] = set()

    def answer_and_note(text: str, picture: bytes | None) -> str:
        seen.add(text.encode() if picture is None else picture)
        return answer(text, picture)

    for row in ask(monkeypatch, Scripted(answer_and_note), data["spatiality"], tmp_path, style=style, limit=4):
        assert (row["accuracy"], row["image_style"], row["caption_style"]) == (100, image, caption)
    example = open_dataset(data["spatiality"])["test_ind"][0]
    assert (example.image in seen) is (image == "plain")
    assert any(example.caption.encode() in one for one in seen) is (caption == "sentences")


def blind(text: str, picture: bytes | None) -> str:
    return "true" if "red" in text.partition("false?")[2] or len(text) % 2 else "false"


@pytest.mark.parametrize(("respond", "accuracy", "unparsed"), [(blind, 50, 0), (lambda *_: "I cannot see it.", 0, 100)])
def test_evaluate_scores_a_reader_of_queries_and_refusals(
    respond: Any, accuracy: int, unparsed: int, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in ask(monkeypatch, Scripted(respond), data["cardinality"], tmp_path, setting=["image"]):
        scores = [row[name] for name in ("accuracy", "unparsed", "couples_right", "chance", "above_random")]
        assert scores == [accuracy, unparsed, 0, 50, False]


def test_evaluate_read_counts_a_misread_shape(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confused(text: str, picture: bytes | None) -> str:
        return answer(text, picture, lambda o: replace(o, shape="circle") if o.shape == "octagon" else o)

    rows = ask(monkeypatch, Scripted(confused), data["cardinality"], tmp_path, form="read")
    for row in rows:
        errors = json.loads(row["objects"])
        if row["test_setting"] == "caption":
            assert set(errors) == {"found"} and row["accuracy"] == 100
        else:
            assert set(errors) == {"found", "misshaped"} and row["accuracy"] < 100


# Servers -------------------------------------------------------------------------------------------------------------


def reply_of(body: dict[str, Any]) -> str:
    return answer(*text_and_picture(body))


def server_config(server: ChatServer, data: Path, runs: Path, **changes: Any) -> Evaluation:
    values: dict[str, Any] = {"model": f"{server.url}#tiny", "limit": 6, "split": ["test_ood"], "concurrency": 3}
    return Evaluation(**{**values, "task": data.name, "data": str(data), "runs": str(runs), **changes})


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *_, **__: 0.0)


def test_evaluate_outlives_a_server_that_fails_and_recovers(
    data: dict[str, Path], tmp_path: Path, no_pauses: None
) -> None:
    faults = ("429", "500", "closed", "429")
    with ChatServer(reply_of, faults) as server:
        rows = evaluate(server_config(server, data["cardinality"], tmp_path), log=lambda _: None)
        assert len(server.bodies) == 18 + len(faults) and server.answered == 18
    assert all((row["accuracy"], row["input_tokens"], row["weights"]) == (100, 600, server.url) for row in rows)


@pytest.mark.parametrize("fault", ["half", "nonsense", "text", "tokens"])
def test_evaluate_names_a_server_whose_reply_is_broken(fault: str, data: dict[str, Path], tmp_path: Path) -> None:
    with ChatServer(reply_of, ("", "", fault)) as server:
        config = server_config(server, data["cardinality"], tmp_path, setting=["caption"], concurrency=1)
        with pytest.raises(ValueError, match=r"^server=.*completion.*$"):
            evaluate(config, log=lambda _: None)
        (row,) = evaluate(config, log=lambda _: None)
        assert row["accuracy"] == 100 and server.answered == 6


def test_evaluate_resumes_after_a_server_failed(
    data: dict[str, Path], tmp_path: Path, no_pauses: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.ask.server.RETRIES", 1)
    with ChatServer(reply_of) as server:
        server.faults = [""] * 7 + ["500"] * 100
        config = server_config(server, data["quantifiers"], tmp_path)
        with pytest.raises(ValueError, match=r"^server=.*status 500 .*$") as error:
            evaluate(config, log=lambda _: None)
        assert "\n" not in str(error.value)
        answered = server.answered
        server.faults = []
        rows = evaluate(config, log=lambda _: None)
        assert server.answered == 18 and answered >= 7
    assert [row["accuracy"] for row in rows] == [100] * 3


@pytest.mark.parametrize(("status", "words"), [(401, "OPENAI_API_KEY"), (404, "model=tiny"), (400, "status 400")])
def test_server_refusal_does_not_show_the_key(
    status: int, words: str, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with ChatServer(reply_of, refusal=status) as server:
        config = server_config(server, data["cardinality"], tmp_path, concurrency=1)
        with pytest.raises(ValueError, match=words) as error:
            evaluate(config, log=lambda _: None)
        assert len(server.bodies) == 1 and server.keys == {"Bearer sk-very-secret"}
    assert "\n" not in str(error.value) and "sk-very" not in str(error.value)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"sk-very" in path.read_bytes() for path in files)


TEXT = "the answer is true"
REFUSALS: list[Any] = [
    400,
    {"error": {"message": TEXT, "code": 400}},
    {"error": TEXT},
    {"content": None, "refusal": TEXT},
    {"choices": []},
    {"choices": None},
]


@pytest.mark.parametrize("answers", ["generate", "likelihood"])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_server_refused_request_has_no_answer(
    refusal: Any, answers: str, data: dict[str, Path], tmp_path: Path
) -> None:
    asked: list[str] = []

    def refuses(body: dict[str, Any]) -> Any:
        asked.append(json.dumps(body))
        if asked[0] == asked[-1]:
            return refusal
        return None

    with ChatServer(reply_of, refuses=refuses) as server:
        config = server_config(server, data["cardinality"], tmp_path, setting=["image"], answers=answers)
        (row,) = evaluate(config, log=lambda _: None)
        assert len(server.bodies) == 6
        evaluate(config, log=lambda _: None)
        assert len(server.bodies) == 6
    assert row["examples"] == 6 and row["accuracy"] == pytest.approx(100 * 5 / 6)
    (refused,) = [a for a in read_answers(tmp_path / row["name"]) if a.finish == "refused"]
    assert refused.parsed is None and (TEXT in refused.reply or "choices" in refused.reply)


def test_server_refusing_all_requests_stops(data: dict[str, Path], tmp_path: Path) -> None:
    with ChatServer(reply_of, refusal=400) as server:
        with pytest.raises(ValueError, match="status 400"):
            evaluate(server_config(server, data["cardinality"], tmp_path), log=lambda _: None)
        assert len(server.bodies) <= 3


def test_server_joins_content_in_parts(data: dict[str, Path], tmp_path: Path) -> None:
    def parts(body: dict[str, Any]) -> dict[str, Any]:
        text = reply_of(body)
        return {"content": [{"type": "thinking", "thinking": "no"}, *({"type": "text", "text": t} for t in text)]}

    with ChatServer(reply_of, refuses=parts) as server:
        rows = evaluate(server_config(server, data["cardinality"], tmp_path), log=lambda _: None)
    assert all(row["accuracy"] == 100 for row in rows)


def test_log_probabilities_of_a_server(data: dict[str, Path], tmp_path: Path) -> None:
    with ChatServer(reply_of) as server:
        config = server_config(server, data["cardinality"], tmp_path / "a", answers="likelihood")
        rows = evaluate(config, log=lambda _: None)
        assert {body["top_logprobs"] for body in server.bodies} == {20}
    assert all((row["accuracy"], row["calibrated_accuracy"]) == (100, 100) for row in rows)
    with ChatServer(reply_of, logprobs=False) as server:
        config = server_config(server, data["cardinality"], tmp_path / "b", answers="likelihood")
        with pytest.raises(ValueError, match="answers=generate"):
            evaluate(config, log=lambda _: None)


def test_server_with_other_settings_and_no_usage(data: dict[str, Path], tmp_path: Path) -> None:
    with ChatServer(reply_of, modern=True) as server:
        config = server_config(server, data["cardinality"], tmp_path, setting=["caption"], limit=20, concurrency=1)
        (row,) = evaluate(config, log=lambda _: None)
        assert row["accuracy"] == 100 and row["input_tokens"] is None
        last = server.bodies[-1]
        assert last["max_completion_tokens"] == 32 and not {"max_tokens", "temperature"} & last.keys()


def test_evaluate_keeps_the_scores_of_earlier_calls(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, Scripted(answer), data["cardinality"], tmp_path, setting=["image"], limit=10)
    rows = ask(monkeypatch, Scripted(answer), data["cardinality"], tmp_path, setting=["caption"], limit=4)
    assert [row["test_setting"] for row in rows] == ["caption", "caption"]
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert {(row["test_setting"], row["examples"]) for row in read_results(folder)} == {("image", 10), ("caption", 4)}


# Models of transformers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["idefics3", "gemma3", "qwen3_vl"])
def test_chat_model_batch_equals_single_requests(
    kind: str, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    processor = tiny_chat.saved(kind, tmp_path / kind)
    if kind in tiny_chat.NEED_TORCHVISION:
        monkeypatch.setattr(transformers.AutoProcessor, "from_pretrained", lambda *_, **__: processor)
    results = []
    for batch_size in (1, 4):
        config = Evaluation(
            model=str(tmp_path / kind), task="cardinality", data=str(data["cardinality"]), limit=4,
            split=["test_ood"], runs=str(tmp_path / f"runs{batch_size}"), batch_size=batch_size, max_tokens=6,
            precision="float32", answers="likelihood" if kind == "gemma3" else "generate",
        )  # fmt: skip
        rows = evaluate(config, log=lambda _: None)
        results.append(
            {(a.setting, a.id): a.reply for a in read_answers(tmp_path / f"runs{batch_size}" / rows[0]["name"])}
        )
        assert all(row["input_tokens"] > 0 and row["examples"] == 4 for row in rows)
    assert results[0] == results[1] and len(results[0]) == 12


def test_evaluate_names_what_a_model_lacks(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.ask.local.SPELLINGS", {"true": "true", "false": "false"})  # no tokens of the tiny ones
    tiny_chat.saved("llava", tmp_path / "llava")
    config = Evaluation(model=str(tmp_path / "llava"), data=str(data["cardinality"]))
    words = config.changed(answers="likelihood")
    with pytest.raises(ValueError, match=r"^answers=likelihood: .*true, false"):
        evaluate(words.changed(runs=str(tmp_path / "runs"), limit=2), log=lambda _: None)
    (tmp_path / "llava" / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="chat template"):
        ChatModel(config)
    weights = tmp_path / "llava" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])  # as after a download that was interrupted
    for file in (tmp_path / "llava").glob("*token*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"model=.*llava: model\.safetensors [^\n]+$"):
        ChatModel(words.changed(runs=str(tmp_path / "runs")))
    clip = tmp_path / "clip"
    clip.mkdir()
    (clip / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(ValueError, match="model_type=clip"):
        ChatModel(config.changed(model=str(clip)))


def test_evaluate_names_a_processor_without_pictures(data: dict[str, Path], tmp_path: Path) -> None:
    """transformers takes the tokenizer for a processor that it does not know."""
    folder = tmp_path / "qwen3_vl"
    processor = tiny_chat.saved("qwen3_vl", folder)
    processor.tokenizer.chat_template = processor.chat_template
    for file in folder.glob("*processor*"):
        file.unlink()
    processor.tokenizer.save_pretrained(folder)
    asked = Evaluation(model=str(folder), data=str(data["cardinality"]), setting=["image"], runs=str(tmp_path / "runs"))
    with pytest.raises(ValueError, match=r"model=.*qwen3_vl: .*pixel_values"):
        evaluate(asked, log=lambda _: None)


def test_evaluate_text_model_on_captions(data: dict[str, Path], tmp_path: Path) -> None:
    import transformers

    library: Any = transformers
    words = tiny_chat.tokenizer("<s>", "</s>")
    words.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}AnswerRecord:"
    config = library.LlamaConfig(**tiny_chat.TEXT, vocab_size=len(words))
    library.LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    words.save_pretrained(tmp_path / "llama")
    asked = Evaluation(
        model=str(tmp_path / "llama"), data=str(data["cardinality"]), limit=4, setting=["caption"],
        runs=str(tmp_path / "runs"), max_tokens=4,
    )  # fmt: skip
    assert [row["examples"] for row in evaluate(asked, log=lambda _: None)] == [4, 4]
    with pytest.raises(ValueError, match=r"setting=image: .*caption"):
        evaluate(asked.changed(setting=["image"]), log=lambda _: None)


def save_albef(folder: Path) -> str:
    """A tiny checkpoint with its tokenizer and statistics of pixels."""
    words = grammar_tokenizer()
    folder.mkdir()
    words.save_pretrained(folder)
    save_statistics(folder, ((0.5, 0.4, 0.3), (0.6, 0.7, 0.8)))
    model = make_model("albef", "tiny", vocabulary=len(words))
    save_file(model.state_dict(), folder / "model.safetensors")
    return str(folder)


@pytest.mark.parametrize("model", ["uniter", "albef"])
def test_evaluate_gives_a_run_its_scores_again(model: str, data: dict[str, Path], tmp_path: Path) -> None:
    """Also that of a run with published weights, which are gone. Settings that a run does not have are named."""
    trained = Run(
        model=model, size="tiny", data=str(data["cardinality"]), runs=str(tmp_path), precision="float32",
        pretrained=save_albef(tmp_path / "albef") if model == "albef" else None,
        training=Training(steps=2, check_every=2),
    )  # fmt: skip
    expected = {(r["test_setting"], r["split"]): r for r in run(trained, log=lambda _: None)}
    folder = tmp_path / next(iter(expected.values()))["name"]
    shutil.rmtree(tmp_path / "albef", ignore_errors=True)
    again = Evaluation(model=str(folder), data=str(data["cardinality"]), runs=str(tmp_path / "again"), limit=None)
    rows = evaluate(again, log=lambda _: None)
    assert len(rows) == len(expected) == 6
    for row in rows:
        before = expected[row["test_setting"], row["split"]]
        assert row["origin"] == "trained" and row["examples"] == before["examples"]
        for name in ("accuracy", "macro_f1", "couples_right", "baseline_unbound"):
            assert row[name] == pytest.approx(before[name]), name
    logits = {(a.id, a.setting): a.score for a in read_answers(tmp_path / "again" / rows[0]["name"])}
    for line in read_predictions(folder).to_pylist():
        assert logits[line["id"], line["test_setting"]] == pytest.approx(line["logit"], abs=1e-5)
    if model == "albef":
        return
    unusable: dict[str, Any] = {"form": "choice", "seed": 3, "max_tokens": 5, "temperature": 1.0, "revision": "x"}
    for name, value in unusable.items():
        with pytest.raises(ValueError, match=f"{name}={value}"):
            evaluate(again.changed(**{name: value}), log=lambda _: None)
    with pytest.raises(ValueError, match="task=spatiality"):
        evaluate(again.changed(task="cardinality", data=str(data["spatiality"])), log=lambda _: None)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        evaluate(again.changed(runs=str(tmp_path / "more")), log=lambda _: None)


def test_server_key_is_refused_in_one_line(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer(reply_of, refusal=401) as server:
        config = server_config(server, data["cardinality"], tmp_path)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very secret")
        with pytest.raises(ValueError, match="OPENAI_API_KEY") as error:
            evaluate(config, log=lambda _: None)
        assert "sk-very" not in str(error.value) and not server.bodies
        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(ValueError, match="without a key"):
            evaluate(config, log=lambda _: None)


WRONG: tuple[list[str], ...] = (
    ["model=x", "answers=likelihood", "form=read"],
    ["model=x", "server='http://localhost/v1?api_key=q'"],
    ["model=x", "server=http://localhost/v1", "precision=bf16"],
    [],
)


@pytest.mark.parametrize("arguments", WRONG)
def test_evaluate_names_a_wrong_setting(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["evaluate", *arguments])
    with pytest.raises(SystemExit):
        command.command()
    wrong = arguments[-1].partition("=")[0] if arguments else "model"
    assert wrong in capsys.readouterr().err.splitlines()[-1]


def test_evaluate_prints_a_table(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer(reply_of) as server:
        arguments = [
            f"server={server.url}", "model=tiny", f"data={data['cardinality']}", f"runs={tmp_path}", "limit=4",
            "setting=[image,caption]",
        ]  # fmt: skip
        monkeypatch.setattr("sys.argv", ["evaluate", *arguments])
        command.command()
    out = capsys.readouterr().out
    assert "gap" in out and "+0.0 points" in out and "best unbound" in out


# The report ----------------------------------------------------------------------------------------------------------


def test_report_of_an_evaluation_shows_wrong_replies(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from analysis.report import main as report

    def confused(text: str, picture: bytes | None) -> str:
        return answer(text, picture, lambda o: replace(o, shape="circle") if o.shape == "octagon" else o)

    ask(monkeypatch, Scripted(confused), data["cardinality"], tmp_path)
    assert report([str(tmp_path)]) == 0
    cards = page_data((tmp_path / "report" / "report.html").read_text(), "errors-data")["cards"]
    assert {row["test_setting"] for card in cards for row in card["rows"]} >= {"image"}
    (damaged,) = tmp_path.glob("*/answers.jsonl")
    damaged.write_text("junk\n")
    report([str(tmp_path)])
    assert f"{damaged}: line 1" in capsys.readouterr().out


def test_evaluate_with_a_real_server(data: dict[str, Path], tmp_path: Path) -> None:
    """`transformers serve` with a tiny model: the same replies as in this process."""
    tiny_chat.saved("idefics3", tmp_path / "idefics3")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).with_name("transformers"))
    options = ["--port", str(port), "--device", "cpu", "--dtype", "float32"]
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen(
            [program, "serve", str(tmp_path / "idefics3"), *options],
            stdout=log, stderr=log, env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
    try:
        wait_for(lambda: server.poll() is not None or _listens(port))
        assert server.poll() is None, (tmp_path / "log").read_text()
        asked = Evaluation(
            model=str(tmp_path / "idefics3"), server=f"http://127.0.0.1:{port}/v1", data=str(data["cardinality"]),
            limit=2, split=["test_ood"], runs=str(tmp_path / "served"), max_tokens=6, concurrency=1,
        )  # fmt: skip
        served = evaluate(asked, log=lambda _: None)
    finally:
        server.terminate()
        server.wait()
    local = evaluate(asked.changed(server=None, runs=str(tmp_path / "local"), precision="float32"), log=lambda _: None)
    replies = [
        {(a.setting, a.id): a.reply for a in read_answers(tmp_path / place / rows[0]["name"])}
        for place, rows in (("served", served), ("local", local))
    ]
    assert len(replies[0]) == 6 and replies[0] == replies[1]
    assert [row["input_tokens"] for row in served] == [row["input_tokens"] for row in local]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
