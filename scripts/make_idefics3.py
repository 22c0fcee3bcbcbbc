"""A small vision-language model with real language: Idefics3 with SmolLM2-135M and a picture encoder of our own.

    python scripts/make_smollm2.py models/smollm2
    python scripts/make_idefics3.py models/smollm2 models/idefics3

A picture of 384 x 384 pixels has 24 x 24 patches, of which the connector joins 4 x 4: one token for each cell of a
6 x 6 grid. The encoder and the connector start from random weights. This script trains them, and leaves the language
model as it is: the token of a cell becomes the sum of the language model's embeddings of the words for what is in the
cell, such as " red circle A 1" or " empty A 1". `train.py model=models/idefics3 setting=image form=read` then teaches
the language model to read pictures (docs/training-todays-models.md).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from travlr import Cardinality
from travlr.finetuning.rows import ChatRow, with_pictures
from travlr.finetuning.streams import TrainingStream
from travlr.rewards import QUESTION
from travlr.scene import COLOURS, SHAPES, column_name, row_name

library: Any = transformers

SIDE, PATCH, JOINED = 384, 16, 4  # pixels, pixels, patches
GRID = SIDE // PATCH // JOINED  # cells in a row
VISION = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 3}
MARKS = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
# SmolLM2's own turns, without its system message.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINGS = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES] + ["empty"]
CHECKED = 16  # batches on which the accuracy is measured


def untrained(language: Path) -> tuple[Any, Any]:
    """Idefics3 with the weights of a language model, and its processor."""
    tokenizer = library.AutoTokenizer.from_pretrained(language)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    images = library.Idefics3ImageProcessorPil(
        size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE}, do_image_splitting=False
    )
    processor = library.Idefics3Processor(images, tokenizer, image_seq_len=GRID * GRID, chat_template=TEMPLATE)
    text = library.AutoModelForCausalLM.from_pretrained(language, dtype=torch.float32)
    text.resize_token_embeddings(len(tokenizer))
    config = library.Idefics3Config(
        vision_config={**VISION, "image_size": SIDE, "patch_size": PATCH},
        text_config=text.config,
        scale_factor=JOINED,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=True,
    )
    model = library.Idefics3ForConditionalGeneration(config)
    model.model.text_model.load_state_dict(text.model.state_dict())
    model.tie_weights()
    model.generation_config = text.generation_config
    return model, processor


def cell_states(model: Any, tokenizer: Any) -> Tensor:
    """What the token of a cell should become, (cells, things, H)."""
    words = [
        [f" {thing} {column_name(column)} {row_name(row)}" for thing in THINGS]
        for row, column in itertools.product(range(GRID), range(GRID))
    ]
    embeddings = model.get_input_embeddings().weight.detach()
    return torch.stack(
        [torch.stack([embeddings[tokenizer(text)["input_ids"]].sum(0) for text in cell]) for cell in words]
    )


def batches(processor: Any, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """New pictures without end: pixels (B, 1, 3, side, side), and the number of the thing in each cell, (B, cells)."""
    rows = map(with_pictures, TrainingStream(Cardinality(), setting="image", form="read").share(0, 1))
    while batch := list(itertools.islice(rows, size)):
        pixels = processor.image_processor([row["images"] for row in batch], return_tensors="pt")["pixel_values"]
        yield pixels, torch.stack([things_in_cells(row) for row in batch])


def things_in_cells(row: ChatRow) -> Tensor:
    things = torch.full((GRID * GRID,), THINGS.index("empty"))
    for item in QUESTION.validate_json(row["question"]).scene:
        things[item.row * GRID + item.column] = THINGS.index(f"{item.colour} {item.shape}")
    return things


def states_of(model: Any, pixels: Tensor) -> Tensor:
    """The tokens of pictures, (B, cells, H)."""
    with torch.autocast("cpu", torch.bfloat16):
        return torch.stack(list(model.model.get_image_features(pixels).pooler_output)).float()


def align(model: Any, processor: Any, steps: int, size: int, rate: float) -> float:
    """Train the encoder and the connector. Returns the percent of cells of new pictures whose token is nearest to the
    right one of all that a cell can have."""
    states, source = cell_states(model, processor.tokenizer), batches(processor, size)
    cells = torch.arange(GRID * GRID)
    parameters = [*model.model.vision_model.parameters(), *model.model.connector.parameters()]
    optimiser = torch.optim.AdamW(parameters, rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, steps, pct_start=0.1)
    model.train()
    for step, (pixels, things) in enumerate(itertools.islice(source, steps), 1):
        loss = (states_of(model, pixels) - states[cells, things]).square().sum(-1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step % 25 == 0:
            print(f"step {step:4}  squared distance {loss:.3f}", flush=True)
    model.eval()
    right = []
    with torch.no_grad():
        for pixels, things in itertools.islice(source, CHECKED):
            nearest = torch.cdist(states_of(model, pixels), states.flatten(0, 1)).argmin(-1)
            right.append(nearest == cells * len(THINGS) + things)
    return 100 * torch.cat(right).float().mean().item()


def make_idefics3(language: Path, folder: Path, steps: int, size: int, rate: float, seed: int) -> float:
    """Write the model, in bf16, and its processor. Returns the percent of cells, as `align`."""
    torch.manual_seed(seed)
    model, processor = untrained(language)
    right = align(model, processor, steps, size, rate)
    model.to(torch.bfloat16).save_pretrained(folder)
    processor.save_pretrained(folder)
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("language", type=Path, help="folder of scripts/make_smollm2.py")
    parser.add_argument("folder", type=Path, help="where to write the model")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    right = make_idefics3(
        options.language, options.folder, options.steps, options.batch_size, options.learning_rate, options.seed
    )
    print(f"{options.folder}: {right:.2f} % of cells are right, {(time.monotonic() - start) / 60:.1f} min")


if __name__ == "__main__":
    main()
