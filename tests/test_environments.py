"""Environments for reinforcement learning: their examples are of training alone, their rewards are exact."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from typing import Any
from urllib.request import urlopen

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from PIL import Image as pillow

from tests.harness_environments import environment, run_in
from tests.oracle import CELL, answer
from travlr import Image
from travlr.environments.gymnasium import QuestionEnv
from travlr.finetuning.streams import TrainingStream
from travlr.generate import generator, iterate
from travlr.questions import make_question, messages
from travlr.tasks import PAPER, TASKS

SETTINGS = ("image", "caption", "image+caption")
ASKED = {"form": "true_false", "setting": "image,caption,image+caption"}
OTHERS = """
import asyncio, json, sys
import reasoning_gym, verifiers.v1 as vf
import travlr.environments.reasoning_gym
from verifiers.v1.utils.loaders import taskset_class
from travlr.environments.verifiers import QuestionTasksetConfig
cell, asked, *names = sys.argv[1:]
async def rewards(one):
    agent = vf.AgentInfo(config=vf.AgentConfig())
    about = vf.TraceTask(type="QuestionTask", data=one.data)
    traces = [vf.Trace(task=about, agent=agent, root_reply=reply) for reply in ("True.", "False.", "?")]
    for trace in traces:
        await one.score(trace)
    return [trace.reward for trace in traces]
found = {}
for name in names:
    image = {"image": {"cell": int(cell)}}
    entries = reasoning_gym.create_dataset(
        "travlr", task=name, form="true_false", seed=3, size=40, generation=image
    )
    scores = [[entries.score_answer(reply, entry) for reply in (entry["answer"], None)] for entry in entries]
    config = QuestionTasksetConfig(generation={"task": name, **image}, **json.loads(asked))
    tasks = list(taskset_class("travlr_taskset")(config).take(30))
    found[name] = {
        "entries": list(entries), "scores": scores, "rewards": [asyncio.run(rewards(one)) for one in tasks],
        "tasks": [one.data.model_dump(mode="json") for one in tasks],
    }
json.dump(found, open("others.json", "w"))
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What reasoning-gym and verifiers give, in an environment of their own, by task."""
    folder = tmp_path_factory.mktemp("environments")
    arguments = [str(CELL), json.dumps(ASKED), *PAPER]
    run_in(environment("environments"), "python", "-W", "ignore", "-c", OTHERS, *arguments, folder=folder)
    return dict(json.loads((folder / "others.json").read_text()))


# What is held out ----------------------------------------------------------------------------------------------------


def shown_pairs(text: str) -> list[tuple[str, ...]]:
    """The pairs that a request with caption and statement shows, counted from its words alone."""
    objects = [match.groups() for match in re.finditer(r"(\w+) (\w+) at ([A-F]) ([1-6])", text)]
    of_word = {word: {n for n, o in enumerate(objects) if word in o[:2]} for o in objects for word in o[:2]}
    if match := re.search(r"The (\w+) (\w+) is (to the|above|below).* the (\w+) (\w+)\.", text):
        axis, place = ("horizontal", 2) if match[3] == "to the" else ("vertical", 3)
        first, second = (next(o for o in objects if o[:2] == match.group(k, k + 1)) for k in (1, 4))
        return [(axis, first[place], second[place])]
    if match := re.search(r"There are (?:more|fewer) (\w+)s than (\w+)s\.", text):
        return [("comparison", *(str(len(of_word.get(word, ()))) for word in match.groups()))]
    if match := re.search(r"(All|Not all|Some of|None of|Only|Not only) the (\w+) objects are (\w+) objects\.", text):
        x, y = (of_word.get(word, set[int]()) for word in match.group(2, 3))
        both, first_alone, second_alone = len(x & y), len(x - y), len(y - x)
        counted = {
            "all": ("not all", both, first_alone) if first_alone else ("all", both, second_alone),
            "some": ("some", first_alone, both) if both else ("none", first_alone, second_alone),
            "only": ("not only", both, second_alone) if second_alone else ("only", both, first_alone),
        }
        families = {"Not all": "all", "Some of": "some", "None of": "some", "Not only": "only"}
        quantifier, *numbers = counted[families.get(match[1], match[1].lower())]
        return [(quantifier, *map(str, numbers))]
    return [(shape, str(number)) for shape, number in Counter(o[1] for o in objects).items()]


@pytest.mark.parametrize("task", PAPER)
def test_training_examples_show_no_held_out_pair(task: str, others: dict[str, Any]) -> None:
    config = TASKS[task].Config()
    held_out = {tuple(pair) for pair in generator(config).sampler.held_out()["pairs"]}
    for example in iterate(config, "test_ood", 0, 60):  # what is looked for is found where it should be
        text = messages(make_question(example), example, "caption")[0]["content"][0]["text"]
        assert held_out.intersection(shown_pairs(text)), text
    environment = QuestionEnv(task, "caption", "true_false")
    stream = TrainingStream(config, setting="caption")
    texts = {
        "stream": [row["prompt"][0]["content"] for row in stream.rows(0, 2000)],
        "gymnasium": [environment.reset(seed=n if n < 2 else None)[0]["text"] for n in range(100)],
        "reasoning-gym": [entry["question"] for entry in others[task]["entries"]],
        "verifiers": [one["prompt"][0]["content"][-1]["text"] for one in others[task]["tasks"][1::3]],
    }
    dataset = {(frozenset(re.findall(r"\w+ \w+ at \w \d", example.caption)), example.query)
               for split in ("train", "test_ind") for example in iterate(config, split, 0, 1000)}  # fmt: skip
    for source, of_source in texts.items():
        for text in of_source:
            assert not held_out.intersection(shown_pairs(text)), (source, text)
            scene, query = frozenset(re.findall(r"\w+ \w+ at \w \d", text)), text.split("\n\n")[-2]
            assert (scene, query) not in dataset
        assert len(set(of_source)) == len(of_source) >= 10


# Each library --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
def test_gymnasium_observes_the_setting_and_rewards_the_right_reply(setting: str) -> None:
    name = "travlr.environments.gymnasium:travlr/cardinality-v0"
    made: Any = gymnasium.make(name, setting=setting, image={"cell": CELL})
    check_env(made.unwrapped, skip_render_check=True)
    for seed in range(4):
        observed, about = made.reset(seed=seed)
        assert ("image" in observed) == (setting != "caption") and ("ordered A to F" in observed["text"]) == (
            setting != "image"
        )
        picture = _png(observed["image"]) if "image" in observed else None
        right = answer(observed["text"], picture)
        _, reward, terminated, truncated, after = made.step(right)
        assert (reward, terminated, truncated, after["right_reply"]) == (1.0, True, False, right)
        again, _ = made.reset(seed=seed)
        assert made.step(f"{int(right) + 1}")[1] == 0.0 and again["text"] == observed["text"]
        assert "train" in about["id"]


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("settings", [{"setting": "picture"}, {"setting": "image,caption"}, {"form": "essay"}])
def test_gymnasium_refuses_wrong_settings(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="|".join(settings)):
        QuestionEnv("cardinality", **settings)


@pytest.mark.parametrize("task", PAPER)
def test_reasoning_gym_scores_exactly(task: str, others: dict[str, Any]) -> None:
    assert others[task]["scores"] == [[1.0, 0.0]] * 40
    for entry in others[task]["entries"]:
        assert entry["answer"] == answer(entry["question"], None)


@pytest.mark.parametrize("task", PAPER)
def test_verifiers_shows_pictures_and_rewards_exactly(task: str, others: dict[str, Any]) -> None:
    stream = TrainingStream(TASKS[task].Config(image=Image(cell=CELL)), **ASKED)
    for one, rewards, row in zip(others[task]["tasks"], others[task]["rewards"], stream.rows(0, 30), strict=True):
        (message,) = one["prompt"]
        *pictures, text = message["content"]
        assert text["text"] == row["prompt"][0]["content"] and len(pictures) == len(row["images"])
        urls = [picture["image_url"]["url"] for picture in pictures]
        assert [_bytes_of(url) for url in urls] == row["images"]
        due = row["completion"][0]["content"]
        assert rewards == [float(due == "true"), float(due == "false"), 0.0]


def _bytes_of(url: str) -> bytes:
    with urlopen(url) as response:
        return bytes(response.read())
