"""The report's lines on the dataset made again: which promises this proves, and which rest on the manifest alone."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from travlr.audit.examine import ENCODING, FILES, PICTURES, ROWS, DatasetInfo, Findings, parts_in
from travlr.audit.pictures import renderer_of
from travlr.audit.regenerate import Origin, due_manifest, made_again, manifest_problem, shared_problem, source_problem
from travlr.audit.report import Check, checked, counted
from travlr.audit.structure import png_chunks, png_problem
from travlr.files import regular
from travlr.formats import LAYOUTS
from travlr.formats.card import card_files, facts, header_of
from travlr.formats.columns import content_digest, damage
from travlr.formats.manifest import MANIFEST, read_manifest
from travlr.scene import SPLITS

SHARE, DEVIATIONS = 0.6, 5.0  # pictures encoded in one way: at most SHARE of them may have one answer, beyond chance
CARD = "regeneration: card"


def regeneration_checks(info: DatasetInfo, findings: Findings) -> list[Check]:
    """The manifest, rows, pictures, files and card of a dataset against those made again."""
    if info.origin is None:
        return []
    manifest = read_manifest(info.folder)
    due: dict[str, Any] = {}
    try:
        due = due_manifest(manifest, info.origin)
        problem = manifest_problem(manifest, due) or source_problem(manifest, source_digests(info, findings))
    except ValueError as error:
        problem = str(error)
    good = "follows from the settings: splits, held-out lists, files, globs"
    checks = [checked("regeneration: manifest", len(manifest), [problem] if problem else [], good)]
    if info.origin.config:
        checks += [counted(findings, ROWS, "made again from the settings: every column is the same")]
        checks += [picture_check(info.origin, findings)]
    checks += [file_check(info, findings), card_check(info, manifest | due)]
    return [*checks, *rest(info.origin, checks)]


def source_digests(info: DatasetInfo, findings: Findings) -> dict[str, str | None]:
    """The content digests of these rows with PNG and with JPEG pictures."""
    sums = {split: findings.digests[split] % (1 << 256) for split in info.splits}
    config = info.rules.config
    pixels = renderer_of(config).digest() if config else None
    return {"png": content_digest(sums, pixels), "jpeg": content_digest(sums, None)}


def picture_check(origin: Origin, findings: Findings) -> Check:
    """Picture files against those made again: the same bytes, or all of one other encoder, whatever the answer."""
    check = counted(findings, PICTURES, "made again: the same bytes")
    ways: dict[tuple[str, str, Any], list[int]] = {}
    for (split, rule, feature, answer), n in findings.tally.items():
        if rule == ENCODING:
            ways.setdefault((split, *feature), [0, 0])[answer] += n
    if check.status == "FAIL" or not ways:
        return check
    for (split, aspect, value), (false, true) in sorted(ways.items(), key=str):
        total = false + true
        if max(false, true) > SHARE * total and abs(true - false) > DEVIATIONS * total**0.5:
            detail = f"{total} {split} pictures of one encoding ({aspect} {value}): {true} true, {false} false"
            return dataclasses.replace(check, status="FAIL", detail=detail)
    headers = Counter[str]()
    for (_, aspect, value), answers in ways.items():
        if aspect == "header":
            headers[value] += sum(answers)
    count = headers.total()
    if len(headers) > 1 or (count < check.checked and "as here" not in headers):
        detail = f"encoded by several programs: {count:,} are not as here, with {len(headers)} kinds of header"
        return dataclasses.replace(check, status="FAIL", detail=detail)
    detail = f"{count:,} by another {'Pillow' if origin.jpeg else 'compressor'}; nothing else in any file"
    return dataclasses.replace(check, status="note", detail=detail)


def file_check(info: DatasetInfo, findings: Findings) -> Check:
    """Files as their format writes these rows; of Parquet files of other versions all but the encoding of columns."""
    check = counted(findings, FILES, "written again from their rows: the same bytes")
    shared = LAYOUTS[info.layout].shared(list(parts_in(info).values()))
    problems = [check.detail] if check.status == "FAIL" else []
    problems += [text for file in shared if (text := shared_problem(info.folder, file, findings.fragments))]
    check = checked(FILES, check.checked + len(shared), problems[:1], check.detail)
    if check.status == "ok" and (count := findings.totals[f"{FILES} of other versions"]):
        detail = f"{count} of another pyarrow; no other column, metadata or bytes in any file"
        return dataclasses.replace(check, status="note", detail=detail)
    return check


def card_check(info: DatasetInfo, manifest: dict[str, Any]) -> Check:
    """README.md and example.png against those of the manifest and the first row."""
    origin, split = info.origin, next((split for split in SPLITS if split in manifest["splits"]), "")
    assert origin is not None
    splits = {s: {"true": 0, **info.splits.get(s, {}), **n} for s, n in manifest["splits"].items()}
    files = [dict(file) for file in info.files]
    manifest = {**manifest, "splits": splits, "files": files}
    problems, wording = [], ""
    try:
        with damage(info.folder / MANIFEST):
            if origin.config:
                table = made_again(origin, split, 0, 1)
            else:
                table = next(LAYOUTS[info.layout].read(info.folder, manifest, split, 0, 1))
            row = table.to_pylist()[0]
            due = card_files(manifest, row)
    except (ValueError, StopIteration) as error:
        return checked(CARD, 0, [str(error) or "there is no first row"], "")
    card = {}
    for name in due:
        try:
            card[name] = regular(info.folder / name).read_bytes()
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
    if not problems and card["README.md"] != due["README.md"]:
        text = card["README.md"].decode(errors="replace")
        wording = "README.md has other words than this version's"
        if header_of(text) != header_of(due["README.md"].decode()):
            problems.append("README.md: its header is not that of this dataset (splits, globs or features)")
        elif missing := [fact for fact in facts(manifest, row) if fact not in text]:
            problems.append(f"README.md: has not {missing[0].strip()[:80]!r}")
        elif origin.files_here:
            problems.append("README.md: not the text of this dataset")
    if not problems and card["example.png"] != due["example.png"]:
        problem = picture_problem(card["example.png"], due["example.png"])
        if problem or (origin.files_here and origin.pictures_here):
            problems.append(f"example.png: {problem or 'not the bytes of the first picture'}")
    check = checked(CARD, len(card), problems[:1], "README.md and example.png are as written for these rows")
    return dataclasses.replace(check, status="note", detail=wording) if check.status == "ok" and wording else check


def picture_problem(data: bytes, due: bytes) -> str:
    """The first difference of an example picture; of those that Pillow wrote, in pixels and kinds of chunks."""
    problem = png_problem(data, due)
    if not problem or not due.startswith(b"\x89PNG"):
        return problem
    from render.png import decode

    try:
        kinds = [{name for name, _ in png_chunks(file)} for file in (data, due)]
        by_pillow = b"PLTE" not in kinds[1]
        same = by_pillow and kinds[0] == kinds[1] and decode(data).tobytes() == decode(due).tobytes()
    except ValueError as error:
        return str(error)
    return "" if same else problem


def rest(origin: Origin, checks: list[Check]) -> list[Check]:
    """What making a dataset again does not prove, and what this rests on. The same bytes prove all, in any version."""
    name = "regeneration: not proved"
    if not origin.config:
        detail = "another program made the rows: they rest on the checks above, held-out pairs on test_ood alone"
        return [Check(name, "note", 0, detail)]
    if not any(check.status == "note" for check in checks):
        return []
    versions = ", ".join(origin.other_versions[:2]) or "of its source"
    detail = f"how other versions ({versions}) encode the same content: that rests on the SHA-256s in dataset.json"
    return [Check(name, "note", 0, detail)]
