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
from train.models.layers import Attention, Model, Shape, fast_dropout, first_token
from train.models.loading import load_published, pixel_statistics, read_checkpoint, rename_key, tokenizer_of
from train.models.lxmert import lxmert_config
from train.models.positions import start_positions
from train.models.uniter import Uniter
from travlr import Cardinality
from travlr.generate import Generator

DATA = Path(__file__).parent / "data"
FIXTURES = {
    name: (json.loads((DATA / f"parity/{name}.json").read_text()), load_file(DATA / f"parity/{name}.safetensors"))
    for name in ("uniter", "visualbert", "lxmert", "albef")
}
REGION_MODELS = ("visualbert", "uniter", "lxmert")
CONTRACT: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in MODELS]
CONTRACT += [(name, {"controlled": True}) for name in REGION_MODELS] + [("albef", {"distil": True})]


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


def loaded(name: str, tmp_path: Path, checkpoint: str = "ckpt/", **options: Any) -> Any:
    """A model of the fixture's size with the fixture's weights, by way of a file in the published layout."""
    shape = replace(fixture_shape(name), **options.pop("changes", {}))
    model: Any = MODELS[name](shape, **options)
    head = part(name, "head/")
    classes = next(len(value) for key, value in head.items() if key.endswith(("3.bias", "2.bias")) and len(value) < 32)
    model.head[-1] = nn.Linear(model.head[-1].in_features, classes)
    if options.get("distil"):
        model.head_m = copy.deepcopy(model.head).requires_grad_(False)
    torch.save(part(name, checkpoint), tmp_path / f"{name}.pt")
    load_published(model, tmp_path / f"{name}.pt")
    model.head.load_state_dict({key.split(".", 1)[1]: value for key, value in head.items()})
    return model.double().eval()


def batch_of(name: str, case: str) -> Inputs:
    """The inputs of a case of the fixture, with random boxes where the published model takes none."""
    found = part(name, f"in/{case}/")
    given = {key: value.double() if value.is_floating_point() else value for key, value in found.items()}
    features = given.get("visual_embeds", given.get("visual_feats", given.get("img_feat")))
    boxes, mask, region_mask = given.get("visual_pos"), given["attention_mask"].bool(), None
    if name == "visualbert" and features is not None:
        boxes = torch.rand(*features.shape[:2], 4, dtype=torch.float64)
    if name == "uniter":  # whose mask is of words and regions together
        texts, images = (part(name, f"len/{kind}")[""][:, None] for kind in ("text", "image"))
        mask = torch.arange(12)[None] < texts
        if features is not None:
            boxes, region_mask = given["img_pos_feat"][..., :4], torch.arange(6)[None] < images
    if "visual_attention_mask" in given:
        region_mask = given["visual_attention_mask"].bool()
    answer = given.get("targets")
    return Inputs(given["input_ids"], mask, features, boxes, region_mask, given.get("image"), answer=answer)


def check(name: str, case: str, mask: Tensor | None = None, **ours: Tensor) -> None:
    """`ours` against the fixture's outputs of the same names, in the rows of a mask."""
    expected = part(name, f"out/{case}/")
    for key, value in ours.items():
        wanted = expected[key]
        assert value.shape == wanted.shape, key
        difference = (value - wanted).abs()
        assert difference[mask if mask is not None and value.dim() == 3 else ...].max() < 1e-6, f"{case} {key}"


PARITY = [(name, case, "ckpt/") for name, cases in {
    "uniter": ("concat", "compact", "text_only"),
    "visualbert": ("type1", "default", "type0", "no_image", "all_regions"),
    "lxmert": ("vmask", "no_vmask", "dead_image"),
}.items() for case in cases]  # fmt: skip


@pytest.mark.parametrize(("name", "case", "checkpoint"), [*PARITY, ("lxmert", "vmask", "ckpt_hf/")])
def test_region_model_equals_the_published_code(name: str, case: str, checkpoint: str, tmp_path: Path) -> None:
    model, batch = loaded(name, tmp_path, checkpoint), batch_of(name, case)
    if name == "visualbert":
        model.region_segment = 0 if case == "type0" else 1
    with torch.no_grad():
        encoded, logits = model.encode(batch), model(batch)
    check(name, case, pooled=encoded.pooled, logits=logits)
    text, mask, image = encoded.text, batch.token_mask, encoded.image
    if name == "lxmert":
        check(name, case, mask, language_output=text)
        check(name, case, batch.region_mask, vision_output=image)
        return
    states, both = text, mask
    if image is not None and batch.region_mask is not None:
        states, both = torch.cat([text, image], 1), torch.cat([mask, batch.region_mask], 1)
    if case == "compact":  # the fixture has text and regions adjacent, padding last
        rows = [
            functional.pad(row[kept], (0, 0, 0, 15 - int(kept.sum()))) for row, kept in zip(states, both, strict=True)
        ]
        states, both = torch.stack(rows), torch.arange(15)[None] < both.sum(1, keepdim=True)
    check(name, case, both, last_hidden_state=states)


def test_albef_equals_the_published_code(tmp_path: Path) -> None:
    model, batch = loaded("albef", tmp_path, distil=True), batch_of("albef", "ve")
    model.head_m.load_state_dict(model.head.state_dict())
    assert batch.answer is not None
    with torch.no_grad():
        encoded, seen, logits = model.encode(batch), model.visual_encoder(batch.pixels), model(batch)
    loss = functional.cross_entropy(logits, batch.answer)
    check("albef", "ve", batch.token_mask, last_hidden_state=encoded.text, cls=encoded.pooled)
    check("albef", "ve", image_embeds=seen, logits=logits, loss_ce=loss[None])
    torch.testing.assert_close(encoded.image, seen[:, 1:])
    loss = model.distillation_loss(batch)
    check("albef", "ve", **{"loss_distill_alpha0.4": loss[None]})
    loss.backward()
    assert all(p.grad is None for name, p in model.named_parameters() if "_m." in name)


def test_albef_equals_the_published_code_at_256_pixels_and_on_text(tmp_path: Path) -> None:
    model: Albef = loaded("albef", tmp_path, changes={"picture": 64}, matching=True)
    batch, text = batch_of("albef", "same_res"), batch_of("albef", "text_mode")
    with torch.no_grad():
        encoded, seen = model.encode(batch), model.visual_encoder(batch.pixels)
        check("albef", "same_res", image_embeds=seen, cls=encoded.pooled)
        scores = part("albef", "out/same_res/")["itm_logits"]
        assert (model.match(batch) - (scores[:, 1] - scores[:, 0])).abs().max() < 1e-6
        alone = model.text_encoder(text.tokens, text.token_mask)
        check("albef", "text_mode", text.token_mask, last_hidden_state=alone)


def test_load_published_interpolates_positions_as_published() -> None:
    given = part("albef", "posembed/")
    assert (fit_positions(given["in_257"], 577) - given["out_577"]).abs().max() < 1e-6
    expected = part("albef", "expect/")["visual_encoder.pos_embed"]
    ours = fit_positions(part("albef", "ckpt/")["visual_encoder.pos_embed"], expected.shape[1])
    assert (ours - expected).abs().max() < 1e-6
    with pytest.raises(ValueError, match="square"):
        fit_positions(torch.zeros(1, 12, 4), 577)


# --- Fused attention against the library's own ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["visualbert", "lxmert"])
def test_attend_gives_the_numbers_and_gradients_of_the_library(name: str) -> None:
    """The eager model of `transformers` with the same weights, in train mode and float64."""
    model: Any = make_model(name, "tiny", vocabulary=50, feature_width=20).double().train()
    batch: Any = batch_for(name, model.shape)
    batch = replace(batch, features=batch.features.double(), boxes=batch.boxes.double())
    inner: nn.Module = model.visual_bert if name == "visualbert" else model.lxmert
    config: Any = model.visual_bert.config if name == "visualbert" else lxmert_config(model.shape, box_width=4)
    reference: Any = VisualBertModel(config) if name == "visualbert" else LxmertModel(config)
    reference.load_state_dict(inner.state_dict())
    reference = reference.double().train()
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
    ours = model.encode(batch, first_token(batch.tokens)).pooled
    torch.testing.assert_close(ours, out, rtol=0, atol=1e-12)
    target = torch.randn_like(out)
    (ours * target).sum().backward()
    (out * target).sum().backward()
    wanted = dict(reference.named_parameters())
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


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    model = build(name, options).eval()
    batch = batch_for(name, model.shape)
    with torch.no_grad():
        logits, encoded = model(batch), model.encode(batch)
    sees = model.architecture.sees
    assert logits.shape == (3, 2) and len(encoded.pooled) == 3
    assert encoded.text.shape == (3, 12, model.shape.width)
    assert model.embeddings.weight.shape == (50, model.shape.width)
    assert (encoded.image is None) == (sees == "nothing")
    if encoded.image is not None:
        assert encoded.image.shape == (3, 9 if sees == "pixels" else 6, model.shape.width)
    heads = {id(parameter) for parameter in model.head.parameters()}
    rest = {id(parameter) for parameter in model.encoder_parameters()}
    assert heads and not heads & rest and heads | rest == {id(parameter) for parameter in model.parameters()}


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_ignores_padding(name: str, options: dict[str, Any]) -> None:
    model = build(name, options).eval()
    batch, padded = batch_for(name, model.shape), batch_for(name, model.shape, extra=5)
    one = batch.take(slice(1, 2))  # alone, without its padding
    one = replace(one, tokens=one.tokens[:, :7], token_mask=one.token_mask[:, :7])
    if one.features is not None and one.boxes is not None:
        one = replace(one, features=one.features[:, :2], boxes=one.boxes[:, :2], region_mask=None)
    with torch.no_grad():
        torch.testing.assert_close(model(padded), model(batch), rtol=0, atol=2e-6)
        torch.testing.assert_close(model(one), model(batch)[1:2], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_uses_each_input_and_mixes_no_examples(name: str, options: dict[str, Any]) -> None:
    model = build(name, options).eval()
    batch = batch_for(name, model.shape)
    swapped = batch.tokens.clone()
    swapped[1, 2:4] = batch.tokens[1, 2:4].flip(0) + torch.tensor([0, 1])  # order counts, and so do words
    changes = [replace(batch, tokens=swapped)]
    for field in {"regions": ("features", "boxes"), "pixels": ("pixels",), "nothing": ()}[model.architecture.sees]:
        if (name, field) != ("visualbert", "boxes"):
            value = getattr(batch, field).clone()
            value[1, 0] = value[1, 0] * 0.5 + 0.25
            changes.append(replace(batch, **{field: value}))
    with torch.no_grad():
        before = model(batch)
        for changed in changes:
            after = model(changed)
            assert (after[1] - before[1]).abs().max() > 1e-7
            torch.testing.assert_close(after[[0, 2]], before[[0, 2]], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_trains_every_parameter_and_stays_close_in_bfloat16(name: str, options: dict[str, Any]) -> None:
    model = build(name, options)
    batch = batch_for(name, model.shape)
    if batch.region_mask is not None:
        batch.region_mask[1] = False  # no region at all: additive masks overflow here first
    wanted = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch)
        loss = functional.cross_entropy(logits.float(), torch.tensor([0, 1, 1]))
    torch.testing.assert_close(logits.float(), wanted, rtol=0, atol=0.05)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    without = {key for key, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None}
    assert all(".x_layers.0.visn_" in key for key in without)
    assert bool(without) == (name == "lxmert" and not options)
    if without:  # and image states, asked for, do need those parameters
        encoded = model.encode(batch)
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
    remains = out > 0
    assert remains.float().mean().item() == pytest.approx(0.9, abs=0.0015)  # five standard deviations
    for step in (1, 2, 3, 4):
        both = (remains[:, :-step] & remains[:, step:]).float().mean().item()
        assert both == pytest.approx(0.81, abs=0.003)
    assert torch.equal(out[remains], torch.full_like(out[remains], 1 / 0.9))
    out.sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None and torch.equal(values.grad, out)


@pytest.mark.parametrize("name", REGION_MODELS)
def test_controlled_model_pools_the_mean_region_first(name: str) -> None:
    model: Any = build(name, {"controlled": True}).eval()
    batch = batch_for(name, model.shape)
    assert batch.features is not None and batch.boxes is not None and batch.region_mask is not None
    mean = torch.stack([f[m].mean(0) for f, m in zip(batch.features, batch.region_mask, strict=True)])
    given: dict[str, Any] = {}
    first = {"visualbert": "visual_bert.embeddings.visual_projection", "uniter": "uniter.img_embeddings.img_linear"}
    layer = model.get_submodule(first.get(name, "lxmert.encoder.visn_fc.visn_fc"))
    layer.register_forward_pre_hook(lambda _, values: given.update(regions=values[0]))
    model.fusion.register_forward_pre_hook(lambda _, values: given.update(states=values))
    with torch.no_grad():
        encoded = model.encode(batch)
        torch.testing.assert_close(given["regions"], torch.cat([mean[:, None], batch.features], 1))
        text, image = given["states"]
        assert encoded.image.shape == (3, 6, 64) and encoded.pooled.shape == (3, 85)  # 4/3 of 64, as 1024 is of 768
        torch.testing.assert_close((encoded.text, encoded.image), (text, image[:, 1:]))
        product = model.fusion.text(text[:, 0]).clamp(min=0) * model.fusion.image(image[:, 0]).clamp(min=0)
        torch.testing.assert_close(encoded.pooled, product)


# --- Sizes ----------------------------------------------------------------------------------------------------------

# Millions of trainable parameters in the paper's table 8; ALBEF: the visual-entailment classifier, not its VQA model,
# and its teacher is not trained.
TABLE_8: list[tuple[str, dict[str, Any], str]] = [
    ("visualbert", {}, "112.64"), ("uniter", {}, "111.08"), ("lxmert", {}, "209.12"), ("albef", {}, "209.76"),
    ("bert", {}, "108.31"), ("roberta", {}, "124.65"), ("albef", {"distil": True}, "209.76"),
    ("visualbert", {"controlled": True}, "114.02"), ("uniter", {"controlled": True}, "113.63"),
    ("lxmert", {"controlled": True}, "210.50"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "millions"), TABLE_8)
def test_base_size_has_the_paper_s_parameters(name: str, options: dict[str, Any], millions: str) -> None:
    with torch.device("meta"):
        model = make_model(name, "base", options)
    assert f"{sum(p.numel() for p in model.parameters() if p.requires_grad) / 1e6:.2f}" == millions


# --- Published weights ----------------------------------------------------------------------------------------------

PUBLISHED_HEADS = {
    "uniter": "cls. feat_regress. region_classifier. itm_output. uniter.img_embeddings.mask_embedding.",
    "visualbert": "cls.",
    "lxmert": "cls. obj_predict_head. answer_head.",
    "lxmert_original": "cls. obj_predict_head. answer_head.",
    "albef": "visual_encoder_m. text_encoder_m. text_encoder.cls. vision_proj text_proj itm_head. image_queue "
    "text_queue queue_ptr temp text_encoder.bert.embeddings.position_ids",
}


@pytest.mark.parametrize("checkpoint", PUBLISHED_HEADS)
def test_rename_key_takes_every_published_key(checkpoint: str) -> None:
    published: dict[str, list[int]] = json.loads(gzip.decompress((DATA / "base_keys.json.gz").read_bytes()))[checkpoint]
    with torch.device("meta"):
        model = make_model(checkpoint.split("_")[0], "base", picture=256)
    ours = {key: list(value.shape) for key, value in model.state_dict().items() if not key.startswith("head.")}
    assert len(ours) > 190
    heads = tuple(PUBLISHED_HEADS[checkpoint].split())
    used = {key: rename_key(key, model.renames) for key in published if not key.startswith(heads)}
    assert {new: published[old] for old, new in used.items()} == ours
    assert len(set(used.values())) == len(used)
    assert not any(rename_key(key, model.renames) in ours for key in published if key not in used)


def fixture_model(name: str, **options: Any) -> Any:
    return MODELS[name](fixture_shape(name), **options)


@pytest.mark.parametrize("name", FIXTURES)
def test_load_published_reports_heads(name: str, tmp_path: Path) -> None:
    torch.save({"model": part(name, "ckpt/"), "epoch": 29, "optimizer": {}}, tmp_path / "c.pth")
    model = fixture_model(name, **({"distil": True} if name == "albef" else {}))
    report, about = load_published(model, tmp_path / "c.pth"), FIXTURES[name][0]
    heads = {f"head.{key}" for key in model.head.state_dict()}
    assert heads <= set(report.missing) <= heads | {key.replace("head.", "head_m.") for key in heads}
    if name in ("uniter", "albef"):  # of which the fixture has what the published code reports
        more = {"uniter.img_embeddings.mask_embedding.weight"} if name == "uniter" else set()  # for its pretraining
        assert set(report.unexpected) == {*about["keys_unexpected_in_checkpoint"], *more}
    else:
        stems = {key.replace("module.", "").replace("bert.cls", "cls").split(".")[0] for key in report.unexpected}
        assert stems == ({"cls", "answer_head", "obj_predict_head"} if name == "lxmert" else {"cls"})
    assert "head.0.weight" in str(report) and report.unexpected[-1] in str(report)


def test_load_published_copies_an_absent_teacher(tmp_path: Path) -> None:
    model = fixture_model("albef", distil=True)
    student = {
        key.replace("head", "cls_head", 1) if key.startswith("head") else key: value + 1
        for key, value in model.state_dict().items()
        if "_m." not in key
    }
    torch.save(student, tmp_path / "student.pth")
    report = load_published(model, tmp_path / "student.pth")
    assert report.missing and all("_m." in key for key in report.missing) and report.unexpected == ()
    for key, value in model.state_dict().items():
        name = key.replace("_m.", ".")
        assert torch.equal(value, student[name.replace("head", "cls_head", 1) if key.startswith("head") else name])


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
        pytest.param(lambda: prefixed(("uniter.", ""), "module."), id="module-bare"),
        pytest.param(lambda: {"model_state_dict": prefixed(("uniter.", "uniter."), "module.")}, id="module-wrapped"),
        pytest.param(lambda: old_norms(prefixed(("uniter", "bert"))), id="bert-gamma-beta"),
        pytest.param(lambda: {key: value.double() for key, value in part("uniter", "ckpt/").items()}, id="precision"),
    ],
)
def test_load_published_takes_every_layout_of_uniter(content: Any, tmp_path: Path) -> None:
    torch.save(content(), tmp_path / "c.pt")
    model = fixture_model("uniter", matching=True)
    report = load_published(model, tmp_path / "c.pt")
    assert set(report.missing) == {f"head.{key}" for key in model.head.state_dict()}
    published, ours = part("uniter", "ckpt/"), model.state_dict()
    used = {rename_key(key, model.renames): value for key, value in published.items()}
    assert all(torch.equal(value, used[key]) for key, value in ours.items() if not key.startswith("head"))
    assert model.embeddings.weight.dtype == torch.float32


@pytest.mark.parametrize("layout", ["pytorch_model.bin", "sharded", "weights.pt"])
def test_load_published_takes_folders_of_transformers(layout: str, tmp_path: Path) -> None:
    tensors = part("visualbert", "ckpt_hf/")
    if layout == "sharded":
        names = sorted(tensors)
        halves = {"model-1.safetensors": names[:20], "model-2.safetensors": names[20:]}
        for file, keys in halves.items():
            save_file({key: tensors[key] for key in keys}, tmp_path / file)
        index = {"weight_map": {key: file for file, keys in halves.items() for key in keys}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        torch.save(tensors, tmp_path / layout)
    model, wanted = fixture_model("visualbert"), fixture_model("visualbert")
    load_published(model, tmp_path)
    torch.save(part("visualbert", "ckpt/"), tmp_path.parent / "original.th")
    load_published(wanted, tmp_path.parent / "original.th")
    for key, value in model.state_dict().items():
        assert key.startswith("head") or torch.equal(value, wanted.state_dict()[key]), key


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_load_published_gives_bert_and_roberta_of_transformers(name: str, tmp_path: Path) -> None:
    model: Any = build(name, {}).eval()
    shape, pad = model.shape, 1 if name == "roberta" else 0
    theirs: Any = BertForPreTraining if name == "bert" else RobertaForMaskedLM
    about: Any = BertConfig if name == "bert" else RobertaConfig
    theirs = theirs(
        about(
            vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256,
            max_position_embeddings=shape.positions, type_vocab_size=shape.types, layer_norm_eps=shape.epsilon,
            pad_token_id=pad,
        )
    ).eval()  # fmt: skip
    theirs.save_pretrained(tmp_path)
    report = load_published(model, tmp_path)
    assert set(report.missing) == {f"head.{key}" for key in model.head.state_dict()}
    assert report.unexpected and all(key.startswith(("cls.", "lm_head.")) for key in report.unexpected)
    batch = batch_for(name, shape)  # whose padding is of any tokens; the library's positions need its own
    tokens = batch.tokens.masked_fill(~batch.token_mask, pad)
    inner = theirs.bert if name == "bert" else theirs.roberta
    with torch.no_grad():
        wanted = inner(input_ids=tokens, attention_mask=batch.token_mask.long()).last_hidden_state
        ours = model.encode(batch).text
    torch.testing.assert_close(ours[batch.token_mask], wanted[batch.token_mask], rtol=0, atol=2e-6)


def test_load_published_leaves_out_a_head_of_other_classes(tmp_path: Path) -> None:
    head = {"vqa_output.3.weight": torch.zeros(3, 64), "vqa_output.3.bias": torch.zeros(3)}
    fits = {"vqa_output.0.weight": torch.full((64, 32), 2.0)}
    torch.save({**part("uniter", "ckpt/"), **head, **fits}, tmp_path / "nlvr.pt")
    model = fixture_model("uniter")
    report = load_published(model, tmp_path / "nlvr.pt")
    assert {"head.3.weight", "head.3.bias"} <= set(report.missing) and set(head) <= set(report.unexpected)
    assert bool((model.head[0].weight == 2).all()) and model.head[3].weight.shape == (2, 64)


def refused(path: Path, model: Model, *parts: str) -> None:
    """A checkpoint is refused in one line that names these parts, and the model is left as it was."""
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        load_published(model, path)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("pretrained=")
    assert all(part in message for part in parts), message
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


SHAPES: dict[str, tuple[dict[str, int], tuple[str, ...]]] = {
    "features": ({"feature_width": 2048}, ("uniter.img_embeddings.img_linear.weight", "(32, 48)", "(32, 2048)")),
    "words": ({"vocabulary": 400}, ("(97, 32)", "(400, 32)", "vocabulary=97")),
    "deeper": ({"layers": 3}, ("uniter.encoder.layer.2.attention.self.query.weight", "(16 of ")),
    "shallower": ({"layers": 1}, ("uniter.encoder.layer.1.attention", "lacks")),
}


@pytest.mark.parametrize(("changes", "parts"), SHAPES.values(), ids=SHAPES)
def test_load_published_refuses_another_size(changes: dict[str, int], parts: tuple[str, ...], tmp_path: Path) -> None:
    torch.save(part("uniter", "ckpt/"), tmp_path / "c.pt")
    refused(tmp_path / "c.pt", Uniter(replace(fixture_shape("uniter"), **changes)), "another architecture", *parts)


def test_load_published_refuses_another_architecture(tmp_path: Path) -> None:
    file, tensors = tmp_path / "c.pt", part("uniter", "ckpt/")
    torch.save(tensors, file)
    refused(file, fixture_model("lxmert"), "another architecture", "lxmert.embeddings.word_embeddings.weight")
    refused(file, fixture_model("uniter", controlled=True), "another architecture")
    torch.save({key: value for key, value in tensors.items() if "pooler" not in key}, file)
    refused(file, fixture_model("uniter"), "uniter.pooler.dense.weight")
    torch.save(tensors | {"bert.pooler.dense.bias": tensors["uniter.pooler.dense.bias"]}, file)
    refused(file, fixture_model("uniter"), "both", "bert.pooler.dense.bias")


class HostilePickle:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("hostile-was-here",)


@pytest.mark.parametrize("writer", [torch.save, lambda content, file: file.write_bytes(pickle.dumps(content))])
def test_load_published_refuses_a_pickle_that_would_run_code(
    writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer({"extra": HostilePickle()}, tmp_path / "hostile.pt")
    refused(tmp_path / "hostile.pt", fixture_model("uniter"), "refused", "run code")
    assert not (tmp_path / "hostile-was-here").exists()


def test_load_published_refuses_what_is_no_checkpoint(tmp_path: Path) -> None:
    model, folder = fixture_model("uniter"), tmp_path / "folder"
    refused(tmp_path / "absent.pt", model, "no such file")
    torch.save(part("uniter", "ckpt/"), tmp_path / "cut.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "cut.pt").read_bytes()[:10_000])
    refused(tmp_path / "cut.pt", model, "cannot be read")
    torch.save({"epoch": 3}, tmp_path / "numbers.pt")
    refused(tmp_path / "numbers.pt", model, "no tensors")
    folder.mkdir()
    refused(folder, model, "no weights")
    for name in ("a.pt", "b.pt"):
        torch.save({}, folder / name)
    refused(folder, model, "2 files of weights")
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "../../secret.safetensors"}}')
    refused(folder, model, "outside its folder")


def test_load_published_fetches_a_hub_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, list[str]]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        requests.append((name, allow_patterns))
        return str(tmp_path)

    def fail(name: str, allow_patterns: list[str]) -> str:
        raise OSError("no network\nmore lines")

    save_file(part("visualbert", "ckpt_hf/"), tmp_path / "model.safetensors")
    monkeypatch.setattr("train.models.loading.snapshot_download", fetch)
    assert "cls.seq_relationship.bias" in load_published(fixture_model("visualbert"), "uclanlp/visualbert").unexpected
    [(name, patterns)] = requests
    assert name == "uclanlp/visualbert" and "*.safetensors" in patterns and not any(".py" in one for one in patterns)
    monkeypatch.setattr("train.models.loading.snapshot_download", fail)
    with pytest.raises(ValueError, match=r"^pretrained=uclanlp/visualbert: [^\n]*no network$"):
        read_checkpoint("uclanlp/visualbert")


# --- Tokenizers and pixels ------------------------------------------------------------------------------------------

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_tokenizer_of_takes_the_checkpoint_s_own(tmp_path: Path) -> None:
    (tmp_path / "c.pt").write_bytes(b"")
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "red", "circle", "##s"]))
    tokenizer = tokenizer_of(tmp_path / "c.pt", "visualbert")
    assert tokenizer("Red circles [SEP] red")["input_ids"] == [2, 5, 6, 7, 3, 5, 3]
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "red", "circle", "##s", "Red"]))
    tokenizer_of(tmp_path, "uniter").save_pretrained(tmp_path / "saved")
    for folder in (tmp_path, tmp_path / "saved"):
        assert tokenizer_of(folder, "uniter")("Red red RED")["input_ids"] == [2, 8, 5, 1, 3]


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
    assert pixel_statistics(tmp_path) == PUBLISHED
    own = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(own))
    assert pixel_statistics(tmp_path) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    for wrong in ([0.5], "grey", [0.1, 0.2, math.nan]):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({**own, "image_mean": wrong}))
        with pytest.raises(ValueError, match="image_mean"):
            pixel_statistics(tmp_path)


# --- Mistakes -------------------------------------------------------------------------------------------------------


def test_make_model_refuses_wrong_sizes_and_options() -> None:
    with pytest.raises(ValueError, match=r"size=large: .*tiny, small, base"):
        make_model("bert", "large")
    with pytest.raises(ValueError, match=r"distil: .*model=uniter.* matching, controlled"):
        make_model("uniter", "tiny", {"distil": True})


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_model_refuses_batches_that_it_cannot_take(name: str, options: dict[str, Any]) -> None:
    model = build(name, options, positions=14 if name == "roberta" else 12)
    batch, sees = batch_for(name, model.shape), model.architecture.sees
    model(batch)  # exactly as long as it takes
    wrong = [(batch_for(name, model.shape, extra=1), "13 tokens: .* 12")]
    if batch.features is not None:
        narrow = replace(batch, features=batch.features[..., :19])
        wrong.append((narrow, "regions of 19 .* 20"))
        wrong.append((replace(batch, boxes=None), "boxes"))
    if sees == "pixels":
        wrong.append((replace(batch, pixels=torch.zeros(3, 3, 32, 32)), "pixels.*32, 32"))
    if name in ("lxmert", "albef") or options:
        wrong.append((Inputs(batch.tokens, batch.token_mask), "needs"))
    for inputs, message in wrong:
        with pytest.raises(ValueError, match=message):
            model(inputs)
    with pytest.raises(ValueError, match="matching"):
        model.match(batch)


# --- Evaluation -----------------------------------------------------------------------------------------------------


def test_predict_encodes_pictures_once_with_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = stream_examples(Generator(Cardinality()), 0, 24)
    raw = raw.take(np.array([*range(20), 3, 3, 11]))  # three pictures repeat
    model = make_model("albef", "tiny", vocabulary=200, picture=48).eval()
    sight = VisualSettings("pixels", RegionSettings(), side=model.shape.picture)
    examples, rows = Examples(raw, WordTokenizer(grammar_tokenizer()), sight), np.arange(23)
    assert isinstance(model, Albef)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2 if parameter.ndim > 1 else 1)  # answers that depend on picture and text
    states = 7 * model.visual_encoder.pos_embed.numel()  # of a portion: three are enough
    monkeypatch.setattr("train.learning.testing.MAX_VISION", states)
    encoded: list[int] = []
    model.visual_encoder.register_forward_hook(lambda module, given, out: encoded.append(len(out)))
    settings = ("image", "caption", "image+caption")
    predicted = predict(model, examples, settings, torch.device("cpu"), "float32")
    assert sum(encoded) == 20 + 1
    for setting in settings:
        with torch.no_grad():
            logits = model(examples.inputs(rows, *visible_modalities(setting, rows, None)))
        expected = (logits[:, 1] - logits[:, 0]).numpy()
        assert np.ptp(expected) > 0.05
        np.testing.assert_allclose(predicted[setting], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_first_heads_attend_to_the_tokens_before(name: str) -> None:
    model = make_model(name, "tiny", vocabulary=50)
    start_positions(model)
    modules, tables = dict(model.named_modules()), dict(model.named_parameters())
    attention = next(module for key, module in modules.items() if key.endswith(".layer.0.attention.self"))
    table = next(table for key, table in tables.items() if key.endswith(".position_embeddings.weight"))
    assert isinstance(attention, Attention)
    states = torch.nn.functional.layer_norm(table[:60], table.shape[1:])
    query, key = (layer(states).unflatten(-1, (attention.heads, -1)) for layer in (attention.query, attention.key))
    for head in range(attention.heads):
        scores = query[:, head] @ key[:, head].T
        assert scores.argmax(1)[head + 1 :].tolist() == list(range(60 - head - 1))


def test_start_positions_leaves_attention_of_users_alone() -> None:
    model: Any = make_model("bert", "tiny", vocabulary=50)
    model.bert.encoder.layer[0].attention.self = torch.nn.Identity()
    start_positions(model)
