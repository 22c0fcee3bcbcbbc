"""The six models: parity with the published code (tests/data/parity), sizes, loading, one contract for all."""

from __future__ import annotations

import copy
import gzip
import json
import math
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertForPreTraining, LxmertModel, RobertaConfig, RobertaForMaskedLM, VisualBertModel

from train.config import RegionSettings
from train.data.batching import visible_modalities
from train.data.examples import Examples, VisualSettings
from train.data.inputs import Inputs
from train.data.pixels import PUBLISHED
from train.data.sources import stream_examples
from train.data.text import WordTokenizer, grammar_tokenizer
from train.learning.testing import predict
from train.models import MODELS, make_model
from train.models.albef import Albef, fit_positions
from train.models.layers import Model, Shape, fast_dropout
from train.models.loading import (
    load_published,
    pixel_statistics,
    read_checkpoint,
    rename_key,
    tokenizer_of,
)
from train.models.lxmert import Lxmert, lxmert_config
from train.models.uniter import Uniter
from train.models.visualbert import VisualBert
from travlr import Cardinality
from travlr.generate import Generator

DATA = Path(__file__).parent / "data"
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float64", "float32"])
FIXTURES = {
    name: (json.loads((DATA / f"parity/{name}.json").read_text()), load_file(DATA / f"parity/{name}.safetensors"))
    for name in ("uniter", "visualbert", "lxmert", "albef")
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "visualbert": [{}, {"controlled": True}],
    "uniter": [{}, {"controlled": True}],
    "lxmert": [{}, {"controlled": True}],
    "albef": [{}, {"distil": True}],
    "bert": [{}],
    "roberta": [{}],
}
CONTRACT = [(name, options) for name, variants in OPTIONS.items() for options in variants]


@pytest.fixture(autouse=True)
def seeded(one_thread: None) -> None:
    torch.manual_seed(0)


# --- Parity with the published code ---------------------------------------------------------------------------------


def part(name: str, prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) :]: value for key, value in FIXTURES[name][1].items() if key.startswith(prefix)}


def fixture_shape(name: str) -> Shape:
    about = FIXTURES[name][0]
    config = about.get("config") or about["text_config"]
    layers, image_layers, cross_layers = config.get("num_hidden_layers", 0), 0, 0
    if name == "lxmert":
        layers, image_layers, cross_layers = config["l_layers"], config["r_layers"], config["x_layers"]
    if name == "albef":
        layers, image_layers, cross_layers = config["fusion_layer"], about["vision_config"]["depth"], 0
        cross_layers = config["num_hidden_layers"] - layers
    return Shape(
        layers=layers,
        image_layers=image_layers,
        cross_layers=cross_layers,
        width=config["hidden_size"],
        heads=config["num_attention_heads"],
        intermediate=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        positions=config["max_position_embeddings"],
        feature_width=48,
        picture=96,
        dropout=0.0,
        attention_dropout=0.0,
    )


def loaded(name: str, tmp_path: Path, dtype: torch.dtype, checkpoint: str = "ckpt/", **options: Any) -> Any:
    """A model of the fixture's size with the fixture's weights, by way of a file in the published layout."""
    shape = replace(fixture_shape(name), **options.pop("changes", {}))
    model: Any = MODELS[name](shape, **options)
    head = part(name, "head/")
    classes = next(len(value) for key, value in head.items() if key.endswith(("3.bias", "2.bias")) and len(value) < 32)
    model.head[-1] = nn.Linear(model.head[-1].in_features, classes)
    if options.get("distil"):
        model.head_m = copy.deepcopy(model.head).requires_grad_(False)
    file = tmp_path / f"{name}.pt"
    torch.save({key: value for key, value in part(name, checkpoint).items()}, file)
    load_published(model, file)
    model.head.load_state_dict({key.split(".", 1)[1]: value for key, value in head.items()})
    return model.to(dtype).eval()


def inputs_of(name: str, case: str, dtype: torch.dtype) -> dict[str, Tensor]:
    found = part(name, f"in/{case}/")
    return {key: value.to(dtype) if value.is_floating_point() else value for key, value in found.items()}


def check(name: str, case: str, dtype: torch.dtype, **ours: Tensor) -> None:
    """`ours` against the fixture's outputs of the same names, padding left out."""
    expected = part(name, f"{'out' if dtype == torch.float64 else 'out32'}/{case}/")
    texts, images = part(name, "len/text").get(""), part(name, "len/image").get("")
    for key, value in ours.items():
        wanted = expected[key]
        assert value.shape == wanted.shape, key
        difference = (value - wanted).abs()
        if value.dim() == 3 and key != "image_embeds":
            keep = real_rows(name, case, key, value.shape[1], texts, images)
            assert keep.any(1).all()
            difference = difference[keep]
        assert difference.max() < TOLERANCE[dtype], f"{case} {key}: {difference.max()}"


def real_rows(name: str, case: str, key: str, rows: int, texts: Tensor | None, images: Tensor | None) -> Tensor:
    place = torch.arange(rows)[None]
    if key == "vision_output":
        assert images is not None
        return place < images[:, None]
    assert texts is not None
    keep = place < texts[:, None]
    if case == "compact":
        assert images is not None
        return place < (texts + images)[:, None]
    if rows == 18:  # 12 tokens, then 6 regions
        assert images is not None
        keep = keep | ((place >= 12) & (place < 12 + images[:, None]))
    return keep


@DTYPES
@pytest.mark.parametrize("case", ["compact", "concat", "text_only"])
def test_uniter_equals_the_published_code(case: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model: Uniter = loaded("uniter", tmp_path, dtype)
    given = inputs_of("uniter", case, dtype)
    features = given.get("img_feat")
    texts, images = part("uniter", "len/text")[""], part("uniter", "len/image")[""]
    mask = torch.arange(12)[None] < texts[:, None]
    if features is not None:
        mask = torch.cat([mask, torch.arange(6)[None] < images[:, None]], 1)
    with torch.no_grad():
        states = model.uniter(given["input_ids"], mask, features, given.get("img_pos_feat"))
        pooled = model.uniter.pooler(states)
        if case == "compact":  # the fixture has text and regions adjacent, padding last
            states = torch.stack(
                [
                    functional.pad(torch.cat([row[:t], row[12 : 12 + i]]), (0, 0, 0, 15 - int(t + i)))
                    for row, t, i in zip(states, texts, images, strict=True)
                ]
            )
        check("uniter", case, dtype, last_hidden_state=states, pooled=pooled, logits=model.head(pooled))


def test_uniter_computes_its_seven_box_numbers(tmp_path: Path) -> None:
    model: Uniter = loaded("uniter", tmp_path, torch.float32)
    given = inputs_of("uniter", "concat", torch.float32)
    boxes = given["img_pos_feat"][..., :4]
    batch = Inputs(
        given["input_ids"],
        torch.arange(12)[None] < part("uniter", "len/text")[""][:, None],
        given["img_feat"],
        boxes,
        torch.arange(6)[None] < part("uniter", "len/image")[""][:, None],
    )
    torch.testing.assert_close(model.box_numbers(boxes), given["img_pos_feat"], rtol=0, atol=1e-6)
    with torch.no_grad():
        check("uniter", "concat", torch.float32, logits=model(batch), pooled=model.encode(batch).pooled)


@DTYPES
@pytest.mark.parametrize("checkpoint", ["ckpt/", "ckpt_hf/"])
@pytest.mark.parametrize("case", ["type1", "default", "type0", "no_image", "all_regions"])
def test_visualbert_equals_the_published_code(case: str, checkpoint: str, dtype: torch.dtype, tmp_path: Path) -> None:
    kind = 0 if case == "type0" else 1
    model: VisualBert = loaded("visualbert", tmp_path, dtype, checkpoint)
    model.region_segment = kind
    given = inputs_of("visualbert", case, dtype)
    regions = given.get("visual_embeds")
    batch = Inputs(
        given["input_ids"],
        given["attention_mask"].bool(),
        regions,
        None if regions is None else torch.rand(*regions.shape[:2], 4, dtype=dtype),
        None if regions is None else given["visual_attention_mask"].bool(),
    )
    with torch.no_grad():
        encoded = model.encode(batch)
        states = encoded.text if encoded.image is None else torch.cat([encoded.text, encoded.image], 1)
        check("visualbert", case, dtype, last_hidden_state=states, pooled=encoded.pooled, logits=model(batch))


@DTYPES
@pytest.mark.parametrize("checkpoint", ["ckpt/", "ckpt_hf/"])
@pytest.mark.parametrize("case", ["vmask", "no_vmask", "dead_image"])
def test_lxmert_equals_the_published_code(case: str, checkpoint: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model: Lxmert = loaded("lxmert", tmp_path, dtype, checkpoint)
    given = inputs_of("lxmert", case, dtype)
    region_mask = given["visual_attention_mask"].bool() if "visual_attention_mask" in given else None
    mask = given["attention_mask"].bool()
    batch = Inputs(given["input_ids"], mask, given["visual_feats"], given["visual_pos"], region_mask)
    with torch.no_grad():
        encoded = model.encode(batch)
        assert encoded.image is not None
        check("lxmert", case, dtype, language_output=encoded.text, vision_output=encoded.image)
        check("lxmert", case, dtype, pooled=encoded.pooled, logits=model(batch))


@DTYPES
def test_albef_equals_the_published_code(dtype: torch.dtype, tmp_path: Path) -> None:
    model: Albef = loaded("albef", tmp_path, dtype)
    given = inputs_of("albef", "ve", dtype)
    batch = Inputs(given["input_ids"], given["attention_mask"].bool(), pixels=given["image"])
    with torch.no_grad():
        encoded, seen = model.encode(batch), model.visual_encoder(given["image"])
        check("albef", "ve", dtype, image_embeds=seen, last_hidden_state=encoded.text, cls=encoded.pooled)
        check("albef", "ve", dtype, logits=model(batch))
        assert encoded.image is not None
        torch.testing.assert_close(encoded.image, seen[:, 1:])
        loss = functional.cross_entropy(model(batch), given["targets"])
        check("albef", "ve", dtype, loss_ce=loss[None])


@DTYPES
def test_albef_equals_the_published_code_at_256_pixels_and_on_text(dtype: torch.dtype, tmp_path: Path) -> None:
    model: Albef = loaded("albef", tmp_path, dtype, changes={"picture": 64}, matching=True)
    given = inputs_of("albef", "same_res", dtype)
    batch = Inputs(given["input_ids"], given["attention_mask"].bool(), pixels=given["image"])
    text = inputs_of("albef", "text_mode", dtype)
    with torch.no_grad():
        encoded, seen = model.encode(batch), model.visual_encoder(given["image"])
        check("albef", "same_res", dtype, image_embeds=seen, last_hidden_state=encoded.text, cls=encoded.pooled)
        scores = part("albef", "out/same_res/")["itm_logits"]
        assert (model.match(batch) - (scores[:, 1] - scores[:, 0])).abs().max() < TOLERANCE[dtype]
        alone = model.text_encoder(text["input_ids"], text["attention_mask"].bool())
        check("albef", "text_mode", dtype, last_hidden_state=alone)


@DTYPES
def test_albef_distillation_loss_equals_the_published_code(dtype: torch.dtype, tmp_path: Path) -> None:
    model: Albef = loaded("albef", tmp_path, dtype, distil=True)
    model.head_m.load_state_dict(model.head.state_dict())
    given = inputs_of("albef", "ve", dtype)
    batch = Inputs(given["input_ids"], given["attention_mask"].bool(), pixels=given["image"], answer=given["targets"])
    expected = part("albef", "out/ve/" if dtype == torch.float64 else "out32/ve/")["loss_distill_alpha0.4"]
    loss = model.distillation_loss(batch)
    assert (loss - expected).abs().max() < TOLERANCE[dtype]
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None for name, p in model.named_parameters() if "_m." in name)


def test_load_published_interpolates_positions_as_published() -> None:
    given = part("albef", "posembed/")
    assert (fit_positions(given["in_257"], 577) - given["out_577"]).abs().max() < 1e-6
    assert fit_positions(given["in_257"], 257) is given["in_257"]
    expected = part("albef", "expect/")["visual_encoder.pos_embed"]
    ours = fit_positions(part("albef", "ckpt/")["visual_encoder.pos_embed"], expected.shape[1])
    assert (ours - expected).abs().max() < 1e-6
    with pytest.raises(ValueError, match="not a square grid"):
        fit_positions(torch.zeros(1, 12, 4), 577)


@pytest.mark.parametrize("name", ["uniter", "visualbert", "lxmert"])
def test_matching_score_of_published_heads(name: str, tmp_path: Path) -> None:
    model = loaded(name, tmp_path, torch.float32, matching=True)
    batch = batch_for(name, model.shape)
    key = {"uniter": "itm_output", "visualbert": "bert.cls.seq_relationship", "lxmert": "module.cls.seq_relationship"}
    weights = part(name, f"ckpt/{key[name]}.")
    with torch.no_grad():
        scores = model.encode(batch).pooled @ weights["weight"].T + weights["bias"]
        torch.testing.assert_close(model.match(batch), scores[:, 1] - scores[:, 0])


# --- Fused attention against the library's own ----------------------------------------------------------------------


def library_model(model: VisualBert | Lxmert) -> Any:
    """The eager model of `transformers` with the same weights, in train mode and float64."""
    if isinstance(model, VisualBert):
        reference: Any = VisualBertModel(model.visual_bert.config)
        reference.load_state_dict(model.visual_bert.state_dict())
    else:
        reference = LxmertModel(lxmert_config(model.shape, box_width=4))
        reference.load_state_dict(model.lxmert.state_dict())
    return reference.double().train()


@pytest.mark.parametrize("name", ["visualbert", "lxmert"])
def test_attend_gives_the_numbers_and_gradients_of_the_library(name: str) -> None:
    model: Any = make_model(name, "tiny", vocabulary=50, feature_width=20).double().train()
    batch = as_double(batch_for(name, model.shape))
    reference = library_model(model)
    assert batch.features is not None and batch.boxes is not None and batch.region_mask is not None
    if name == "visualbert":
        out = reference(
            input_ids=batch.tokens,
            attention_mask=batch.token_mask,
            visual_embeds=batch.features,
            visual_attention_mask=batch.region_mask,
            visual_token_type_ids=torch.zeros(batch.region_mask.shape, dtype=torch.long),
        ).pooler_output
    else:
        out = reference(
            batch.tokens, batch.features, batch.boxes, batch.token_mask.double(), batch.region_mask.double()
        ).pooled_output
    ours = model.encode(batch, image_states=False).pooled
    torch.testing.assert_close(ours, out, rtol=0, atol=1e-12)
    target = torch.randn_like(out)
    (ours * target).sum().backward()
    (out * target).sum().backward()
    wanted = dict(reference.named_parameters())
    inner: nn.Module = model.visual_bert if name == "visualbert" else model.lxmert
    for key, parameter in inner.named_parameters():
        theirs = wanted[key].grad
        if parameter.grad is None:  # the last cross layer's image side: skipped here, dead work there
            assert theirs is None or not theirs.any(), key
            continue
        torch.testing.assert_close(parameter.grad, theirs, rtol=0, atol=1e-12, msg=key)


# --- One contract for all -------------------------------------------------------------------------------------------


def build(name: str, options: dict[str, Any], **changes: Any) -> Model:
    return make_model(name, "tiny", options, **{"vocabulary": 50, "feature_width": 20, "picture": 48, **changes})


def batch_for(name: str, shape: Shape, extra: int = 0) -> Inputs:
    """Three examples of different lengths; `extra` positions and regions of padding, filled with nonsense."""
    chance = torch.Generator().manual_seed(7)
    sees = MODELS[name].architecture.sees
    tokens = torch.randint(5, shape.vocabulary, (3, 12), generator=chance)
    token_mask = torch.arange(12)[None] < torch.tensor([12, 7, 4])[:, None]
    corners = torch.rand(3, 6, 2, 2, generator=chance).sort(2).values  # (B, R, near or far, x or y)
    features = torch.randn(3, 6, shape.feature_width, generator=chance)
    boxes, region_mask = corners.flatten(2), torch.arange(6)[None] < torch.tensor([6, 2, 5])[:, None]
    pixels = torch.randn(3, 3, shape.picture, shape.picture, generator=chance)
    if extra:
        tokens = functional.pad(tokens, (0, extra), value=3)
        token_mask = functional.pad(token_mask, (0, extra))
        features, boxes = functional.pad(features, (0, 0, 0, extra), value=9.0), functional.pad(boxes, (0, 0, 0, extra))
        region_mask = functional.pad(region_mask, (0, extra))
    if sees != "regions":
        return Inputs(tokens, token_mask, pixels=pixels if sees == "pixels" else None)
    return Inputs(tokens, token_mask, features, boxes, region_mask)


def as_double(batch: Inputs) -> Inputs:
    assert batch.features is not None and batch.boxes is not None
    return replace(batch, features=batch.features.double(), boxes=batch.boxes.double())


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    model = build(name, options).eval()
    batch = batch_for(name, model.shape)
    with torch.no_grad():
        logits, encoded = model(batch), model.encode(batch)
    assert logits.shape == (3, 2)
    assert encoded.text.shape == (3, 12, model.shape.width)
    assert encoded.pooled.shape[0] == 3
    assert model.embeddings.weight.shape == (50, model.shape.width)
    if model.architecture.sees == "nothing":
        assert encoded.image is None
    else:
        assert encoded.image is not None
        assert encoded.image.shape == (3, 9 if model.architecture.sees == "pixels" else 6, model.shape.width)
    heads = {id(parameter) for parameter in model.head.parameters()}
    rest = {id(parameter) for parameter in model.encoder_parameters()}
    assert heads and not heads & rest and heads | rest == {id(parameter) for parameter in model.parameters()}


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_ignores_padding(name: str, options: dict[str, Any]) -> None:
    model = build(name, options).eval()
    batch, padded = batch_for(name, model.shape), batch_for(name, model.shape, extra=5)
    with torch.no_grad():
        torch.testing.assert_close(model(padded), model(batch), rtol=0, atol=2e-6)
        alone = batch_for(name, model.shape)
        one = replace(alone, **{k: v[1:2] for k, v in vars(alone).items() if v is not None})
        one = replace(one, tokens=one.tokens[:, :7], token_mask=one.token_mask[:, :7])
        if one.features is not None:
            assert one.boxes is not None
            one = replace(one, features=one.features[:, :2], boxes=one.boxes[:, :2], region_mask=None)
        torch.testing.assert_close(model(one), model(batch)[1:2], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_uses_each_input_and_mixes_no_examples(name: str, options: dict[str, Any]) -> None:
    model = build(name, options).eval()
    batch = batch_for(name, model.shape)
    with torch.no_grad():
        before = model(batch)
        changes: list[Inputs] = []
        swapped = batch.tokens.clone()
        swapped[1, 2:4] = batch.tokens[1, 2:4].flip(0) + torch.tensor([0, 1])  # order counts, and so do words
        changes.append(replace(batch, tokens=swapped))
        for field in ("features", "boxes", "pixels"):
            value = getattr(batch, field)
            if value is None or (field == "boxes" and name == "visualbert"):
                continue
            value = value.clone()
            value[1, 0] = value[1, 0] * 0.5 + 0.25
            changes.append(replace(batch, **{field: value}))
        assert len(changes) == 1 + {"regions": 2, "pixels": 1, "nothing": 0}[model.architecture.sees] - (
            name == "visualbert"
        )
        for changed in changes:
            after = model(changed)
            assert (after[1] - before[1]).abs().max() > 1e-7
            torch.testing.assert_close(after[[0, 2]], before[[0, 2]], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_trains_every_parameter(name: str, options: dict[str, Any]) -> None:
    model = build(name, options)
    functional.cross_entropy(model(batch_for(name, model.shape)), torch.tensor([0, 1, 1])).backward()  # type: ignore[no-untyped-call]
    without = {key for key, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None}
    skipped = {key for key in without if ".x_layers.0.visn_" in key}
    assert without == skipped
    assert bool(skipped) == (name == "lxmert" and not options)
    if skipped:  # and image states, asked for, do need those parameters
        encoded = model.encode(batch_for(name, model.shape))
        assert encoded.image is not None
        encoded.image.sum().backward()  # type: ignore[no-untyped-call]
        assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["dropout", "attention_dropout"])
def test_model_drops_out_in_training_alone(name: str, kind: str) -> None:
    model = build(name, {}, **{"dropout": 0.0, "attention_dropout": 0.0, kind: 0.5})
    batch = batch_for(name, model.shape)
    with torch.no_grad():
        assert not torch.equal(model.train()(batch), model(batch))
        assert torch.equal(model.eval()(batch), model(batch))
        still = build(name, {}).train()
        assert torch.equal(still(batch), still(batch))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_its_part_independently_and_scales_the_rest(dtype: torch.dtype) -> None:
    values = torch.ones(999, 1001, dtype=dtype, requires_grad=True)  # not a multiple of the four that share a draw
    out = fast_dropout(values, 0.1)
    kept = out > 0
    assert kept.float().mean().item() == pytest.approx(0.9, abs=0.0015)  # five standard deviations
    for step in (1, 2, 3, 4):
        both = (kept[:, :-step] & kept[:, step:]).float().mean().item()
        assert both == pytest.approx(0.81, abs=0.003)
    assert torch.equal(out[kept], torch.full_like(out[kept], 1 / 0.9))
    out.sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None and torch.equal(values.grad, out)


@pytest.mark.parametrize("name", ["visualbert", "uniter", "lxmert", "albef"])
def test_matching_score_of_every_model(name: str) -> None:
    model = build(name, {"matching": True}).eval()
    with torch.no_grad():
        assert model.match(batch_for(name, model.shape)).shape == (3,)
    without = build(name, {})
    count = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in without.parameters())
    assert count == 2 * model.shape.width + 2
    with pytest.raises(ValueError, match="matching=True"):
        without.match(batch_for(name, model.shape))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_matching_score_refuses_text_only_models(name: str) -> None:
    with pytest.raises(ValueError, match="no matching head"):
        build(name, {}).match(batch_for(name, build(name, {}).shape))


@pytest.mark.parametrize("name", ["visualbert", "uniter"])
def test_region_models_read_text_without_regions(name: str) -> None:
    model = build(name, {}).eval()
    batch = batch_for(name, model.shape)
    blind = Inputs(batch.tokens, batch.token_mask)
    dead = replace(batch, region_mask=torch.zeros_like(batch.region_mask))  # type: ignore[arg-type]
    with torch.no_grad():
        assert model.encode(blind).image is None
        torch.testing.assert_close(model(blind), model(dead), rtol=0, atol=2e-6)


def test_lxmert_skips_dead_work_without_changing_a_logit() -> None:
    model = build("lxmert", {}, cross_layers=2).eval()
    batch = batch_for("lxmert", model.shape)
    with torch.no_grad():
        short, whole = model.encode(batch, image_states=False), model.encode(batch)
    assert short.image is None and whole.image is not None
    torch.testing.assert_close(short.pooled, whole.pooled, rtol=0, atol=0)


def test_roberta_takes_any_padding_token() -> None:
    model = build("roberta", {}).eval()
    batch = batch_for("roberta", model.shape)
    with torch.no_grad():
        wanted = model(batch)
        for pad in (0, 1, 7):
            changed = replace(batch, tokens=batch.tokens.masked_fill(~batch.token_mask, pad))
            torch.testing.assert_close(model(changed), wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_in_bfloat16_stays_close(name: str, options: dict[str, Any]) -> None:
    model = build(name, options)
    batch = batch_for(name, model.shape)
    if batch.region_mask is not None:
        batch.region_mask[1] = False  # no region at all: additive masks overflow here first
    wanted = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch)
        loss = functional.cross_entropy(logits.float(), torch.tensor([0, 1, 1]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(logits.float(), wanted, rtol=0, atol=0.05)


# --- The controlled models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["visualbert", "uniter", "lxmert"])
def test_controlled_model_pools_the_mean_region_first(name: str) -> None:
    model: Any = build(name, {"controlled": True}).eval()
    batch = batch_for(name, model.shape)
    assert batch.features is not None and batch.boxes is not None and batch.region_mask is not None
    ordinary = build(name, {})
    assert model.encode(batch).pooled.shape == (3, 85)  # 4/3 of 64, as 1024 is of 768
    assert not hasattr(ordinary, "fusion") or ordinary.fusion is None
    mean = torch.stack([f[m].mean(0) for f, m in zip(batch.features, batch.region_mask, strict=True)])
    with torch.no_grad():
        encoded = model.encode(batch)
        shuffled = torch.randperm(6)
        moved = replace(
            batch,
            features=batch.features[:, shuffled],
            boxes=batch.boxes[:, shuffled],
            region_mask=batch.region_mask[:, shuffled],
        )
        torch.testing.assert_close(model(moved), model(batch), rtol=0, atol=2e-6)
        seen: list[Tensor] = []
        first = {"visualbert": "visual_bert.embeddings.visual_projection", "uniter": "uniter.img_embeddings.img_linear"}
        layer = model.get_submodule(first.get(name, "lxmert.encoder.visn_fc.visn_fc"))
        layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        model(batch)
    assert encoded.image.shape == (3, 6, 64)
    assert seen[0].shape == (3, 7, 20)
    torch.testing.assert_close(seen[0][:, 0], mean)
    torch.testing.assert_close(seen[0][:, 1:], batch.features)
    states: list[tuple[Tensor, Tensor]] = []
    model.fusion.register_forward_pre_hook(lambda _, given: states.append(given))
    with torch.no_grad():
        encoded = model.encode(batch)
        text, image = states[0]
        torch.testing.assert_close(encoded.text, text)
        torch.testing.assert_close(encoded.image, image[:, 1:])
        product = model.fusion.text(text[:, 0]).clamp(min=0) * model.fusion.image(image[:, 0]).clamp(min=0)
        torch.testing.assert_close(encoded.pooled, product)
    with pytest.raises(ValueError, match="controlled"):
        model(Inputs(batch.tokens, batch.token_mask))


# --- Sizes ----------------------------------------------------------------------------------------------------------

TABLE_8 = {  # millions of trainable parameters; ALBEF: the visual-entailment classifier, not the paper's VQA model
    "visualbert": "112.64",
    "uniter": "111.08",
    "lxmert": "209.12",
    "albef": "209.76",
    "bert": "108.31",
    "roberta": "124.65",
}
TABLE_8_CONTROLLED = {"visualbert": "114.02", "uniter": "113.63", "lxmert": "210.50"}


def millions(name: str, options: dict[str, Any], **changes: Any) -> str:
    with torch.device("meta"):
        model = make_model(name, "base", options, **changes)
    return f"{sum(p.numel() for p in model.parameters() if p.requires_grad) / 1e6:.2f}"


@pytest.mark.parametrize("name", MODELS)
def test_base_size_has_the_paper_s_parameters(name: str) -> None:
    assert millions(name, {}) == TABLE_8[name]


@pytest.mark.parametrize("name", TABLE_8_CONTROLLED)
def test_controlled_base_size_has_the_paper_s_parameters(name: str) -> None:
    assert millions(name, {"controlled": True}) == TABLE_8_CONTROLLED[name]


def test_albef_s_teacher_is_not_trained() -> None:
    assert millions("albef", {"distil": True}) == TABLE_8["albef"]


# --- Published weights ----------------------------------------------------------------------------------------------

PUBLISHED_HEADS = {
    "uniter": ("cls.", "feat_regress.", "region_classifier.", "itm_output.", "uniter.img_embeddings.mask_embedding."),
    "visualbert": ("cls.",),
    "lxmert": ("cls.", "obj_predict_head.", "answer_head."),
    "lxmert_original": ("cls.", "obj_predict_head.", "answer_head."),
    "albef": (
        "visual_encoder_m.",
        "text_encoder_m.",
        "text_encoder.cls.",
        "vision_proj",
        "text_proj",
        "itm_head.",
        "image_queue",
        "text_queue",
        "queue_ptr",
        "temp",
        "text_encoder.bert.embeddings.position_ids",
    ),
}


@pytest.mark.parametrize("checkpoint", PUBLISHED_HEADS)
def test_load_published_knows_every_published_key(checkpoint: str) -> None:
    published: dict[str, list[int]] = json.loads(gzip.decompress((DATA / "base_keys.json.gz").read_bytes()))[checkpoint]
    name = checkpoint.split("_")[0]
    with torch.device("meta"):
        model = make_model(name, "base", picture=256)
    ours = {key: list(value.shape) for key, value in model.state_dict().items() if not key.startswith("head.")}
    assert len(ours) > 190
    used = {key: rename_key(key, model.renames) for key in published if not key.startswith(PUBLISHED_HEADS[checkpoint])}
    assert {new: published[old] for old, new in used.items()} == ours
    assert len(set(used.values())) == len(used)
    assert not any(rename_key(key, model.renames) in ours for key in published if key not in used)


def fixture_model(name: str, **options: Any) -> Any:
    return MODELS[name](fixture_shape(name), **options)


def heads(name: str, keys: list[str]) -> set[str]:
    """Published names of the classification head as the models call it."""
    return {key.replace("vqa_output.", "head.").replace("cls_head", "head") for key in keys}


def test_load_published_reports_heads_of_uniter(tmp_path: Path) -> None:
    save_file(part("uniter", "ckpt/"), tmp_path / "u.safetensors")
    report = load_published(fixture_model("uniter"), tmp_path / "u.safetensors")
    about = FIXTURES["uniter"][0]
    assert set(report.missing) == heads("uniter", about["keys_missing_in_checkpoint"])
    # The published class has the embedding of masked regions, which only its pretraining uses.
    extra = {"uniter.img_embeddings.mask_embedding.weight"}
    assert set(report.unexpected) == {*about["keys_unexpected_in_checkpoint"], *extra}
    with_matching = load_published(fixture_model("uniter", matching=True), tmp_path / "u.safetensors")
    assert set(report.unexpected) - set(with_matching.unexpected) == {"itm_output.weight", "itm_output.bias"}
    assert "head.0.weight" in str(report) and "itm_output.bias" in str(report)


def test_load_published_reports_heads_of_albef(tmp_path: Path) -> None:
    torch.save({"model": part("albef", "ckpt/"), "epoch": 29, "optimizer": {}}, tmp_path / "ALBEF.pth")
    report = load_published(fixture_model("albef", distil=True), tmp_path / "ALBEF.pth")
    about = FIXTURES["albef"][0]
    assert set(report.missing) == heads("albef", about["keys_missing_in_checkpoint"])
    assert set(report.unexpected) == set(about["keys_unexpected_in_checkpoint"])
    plain = load_published(fixture_model("albef"), tmp_path / "ALBEF.pth")
    copies = {k for k in part("albef", "ckpt/") if k.startswith(("visual_encoder_m.", "text_encoder_m."))}
    copies = {key for key in copies if not key.endswith("position_ids")}
    assert set(plain.unexpected) == {*about["keys_unexpected_in_checkpoint"], *copies}


@pytest.mark.parametrize("name", ["visualbert", "lxmert"])
def test_load_published_reports_heads_of_visualbert_and_lxmert(name: str, tmp_path: Path) -> None:
    torch.save(part(name, "ckpt/"), tmp_path / "c.th")
    model = fixture_model(name)
    report = load_published(model, tmp_path / "c.th")
    assert set(report.missing) == {f"head.{key}" for key in model.head.state_dict()}
    assert report.unexpected
    expected = {"cls", "answer_head", "obj_predict_head"} if name == "lxmert" else {"cls"}
    assert {
        key.replace("module.", "").replace("bert.cls", "cls").split(".")[0] for key in report.unexpected
    } == expected


def test_load_published_copies_an_absent_teacher(tmp_path: Path) -> None:
    pretrained = fixture_model("albef", distil=True)
    torch.save({"model": part("albef", "ckpt/")}, tmp_path / "a.pth")
    load_published(pretrained, tmp_path / "a.pth")
    tuned = {
        k.replace("head", "cls_head", 1) if k.startswith("head") else k: v for k, v in pretrained.state_dict().items()
    }
    torch.save(tuned, tmp_path / "tuned.pth")
    again = fixture_model("albef", distil=True)
    report = load_published(again, tmp_path / "tuned.pth")
    assert report.missing == report.unexpected == ()
    same(again, pretrained)
    torch.save({key: value for key, value in tuned.items() if "_m." not in key}, tmp_path / "student.pth")
    report = load_published(again, tmp_path / "student.pth")
    assert report.missing and all("_m." in key for key in report.missing)
    for key, value in again.state_dict().items():
        torch.testing.assert_close(value, again.state_dict()[key.replace("_m.", ".")], rtol=0, atol=0)


def same(one: nn.Module, other: nn.Module, but: str = "head") -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for key, value in one.state_dict().items():
        if not key.startswith(but):
            torch.testing.assert_close(value, other.state_dict()[key], rtol=0, atol=0, msg=key)


def prefixed(rename: tuple[str, str], front: str = "") -> dict[str, Tensor]:
    return {front + key.replace(*rename): value for key, value in part("uniter", "ckpt/").items()}


def old_norms(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    ends = {"weight": "gamma", "bias": "beta"}
    return {
        f"{stem}.{ends[end]}" if "LayerNorm" in stem.rsplit(".", 1)[-1] else key: value
        for key, value in tensors.items()
        for stem, _, end in [key.rpartition(".")]
    }


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda: prefixed(("uniter.", "uniter.")), id="published"),
        pytest.param(lambda: prefixed(("uniter", "bert")), id="bert"),
        pytest.param(lambda: prefixed(("uniter.", "")), id="bare"),
        pytest.param(lambda: prefixed(("uniter.", "uniter."), "module."), id="module"),
        pytest.param(lambda: prefixed(("uniter.", ""), "module."), id="module-bare"),
        pytest.param(lambda: {"model_state_dict": prefixed(("uniter.", "uniter."))}, id="model_state_dict"),
        pytest.param(lambda: {"model": prefixed(("uniter", "bert")), "epoch": 3}, id="model"),
        pytest.param(lambda: old_norms(prefixed(("uniter", "bert"))), id="gamma-beta"),
    ],
)
def test_load_published_takes_every_prefix_of_uniter(content: Any, tmp_path: Path) -> None:
    torch.save(part("uniter", "ckpt/"), tmp_path / "a.pt")
    torch.save(content(), tmp_path / "b.pt")
    one, other = fixture_model("uniter", matching=True), fixture_model("uniter", matching=True)
    load_published(one, tmp_path / "a.pt")
    report = load_published(other, tmp_path / "b.pt")
    same(one, other)
    assert set(report.missing) == {f"head.{key}" for key in other.head.state_dict()}


def test_load_published_casts_half_precision(tmp_path: Path) -> None:
    half = {key: value.half() for key, value in part("uniter", "ckpt/").items()}
    torch.save(half, tmp_path / "half.pt")
    model = fixture_model("uniter")
    load_published(model, tmp_path / "half.pt")
    weight = model.embeddings.weight
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight, half["uniter.embeddings.word_embeddings.weight"].float(), rtol=0, atol=0)


@pytest.mark.parametrize("layout", ["model.safetensors", "pytorch_model.bin", "sharded", "one .pt"])
def test_load_published_takes_folders_of_transformers(layout: str, tmp_path: Path) -> None:
    tensors = part("visualbert", "ckpt_hf/")
    (tmp_path / "config.json").write_text("{}")
    if layout == "sharded":
        names = sorted(tensors)
        halves = {"model-1.safetensors": names[:20], "model-2.safetensors": names[20:]}
        for file, keys in halves.items():
            save_file({key: tensors[key] for key in keys}, tmp_path / file)
        index = {"weight_map": {key: file for file, keys in halves.items() for key in keys}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    elif layout == "model.safetensors":
        save_file(tensors, tmp_path / layout)
    else:
        torch.save(tensors, tmp_path / ("weights.pt" if layout == "one .pt" else layout))
    model, wanted = fixture_model("visualbert"), fixture_model("visualbert")
    load_published(model, tmp_path)
    torch.save(part("visualbert", "ckpt/"), tmp_path.parent / "original.th")
    load_published(wanted, tmp_path.parent / "original.th")
    same(model, wanted)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_load_published_gives_bert_and_roberta_of_transformers(name: str, tmp_path: Path) -> None:
    model: Any = build(name, {}).eval()
    sizes = {
        "vocab_size": 50,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "max_position_embeddings": model.shape.positions,
        "type_vocab_size": model.shape.types,
        "layer_norm_eps": model.shape.epsilon,
    }
    theirs: Any
    if name == "bert":
        theirs = BertForPreTraining(BertConfig(**sizes))
    else:
        theirs = RobertaForMaskedLM(RobertaConfig(**sizes, pad_token_id=1))
    theirs.eval().save_pretrained(tmp_path)
    report = load_published(model, tmp_path)
    assert set(report.missing) == {f"head.{key}" for key in model.head.state_dict()}
    assert report.unexpected and all(key.startswith(("cls.", "lm_head.")) for key in report.unexpected)
    batch = batch_for(name, model.shape)
    tokens = batch.tokens.masked_fill(~batch.token_mask, 1 if name == "roberta" else 0)
    inner = theirs.bert if name == "bert" else theirs.roberta
    with torch.no_grad():
        wanted = inner(input_ids=tokens, attention_mask=batch.token_mask.long()).last_hidden_state
        ours = model.encode(replace(batch, tokens=tokens)).text
    torch.testing.assert_close(ours[batch.token_mask], wanted[batch.token_mask], rtol=0, atol=2e-6)


def test_load_published_leaves_out_a_head_of_other_classes(tmp_path: Path) -> None:
    head = {"vqa_output.3.weight": torch.zeros(3, 64), "vqa_output.3.bias": torch.zeros(3)}
    fits = {"vqa_output.0.weight": torch.full((64, 32), 2.0)}
    torch.save({**part("uniter", "ckpt/"), **head, **fits}, tmp_path / "nlvr.pt")
    model = fixture_model("uniter")
    report = load_published(model, tmp_path / "nlvr.pt")
    assert {"head.3.weight", "head.3.bias"} <= set(report.missing) and set(head) <= set(report.unexpected)
    assert bool((model.head[0].weight == 2).all()) and model.head[3].weight.shape == (2, 64)


def one_line(path: Path, model: Model, *parts: str) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        load_published(model, path)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("pretrained=")
    assert all(part in message for part in parts), message
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_load_published_refuses_another_architecture(tmp_path: Path) -> None:
    file = tmp_path / "c.pt"
    torch.save(part("uniter", "ckpt/"), file)
    one_line(
        file, fixture_model("lxmert"), "another architecture", "lxmert.embeddings.word_embeddings.weight", "(89, 32)"
    )
    wide = replace(fixture_shape("uniter"), feature_width=2048)
    one_line(file, Uniter(wide), "uniter.img_embeddings.img_linear.weight", "(32, 48)", "(32, 2048)")
    words = replace(fixture_shape("uniter"), vocabulary=400)
    one_line(file, Uniter(words), "(97, 32)", "(400, 32)", "vocabulary=97")
    deep = replace(fixture_shape("uniter"), layers=3)
    one_line(file, Uniter(deep), "uniter.encoder.layer.2.attention.self.query.weight", "16 of the encoder's")
    shallow = replace(fixture_shape("uniter"), layers=1)
    one_line(file, Uniter(shallow), "it has uniter.encoder.layer.1.attention", "lacks")
    controlled = Uniter(replace(fixture_shape("uniter")), controlled=True)
    one_line(file, controlled, "another architecture")
    lacking = {key: value for key, value in part("uniter", "ckpt/").items() if "pooler" not in key}
    torch.save(lacking, file)
    one_line(file, fixture_model("uniter"), "uniter.pooler.dense.weight")
    twice = part("uniter", "ckpt/")
    twice["bert.pooler.dense.bias"] = twice["uniter.pooler.dense.bias"]
    torch.save(twice, file)
    one_line(file, fixture_model("uniter"), "both", "bert.pooler.dense.bias")


class HostilePickle:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("hostile-was-here",)


@pytest.mark.parametrize("protocol", ["torch", "pickle"])
def test_load_published_refuses_a_pickle_that_would_run_code(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = {**part("uniter", "ckpt/"), "extra": HostilePickle()}
    file = tmp_path / "hostile.pt"
    if protocol == "torch":
        torch.save(content, file)
    else:
        file.write_bytes(pickle.dumps({"extra": HostilePickle()}, protocol=2))
    one_line(file, fixture_model("uniter"), "refused", "run code")
    assert not (tmp_path / "hostile-was-here").exists()


def test_load_published_refuses_what_is_no_checkpoint(tmp_path: Path) -> None:
    model = fixture_model("uniter")
    one_line(tmp_path / "absent.pt", model, "no such file")
    one_line(tmp_path / "absent", model, "no such file")
    for name, content in (
        ("text.pt", b"hello, this is no checkpoint"),
        ("empty.pth", b""),
        ("st.safetensors", b"12345"),
    ):
        (tmp_path / name).write_bytes(content)
        one_line(tmp_path / name, model, "cannot be read")
    torch.save(part("uniter", "ckpt/"), tmp_path / "cut.pt")
    whole = (tmp_path / "cut.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    one_line(tmp_path / "cut.pt", model, "cannot be read")
    torch.save([torch.zeros(3)], tmp_path / "list.pt")
    one_line(tmp_path / "list.pt", model, "no state dict")
    torch.save({"epoch": 3}, tmp_path / "numbers.pt")
    one_line(tmp_path / "numbers.pt", model, "no tensors")
    (tmp_path / "folder").mkdir()
    one_line(tmp_path / "folder", model, "no weights")
    for name in ("a.pt", "b.pt"):
        torch.save({}, tmp_path / "folder" / name)
    one_line(tmp_path / "folder", model, "2 files of weights")
    index = tmp_path / "folder" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../../secret.safetensors"}}))
    one_line(tmp_path / "folder", model, "outside its folder")
    index.write_text("[")
    one_line(tmp_path / "folder", model, "cannot be read")


def test_load_published_fetches_a_hub_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tmp_path)

    def fail(name: str, allow_patterns: list[str]) -> str:
        raise OSError("no network\nmore lines")

    save_file(part("visualbert", "ckpt_hf/"), tmp_path / "model.safetensors")
    monkeypatch.setattr("train.models.loading.snapshot_download", fetch)
    assert "cls.seq_relationship.bias" in load_published(fixture_model("visualbert"), "uclanlp/visualbert").unexpected
    assert asked[0][0] == "uclanlp/visualbert" and "*.safetensors" in asked[0][1]
    assert not any("*.py" in pattern for pattern in asked[0][1])
    monkeypatch.setattr("train.models.loading.snapshot_download", fail)
    with pytest.raises(ValueError, match=r"^pretrained=uclanlp/visualbert: [^\n]*no network$"):
        read_checkpoint("uclanlp/visualbert")


# --- Tokenizers and pixels ------------------------------------------------------------------------------------------

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_tokenizer_of_takes_the_checkpoint_s_own(tmp_path: Path) -> None:
    (tmp_path / "c.pt").write_bytes(b"")
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "red", "circle", "##s"]))
    for path in (tmp_path, tmp_path / "c.pt"):
        tokenizer = tokenizer_of(path, "visualbert")
        assert tokenizer("Red circles [SEP] red")["input_ids"] == [2, 5, 6, 7, 3, 5, 3]
        assert len(tokenizer) == 8
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "red", "circle", "##s", "Red"]))
    assert tokenizer_of(tmp_path, "uniter")("Red red RED")["input_ids"] == [2, 8, 5, 1, 3]
    (tmp_path / "saved").mkdir()
    tokenizer_of(tmp_path, "uniter").save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved" / "vocab.txt").exists()
    assert tokenizer_of(tmp_path / "saved", "uniter")("Red red RED")["input_ids"] == [2, 8, 5, 1, 3]


@pytest.mark.parametrize("name", MODELS)
def test_tokenizer_of_falls_back_on_the_published_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(wanted: str) -> None:
        raise OSError(f"asked for {wanted}\nand more")

    monkeypatch.setattr("train.models.loading.AutoTokenizer.from_pretrained", fail)
    published = {"uniter": "bert-base-cased", "bert": "bert-base-cased", "roberta": "roberta-base"}
    with pytest.raises(ValueError, match=f"asked for {published.get(name, 'bert-base-uncased')}$"):
        tokenizer_of(tmp_path, name)


def test_pixel_statistics_are_the_checkpoint_s_own(tmp_path: Path) -> None:
    (tmp_path / "c.pt").write_bytes(b"")
    assert pixel_statistics(tmp_path / "c.pt") == PUBLISHED
    own = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(own))
    assert pixel_statistics(tmp_path / "c.pt") == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    for wrong in ([0.5], "grey", [0.1, 0.2, None], [0.1, 0.2, math.nan]):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({**own, "image_mean": wrong}))
        with pytest.raises(ValueError, match="image_mean"):
            pixel_statistics(tmp_path)


# --- Mistakes -------------------------------------------------------------------------------------------------------


def test_make_model_refuses_wrong_names_and_values() -> None:
    with pytest.raises(ValueError, match="model=vilbert: choose one of visualbert, uniter"):
        make_model("vilbert")
    with pytest.raises(ValueError, match="size=large: must be one of tiny, small, base"):
        make_model("bert", "large")
    with pytest.raises(ValueError, match="distil: not an option of model=uniter, which has matching, controlled"):
        make_model("uniter", "tiny", {"distil": True})


@pytest.mark.parametrize("name", MODELS)
def test_model_refuses_batches_that_it_cannot_take(name: str) -> None:
    positions = 14 if name == "roberta" else 12
    model = build(name, {}, positions=positions)
    batch = batch_for(name, model.shape)
    model(batch)  # exactly as long as it takes
    with pytest.raises(ValueError, match="text of 13 tokens: this model takes at most 12"):
        model(batch_for(name, model.shape, extra=1))
    if model.architecture.sees == "regions":
        assert batch.features is not None
        with pytest.raises(ValueError, match="regions of 19 numbers: this model takes 20"):
            model(replace(batch, features=batch.features[..., :19]))
        with pytest.raises(ValueError, match="regions without boxes"):
            model(replace(batch, boxes=None))
    if model.architecture.sees == "pixels":
        with pytest.raises(ValueError, match="this model takes"):
            model(replace(batch, pixels=torch.zeros(3, 3, 32, 32)))
    if name in ("lxmert", "albef"):
        with pytest.raises(ValueError, match=rf"model={name}: needs"):
            model(Inputs(batch.tokens, batch.token_mask))


# --- Evaluation -----------------------------------------------------------------------------------------------------


def test_predict_encodes_pictures_once_with_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = stream_examples(Generator(Cardinality()), 0, 24)
    raw = raw.take(np.array([*range(20), 3, 3, 11]))  # three pictures repeat
    model = make_model("albef", "tiny", vocabulary=200).eval()
    examples = Examples(
        raw, WordTokenizer(grammar_tokenizer()), VisualSettings("pixels", RegionSettings(), side=model.shape.picture)
    )
    assert isinstance(model, Albef)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2 if parameter.ndim > 1 else 1)  # answers that depend on picture and text
    monkeypatch.setattr(
        "train.learning.testing.MAX_VISION", 7 * model.visual_encoder.pos_embed.numel()
    )  # three portions
    seen: list[int] = []
    model.visual_encoder.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    settings = ("image", "caption", "image+caption")
    found = predict(model, examples, settings, torch.device("cpu"), "float32")
    assert sum(seen) == 20 + 1
    for setting in settings:
        rows = np.arange(len(examples))
        with torch.no_grad():
            logits = model(examples.inputs(rows, *visible_modalities(setting, rows, None)))
        expected = (logits[:, 1] - logits[:, 0]).numpy()
        assert np.ptp(expected) > 0.05
        np.testing.assert_allclose(found[setting], expected, rtol=0, atol=1e-5)
