"""Fine-tuning of tiny chat models: what they are trained on, from a command to results, and after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from safetensors.torch import load_file

from analysis.frames import read_runs
from tests import tiny_chat
from tests.helpers import generated, train_status
from train.ask.chat import chat_inputs
from train.ask.config import Evaluation
from train.ask.evaluation import evaluate
from train.ask.local import ChatModel
from train.ask.requests import Reply
from train.chat import tune as tuning
from train.chat.config import Tuning
from train.chat.tune import tune
from train.results.answers import read_answers
from train.results.store import read_curve
from travlr import Cardinality, Count, Image
from travlr.finetuning.streams import TrainingStream
from travlr.rewards import QUESTION
from travlr.settings import Log

pytestmark = pytest.mark.usefixtures("one_thread", "unaudited", "rules_not_fitted")

CONFIG = Cardinality(count=Count(train=200, validation=10, test_ind=8, test_ood=8), image=Image(cell=8))
TEMPLATE = (
    "{{% for m in messages %}}{{{{ m.role }}}}:{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}"
    "{{% for p in m.content %}}{{% if p.type == 'image' %}}{image}{{% else %}}{{{{ p.text }}}}{{% endif %}}"
    "{{% endfor %}}{{% endif %}}{end}{{% endfor %}}{{% if add_generation_prompt %}}assistant:{{% endif %}}"
)
IMAGES = {"idefics3": "<image>", "llava": "<image>", "qwen3_vl": "<|vision_start|><|image_pad|><|vision_end|>"}
silent: Log = lambda line: None  # noqa: E731


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory.mktemp("data") / "cardinality", CONFIG)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama."""
    folder = tmp_path_factory.mktemp("words") / "llama"
    tokenizer = tiny_chat.tokenizer("<|im_start|>", "<|im_end|>", adds=False)
    tokenizer.chat_template = TEMPLATE.format(image="", end="<|im_end|>")
    config = tiny_chat.models_of.LlamaConfig(**tiny_chat.TEXT, vocab_size=len(tokenizer))
    torch.manual_seed(0)
    tiny_chat.models_of.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(model: Path, data: Path, runs: Path, **changes: Any) -> Tuning:
    small = {"training": {"steps": 2}, "optimiser": {"batch_size": 4}, "limit": 2, "max_tokens": 4}
    values = {"setting": "caption", "device": "cpu", "precision": "float32", **small, **changes}
    return Tuning(model=str(model), data=str(data), runs=str(runs), **values)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The inputs of each step of supervised training."""
    steps: list[dict[str, torch.Tensor]] = []
    learn = trl.SFTTrainer.training_step

    def step(self: Any, model: Any, inputs: Any, *rest: Any) -> Any:
        steps.append(dict(inputs))
        return learn(self, model, inputs, *rest)

    monkeypatch.setattr(trl.SFTTrainer, "training_step", step)
    yield steps


@pytest.mark.parametrize("kind", IMAGES)
def test_tune_learns_what_evaluate_asks(
    kind: str, data: Path, tmp_path: Path, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mixed rows: each prompt has the tokens of the request, and each target those of the right reply alone."""
    folder = tmp_path / kind
    processor = tiny_chat.saved(kind, folder)
    processor.chat_template = TEMPLATE.format(image=IMAGES[kind], end=processor.tokenizer.eos_token)
    processor.save_pretrained(folder)
    if kind in tiny_chat.NEED_TORCHVISION:
        monkeypatch.setattr(tiny_chat.models_of.AutoProcessor, "from_pretrained", lambda *_, **__: processor)
    config = settings(folder, data, tmp_path / "runs", setting="mixed", adapter={"targets": "language"})
    rows = tune(config, silent)
    order = ("image+caption", "image", "caption")
    stream = TrainingStream(CONFIG, setting=order, form="true_false", prompt="describe")
    trained = list(zip(*(iter(stream.rows(0, 24)),) * 3, strict=True))  # the three rows of each example
    seen = set()
    for number, (tokens, labels) in enumerate((t, n) for b in batches for t, n in zip(*inputs_of(b), strict=True)):
        prompts = {row["setting"]: request(processor, row) for row in trained[number]}
        target, prompt = tokens[labels != -100], tokens[labels == -100]
        prompt = prompt[prompt != processor.tokenizer.pad_token_id].tolist()
        (setting,) = (name for name, ids in prompts.items() if ids == prompt)
        reply = trained[number][0]["completion"] if setting != "image" else trained[number][1]["completion"]
        assert processor.tokenizer.decode(target) == reply[0]["content"] + processor.tokenizer.eos_token
        seen.add(setting)
    assert number == 7 and seen == set(order)
    assert [(r["test_setting"], r["split"]) for r in rows] == [
        (s, split) for split in ("test_ind", "test_ood") for s in ("image", "caption", "image+caption")
    ]
    run = tmp_path / "runs" / rows[0]["name"]
    adapters = load_file(run / "adapter_model.safetensors")
    assert adapters and all("language_model" in name or "text_model" in name for name in adapters)
    assert sum(tensor.numel() for tensor in adapters.values()) == rows[0]["parameters"]
    asked = Evaluation(model=str(run), data=str(data), limit=2, prompt="describe", max_tokens=4, runs=config.runs)
    again = evaluate(asked.changed(device="cpu", precision="float32"), silent)
    replies = [{(a.split, a.setting, a.id): a.reply for a in read_answers(tmp_path / "runs" / row[0]["name"])}
               for row in (rows, again)]  # fmt: skip
    assert replies[0] == replies[1] and len(replies[0]) == 12
    assert [row["origin"] for row in (rows[0], again[0])] == ["adapter", "adapter"]
    runs = read_runs(tmp_path / "runs")
    assert set(runs.trainings["name"]) == {run.name} and set(runs.evaluations["name"]) == {again[0]["name"]}
    assert len(runs.predictions(name=run.name)) == 12


def test_consistency_learns_its_own_replies(
    data: Path, tmp_path: Path, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlabelled rows show the other modality, and their targets are the replies to the setting of training."""
    folder = tmp_path / "idefics3"
    processor = tiny_chat.saved("idefics3", folder)
    processor.chat_template = TEMPLATE.format(image="<image>", end=processor.tokenizer.eos_token)
    processor.save_pretrained(folder)
    asked: list[Any] = []

    def answer(self: Any, requests: Any) -> list[Reply]:
        asked.extend(requests)
        return [Reply(f"reply {len(asked) - len(requests) + number}") for number in range(len(requests))]

    monkeypatch.setattr(ChatModel, "answer", answer)
    rows = tune(settings(folder, data, tmp_path / "runs", method="consistency"), silent)
    stream = list(TrainingStream(CONFIG, setting=("caption", "image"), prompt="describe").rows(0, 16))
    own, other = stream[::2], stream[1::2]
    for number, (tokens, labels) in enumerate((t, n) for b in batches for t, n in zip(*inputs_of(b), strict=True)):
        labelled = number % 4 < 2
        row, target, prompt = (own if labelled else other)[number], tokens[labels != -100], tokens[labels == -100]
        assert prompt[prompt != processor.tokenizer.pad_token_id].tolist() == request(processor, row)
        text = processor.tokenizer.decode(target).removesuffix(processor.tokenizer.eos_token)
        assert text == row["completion"][0]["content"] if labelled else text.startswith("reply ")
    questions = [(r.messages[0]["content"], r.question) for r in asked[:4]]  # in the setting of training
    expected = [([{"type": "text", "text": own[n]["prompt"][0]["content"]}], own[n]["question"]) for n in (2, 3, 6, 7)]
    assert questions == [(content, QUESTION.validate_json(question)) for content, question in expected]
    assert (rows[0]["train_examples"], rows[0]["unlabelled_examples"]) == (4, 4)


def inputs_of(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["input_ids"], batch["labels"]


def request(processor: Any, row: dict[str, Any]) -> list[int]:
    """The tokens with which `evaluate.py` asks what a row asks."""
    from render.png import decode

    images = [{"type": "image", "image": decode(image)} for image in row["images"]]
    content = [*images, {"type": "text", "text": row["prompt"][0]["content"]}]
    return list(chat_inputs(processor, [{"role": "user", "content": content}])["input_ids"][0].tolist())


def test_loss_is_that_of_trl(words: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = []
    for ours in (True, False):
        if not ours:
            monkeypatch.setattr(tuning, "keep_last_logits", lambda model: {})
        trainer = {"logging_steps": 1, "gradient_accumulation_steps": 2}
        rows = tune(settings(words, data, tmp_path / str(ours), trainer=trainer), silent)
        curves.append([point["loss"] for point in read_curve(tmp_path / str(ours) / rows[0]["name"])[:2]])
    assert curves[0] == pytest.approx(curves[1], rel=1e-3) and curves[0][0] != curves[0][1]


def test_tune_goes_on_after_a_kill(
    words: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: list[Any]
) -> None:
    """With the weights of an uninterrupted run."""
    changes: dict[str, Any] = {"training": {"steps": 5}, "trainer": {"save_steps": 2}, "adapter": {"targets": "none"}}
    whole = tune(settings(words, data, tmp_path / "whole", **changes), silent)
    learn, killed = trl.SFTTrainer.training_step, settings(words, data, tmp_path / "killed", **changes)

    def die(self: Any, *arguments: Any) -> Any:
        if self.state.global_step == 3:
            raise KeyboardInterrupt
        return learn(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(trl.SFTTrainer, "training_step", die)
        with pytest.raises(KeyboardInterrupt):
            tune(killed, silent)
    (folder,) = (tmp_path / "killed").iterdir()
    (folder / tuning.CHECKPOINTS / "checkpoint-3").mkdir()  # one that was being written
    with monkeypatch.context() as patch:  # killed again, while it is asked
        patch.setattr(tuning, "ask_everything", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tune(killed, silent)
    assert len(batches) == 5 + 3 + 3
    lines: list[str] = []
    rows = tune(killed, lines.append)
    assert len(batches) == 11 and not (folder / tuning.CHECKPOINTS).exists()
    files = [tmp_path / runs / rows[0]["name"] / "model.safetensors" for runs in ("whole", "killed")]
    weights, others = map(load_file, files)
    assert weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)
    scores = [[(row["split"], row["macro_f1"], row["parameters"]) for row in of_run] for of_run in (whole, rows)]
    assert scores[0] == scores[1] and {row["test_setting"] for row in rows} == {"caption"}
    assert tune(killed, lines.append) == rows and len(batches) == 11


def test_tune_rewards_right_replies(words: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def reward(completions: Any, question: list[str], **columns: Any) -> list[float]:
        asked.extend(json.loads(text)["answer"] for text in question)
        return [float(number % 2) for number in range(len(completions))]

    monkeypatch.setattr(tuning, "correct", reward)
    group = {"num_generations": 2, "logging_steps": 1}
    (row, _) = tune(settings(words, data, tmp_path, method="grpo", form="open", trainer=group), silent)
    assert len(asked) == 8 and asked[::2] == asked[1::2] and all(text.isdigit() for text in asked)
    assert row["train_examples"] == 4 and read_curve(tmp_path / row["name"])[0]["reward"] == 0.5


@pytest.mark.parametrize(
    ("changes", "setting"),
    [({"adapter": {"targets": "vision"}}, "adapter.targets=vision"), ({"setting": "image"}, "setting=image"),
     ({"trainer": {"colour": 1}}, "trainer.colour"), ({"optimiser": {"batch_size": 3}}, "optimiser.batch_size=3")],
)  # fmt: skip
def test_tune_names_the_setting_that_does_not_fit(
    changes: dict[str, Any], setting: str, words: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(trl.SFTTrainer, "training_step", full)
    with pytest.raises(ValueError, match=f"^{setting}"):
        tune(settings(words, data, tmp_path, **changes), silent)


def test_train_chooses_settings_by_model(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    for place in ("train.chat.tune.tune", "train.command.run"):
        monkeypatch.setattr(place, lambda config, **_: runs.append(config))
    monkeypatch.chdir(words.parent)
    assert train_status(monkeypatch, "model=llama", "adapter.rank=4") == 0
    assert train_status(monkeypatch, "model=hub/llama", "optimiser.learning_rate=1e-3") == 0
    assert train_status(monkeypatch, "model=uniter") == 0
    chat, rate, ours = runs
    assert (chat.training.steps, chat.optimiser.batch_size, chat.adapter.rank) == (300, 8, 4)
    assert (rate.learning_rate, chat.learning_rate) == (1e-3, 5e-4)
    assert (ours.training.steps, ours.batch_size, ours.learning_rate) == (2000, 64, 6e-4)


@pytest.mark.parametrize(
    "arguments", [("model=llama", "size=tiny"), ("model=llama", "training.epochs=1"), ("adapter.rank=4",),
                  ("model=llama", "method=frozen"), ("model=llama", "method=grpo", "setting=mixed"), ("model=lama",)],
)  # fmt: skip
def test_train_refuses_settings_of_other_models(
    arguments: tuple[str, ...], words: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(words.parent)
    assert train_status(monkeypatch, *arguments) == 2
    line = capsys.readouterr().err.strip()
    assert "\n" not in line and arguments[-1].partition("=")[0] in line
