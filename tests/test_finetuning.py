"""Rows to train on: right replies, rewards, exports that trainers load, and streams in shares."""

from __future__ import annotations

import io
import itertools
import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import datasets
import pytest
import trl
from datasets.distributed import split_dataset_by_node
from PIL import Image as pillow
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from tests import tiny_chat
from tests.helpers import command, generated, one_line
from travlr import Cardinality, Count, Image, make_example
from travlr.convert import main as convert_main
from travlr.dataset import Example
from travlr.finetuning import streams
from travlr.finetuning.datasets_stream import datasets_stream
from travlr.finetuning.streams import TrainingStream
from travlr.finetuning.torch_stream import TorchStream
from travlr.formats.columns import parse_query_form
from travlr.generate import iterate
from travlr.questions import FORMS, make_question, messages, right_reply, score_reply
from travlr.rewards import QUESTION, correct, reward
from travlr.tasks import TASKS, use_task

CONFIG = Cardinality(count=Count(train=21, validation=6, test_ind=4, test_ood=4), image=Image(cell=8))
SETTINGS = ("image", "caption", "image+caption")


def json_of(question: Any) -> str:
    return QUESTION.dump_json(question).decode()


# Replies and rewards -------------------------------------------------------------------------------------------------


def some(task: str) -> list[Example]:
    return list(iterate(use_task(task).Config(task=task, image=Image(cell=96)), "train", 0, 12))


@pytest.mark.parametrize("prompt", ["direct", "describe"])
@pytest.mark.parametrize("task", (*TASKS, "tests.words:Majority"))
def test_right_reply_is_right_and_is_rewarded(task: str, prompt: str) -> None:
    for example, form in itertools.product(some(task), FORMS):
        if (task, form) == ("existence", "open"):  # which has no open question
            continue
        question = make_question(example, form)
        for setting in ("image", "caption"):
            reply = right_reply(question, example, prompt, setting)
            assert score_reply(reply, question).right and reward(reply, question) == 1
            assert ("Answer:" in reply) == (form != "read" and prompt == "describe")


def expected_steps(example: Example, in_rows: bool) -> tuple[list[str], str]:
    """The cells that the steps of an example list, and the words that its query should have; read from the caption."""
    found = re.findall(r"(\w+) (\w+) at ([A-Z]) ([0-9])", example.caption)
    objects = [({colour, shape}, column + " " + row) for colour, shape, column, row in found]
    sizes = {shape: size for size, shape in re.findall(r"(small|medium|large) \w+ (\w+) at", example.caption)}
    if in_rows:
        objects.sort(key=lambda o: o[1][::-1])

    def cells(attribute: str, but: str = "-") -> list[str]:
        return [cell for words, cell in objects if words >= {*attribute.split()} and not words >= {*but.split()}]

    task, args = parse_query_form(example.query_form).task, parse_query_form(example.query_form).args
    if task == "cardinality":
        return cells(args[1]), str(len(cells(args[1])))
    if task == "comparison":
        first, second = cells(args[1]), cells(args[2])
        return first + second, "more" if len(first) > len(second) else "fewer"
    if task == "quantifiers":
        quantifier, first, second = args
        word = quantifier.removeprefix("not ")
        if word in ("some", "none"):
            both = cells(f"{first} {second}")
            return both, "some" if both else "none"
        rest = cells(first, second) if word == "all" else cells(second, first)
        return rest, f"not {word}" if rest else word
    if task == "existence":
        colour, shape = args[0].split()
        return cells(shape), f"one is {colour}" if cells(args[0]) else ""
    if task == "attribute":
        (words,) = (words for words, _ in objects if args[0] in words)
        return cells(args[0]), sizes[args[0]] if args[1] in ("small", "large") else next(iter(words - {args[0]}))
    if task == "binding":
        shown = [next(c for c in (args[1], args[3]) if cells(f"{c} {shape}")) for shape in (args[0], args[2])]
        return cells(args[0]) + cells(args[2]), " and ".join(shown)
    (one,), (other,) = cells(args[0]), cells(args[2])
    if args[1] in ("above", "below"):
        return [one, other], "above" if one[2] < other[2] else "below"
    return [one, other], "left" if one[0] < other[0] else "right"


@pytest.mark.parametrize("setting", ["image", "caption"])
@pytest.mark.parametrize("task", TASKS)
def test_steps_are_those_of_the_caption(task: str, setting: str) -> None:
    for example in some(task):
        reply = right_reply(make_question(example), example, "describe", setting)
        steps = re.fullmatch(r"(.+) The statement says (.+)\.\nAnswer: (true|false)", reply)
        assert steps, reply
        cells, true = expected_steps(example, setting == "image")
        assert re.findall(r"[A-F] [1-6]", steps[1]) == cells
        assert (steps[2] == true) == (steps[3] == "true") == example.answer
        *_, conclusion = re.split(r"\. ", steps[1])
        assert re.search(rf"(^| ){true}\b", conclusion, re.IGNORECASE)


def test_right_reply_of_reason_is_refused() -> None:
    example = make_example(CONFIG, "train", 0)
    with pytest.raises(ValueError, match="prompt=reason"):
        right_reply(make_question(example), example, "reason")


def test_correct_reads_texts_and_messages() -> None:
    example = make_example(CONFIG, "train", 0)
    right, wrong = (str(truth).lower() for truth in (example.answer, not example.answer))
    replies: list[Any] = [f"**{right}**", wrong, "I cannot tell.", [{"role": "assistant", "content": right}], [],
               [{"role": "assistant", "content": [{"type": "text", "text": right}]}]]  # fmt: skip
    questions = [json_of(make_question(example))] * len(replies)
    assert correct(replies, questions, id=["a"] * len(replies)) == [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]


def test_reward_of_read_is_the_part_that_is_right() -> None:
    example = make_example(CONFIG, "train", 0)
    question = make_question(example, "read")
    lines = right_reply(question, example).splitlines()
    assert reward("\n".join(lines[:-1]), question) == pytest.approx(2 * (len(lines) - 1) / (2 * len(lines) - 1))
    free = next(f"{c} {r}" for c in "ABCDEF" for r in "123456" if f" {c} {r}" not in " ".join(lines))
    more = "\n".join([*lines, f"a red circle at {free}"])
    assert reward(more, question) == pytest.approx(2 * len(lines) / (2 * len(lines) + 1))
    assert reward("There are some objects.", question) == 0


# Exports -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory.mktemp("data") / "cardinality", CONFIG)


def export(data: Path, folder: Path, *settings: str) -> Path:
    assert convert_main([str(data), str(folder), *settings]) == 0
    return folder


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"] if part["type"] == "text")


def load(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        return datasets.load_dataset(str(folder), cache_dir=str(folder / "cache"))


def test_trl_export_has_the_requests_of_evaluate(data: Path, tmp_path: Path) -> None:
    loaded = load(export(data, tmp_path / "out", "format=trl", "form=open", "prompt=describe"))
    assert {split: rows.num_rows for split, rows in loaded.items()} == {"train": 63, "validation": 18}
    for number, row in enumerate(loaded["train"]):
        example, setting = make_example(CONFIG, "train", number // 3), SETTINGS[number % 3]
        question = make_question(example, "open")
        (asked,) = messages(question, example, setting, "describe")
        assert row["prompt"] == [{"role": "user", "content": text_of(asked)}] and row["id"] == example.id
        assert score_reply(row["completion"][0]["content"], question).right
        assert correct([row["completion"]], [row["question"]]) == [1.0]
        assert len(row["images"]) == (setting != "caption")
        assert all(image.mode == "RGB" and image.tobytes() == example.picture().tobytes() for image in row["images"])


ROLES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"
)


def trainer(model: Any, processor: Any, rows: Any, folder: Path) -> Any:
    processor.chat_template = ROLES
    arguments = trl.SFTConfig(
        str(folder), max_length=None, max_steps=1, per_device_train_batch_size=3, report_to=[], use_cpu=True, bf16=False
    )
    return trl.SFTTrainer(model, arguments, train_dataset=rows, processing_class=processor)


def test_trl_trains_on_completions_of_mixed_rows(data: Path, tmp_path: Path) -> None:
    rows = load(export(data, tmp_path / "out", "format=trl"))["train"]
    model, processor = tiny_chat.idefics3()
    for source in (rows, datasets_stream(TrainingStream(CONFIG))):
        sft = trainer(model, processor, source, tmp_path)
        batch = next(iter(sft.get_train_dataloader()))
        assert batch["pixel_values"].shape[0] == 3
        for tokens in batch["labels"]:
            assert processor.decode(tokens[tokens != -100]) in ("true<|im_end|>", "false<|im_end|>")


def test_trl_takes_captions_with_a_text_model(data: Path, tmp_path: Path) -> None:
    rows = load(export(data, tmp_path / "out", "format=trl", "setting=caption"))["train"]
    words = tiny_chat.tokenizer("<|im_start|>", "<|im_end|>", adds=False)
    config = tiny_chat.models_of.LlamaConfig(**tiny_chat.TEXT, vocab_size=len(words))
    model = tiny_chat.models_of.LlamaForCausalLM(config)
    assert "images" not in rows.column_names
    assert (next(iter(trainer(model, words, rows, tmp_path).get_train_dataloader()))["labels"] >= 0).any()


def test_messages_export_names_its_pictures(data: Path, tmp_path: Path) -> None:
    folder = export(data, tmp_path / "out", "format=messages", "form=choice", "split=train,test_ood")
    info = json.loads((folder / "dataset_info.json").read_text())
    assert {name: about["file_name"] for name, about in info.items()} == {
        "travlr_cardinality_train": "train.jsonl", "travlr_cardinality_test_ood": "test_ood.jsonl"
    }  # fmt: skip
    lines = [json.loads(line) for line in (folder / "test_ood.jsonl").read_text().splitlines()]
    assert len(lines) == 12
    for number, line in enumerate(lines):
        example, setting = make_example(CONFIG, "test_ood", number // 3), SETTINGS[number % 3]
        user, model = line["messages"]
        (asked,) = messages(make_question(example, "choice"), example, setting)
        assert user["content"] == "<image>" * len(line["images"]) + text_of(asked)
        assert [(folder / path).read_bytes() for path in line["images"]] == [example.image] * (setting != "caption")
        assert correct([model["content"]], [line["question"]]) == [1.0]


def test_messages_export_holds_pictures_for_hosted_training(data: Path, tmp_path: Path) -> None:
    folder = export(data, tmp_path / "out", "format=messages", "split=train", "pictures=inline")
    for number, line in enumerate((folder / "train.jsonl").read_text().splitlines()):
        (user, model), setting = json.loads(line)["messages"], SETTINGS[number % 3]
        assert json.loads(line).keys() == {"messages"} and model["content"] in ("true", "false")
        assert isinstance(user["content"], str) == (setting == "caption")
        if setting != "caption":
            picture, text = user["content"]
            with pillow.open(io.BytesIO(urlopen(picture["image_url"]["url"]).read())) as image:
                assert (image.format, image.mode) == ("PNG", "RGB") and text["type"] == "text"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [(("format=trl", "prompt=reason"), "prompt"), (("format=trl", "pictures=inline"), "pictures"),
     (("format=messages", "setting="), "setting"), (("format=messages", "split=valid"), "split"),
     (("format=trl", "overwrite=true"), "overwrite")],
)  # fmt: skip
def test_trainer_export_refuses_wrong_settings(
    settings: tuple[str, ...], problem: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        convert_main([str(data), str(tmp_path / "out"), *settings])
    assert not any(tmp_path.iterdir())


def test_trainer_export_replaces_exports_alone(data: Path, tmp_path: Path) -> None:
    folder = export(data, tmp_path / "out", "format=messages")
    export(data, folder, "format=trl", "split=train")
    assert {path.name for path in folder.iterdir()} == {"README.md", "export.json", "train.parquet"}
    (folder / "export.json").unlink()
    code, _, text = command("convert", str(data), str(folder), "format=messages")
    assert code == 2 and str(folder) in one_line(text)


# Streams -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK", 6)
    monkeypatch.setattr("travlr.finetuning.datasets_stream.BLOCK", 6)


def keys(rows: Any) -> list[tuple[str, str]]:
    return [(row["id"], row["setting"]) for row in rows]


def test_stream_goes_on_after_the_dataset() -> None:
    stream = TrainingStream(CONFIG, setting="image,caption", form="open")
    whole = keys(stream.rows(0, 40))
    assert whole == [(f"cardinality-train-{22 + n // 2:08d}", SETTINGS[n % 2]) for n in range(40)]
    assert keys(stream.rows(7, 12)) == whole[7:12]
    assert stream.spread == stream.length > 10**8


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_stream_gives_each_row_to_one_worker_of_one_rank(workers: int) -> None:
    stream = TrainingStream(CONFIG, setting="image,caption,image+caption")
    rows = []
    for rank in range(2):
        loader: Any = DataLoader(TorchStream(stream, rank, 2), batch_size=None, num_workers=workers)
        rows += [keys([row])[0] for row in itertools.islice(loader, 24)]
    assert len(set(rows)) == 48 and sorted(rows) == sorted(keys(stream.rows(0, 48)))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_stream_goes_on_in_the_middle(workers: int) -> None:
    def loader() -> Any:
        return StatefulDataLoader(
            TorchStream(TrainingStream(CONFIG)), batch_size=4, num_workers=workers, collate_fn=keys
        )

    first, due = loader(), list(itertools.islice(loader(), 9))
    begun = iter(first)
    assert [next(begun) for _ in range(5)] == due[:5]
    second = loader()
    second.load_state_dict(first.state_dict())
    assert list(itertools.islice(second, 4)) == due[5:]


def test_torch_stream_refuses_the_state_of_another_share() -> None:
    first, second = (TorchStream(TrainingStream(CONFIG), 0, ranks) for ranks in (1, 2))
    with pytest.raises(ValueError, match="rank"):
        second.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match="rank=2"):
        TorchStream(TrainingStream(CONFIG), 2, 2)


@pytest.mark.usefixtures("small_blocks")
def test_datasets_stream_splits_and_goes_on_in_the_middle() -> None:
    stream = TrainingStream(CONFIG, setting="image")
    parts = [split_dataset_by_node(datasets_stream(stream), rank, 2) for rank in range(2)]
    rows = [keys(itertools.islice(part, 24)) for part in parts]
    assert len({*rows[0], *rows[1]}) == 48 and sorted(rows[0] + rows[1]) == sorted(keys(stream.rows(0, 48)))
    begun = iter(parts[1])
    assert keys(next(begun) for _ in range(9)) == rows[1][:9]
    again = split_dataset_by_node(datasets_stream(stream), 1, 2)
    again.load_state_dict(parts[1].state_dict())
    assert keys(itertools.islice(again, 15)) == rows[1][9:]
    assert next(iter(again))["images"][0].mode == "RGB"


@pytest.mark.parametrize("setting", ["form=essay", "prompt=reason", "setting=picture"])
def test_stream_refuses_wrong_settings(setting: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(ValueError, match=setting):
        TrainingStream(CONFIG, **{name: value})
