"""Upload a finished dataset or run to the Hugging Face Hub: `python -m travlr.publish DIR repo=NAME`."""

from __future__ import annotations

import argparse
import glob
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from travlr.formats.manifest import CARD, MANIFEST, check_files, read_manifest
from travlr.settings import Settings, UsageError, count_text, help_lines, run_command

# Of a run's own files; checkpoints and logs have others, or folders of their own.
SUFFIXES = (".csv", ".jinja", ".json", ".jsonl", ".md", ".model", ".parquet", ".safetensors", ".txt", ".yaml")
HELP = """\
List the files of a finished dataset or run, or upload them to the Hugging Face Hub. Log in with `hf auth login` before.
"""


class Publication(Settings):
    """Where to upload, and whether."""

    repo: str = Field(pattern=r"^([\w-][\w.-]*/)?[\w-][\w.-]*$", description="the repository, NAME or OWNER/NAME")
    push: bool = Field(False, description="true uploads; false only lists the files")
    private: bool = Field(True, description="of a new repository; one that exists stays as it is")


def published_files(folder: Path) -> tuple[str, list[str]]:
    """The type of the repository (dataset or model), and the names of the files to upload.

    Raises `UsageError` for a folder that holds no finished dataset or run, or a link that leaves it.
    """
    if not (folder / "settings.yaml").is_file():
        try:
            shards = read_manifest(folder)["files"]
            check_files(folder, shards)
        except ValueError as error:
            raise UsageError(str(error)) from None
        kind, paths = "dataset", [folder / name for name in (*CARD, MANIFEST, *(shard["name"] for shard in shards))]
    elif not (folder / "results.json").is_file():
        raise UsageError(f"{folder}: unfinished; run the command that began it again to finish it")
    elif not any(folder.glob("*.safetensors")):
        raise UsageError(f"{folder}: holds no model; is it an evaluation?")
    else:
        kind, paths = "model", [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
    names = [path.name for path in paths if path.is_file() and not path.name.startswith(".")]
    if leaving := [name for name in names if not (folder / name).resolve().is_relative_to(folder.resolve())]:
        raise UsageError(f"{folder / leaving[0]}: is a link to a file outside of the folder")
    return kind, names


def upload(folder: Path, kind: str, names: list[str], settings: Publication) -> str:
    """Upload files of a folder, and return the address of the repository. Raises what the hub's client raises."""
    from huggingface_hub import HfApi

    api = HfApi(library_name="travlr")
    repo = api.create_repo(settings.repo, repo_type=kind, private=settings.private, exist_ok=True)
    api.upload_folder(
        repo_id=repo.repo_id,
        repo_type=kind,
        folder_path=folder,
        allow_patterns=[glob.escape(name) for name in names],
        commit_message=f"Upload {folder.resolve().name}",
    )
    return str(repo)


def main(arguments: list[str]) -> None:
    about = "\n".join([HELP, "settings", *(f"  {line}" for line in help_lines(Publication(repo="NAME")))])
    parser = argparse.ArgumentParser("python -m travlr.publish", None, about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", metavar="DIR", type=Path, help="a finished dataset or run")
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="*")
    options = parser.parse_args(arguments)
    values: dict[str, Any] = dict(setting.partition("=")[::2] for setting in options.settings)
    settings = Publication(**values)
    kind, names = published_files(options.folder)
    sizes = [(options.folder / name).stat().st_size for name in names]
    visibility = "private" if settings.private else "public"
    print(f"{kind} {settings.repo}, {visibility} if it is new: {count_text(len(names), 'file')}, {sum(sizes):,} bytes")
    for name, size in zip(names, sizes, strict=True):
        print(f"{size:>15,}  {name}")
    done = upload(options.folder, kind, names, settings) if settings.push else "nothing was uploaded; give push=true"
    print(done)


if __name__ == "__main__":
    run_command("publish", lambda: main(sys.argv[1:]), set(Publication.model_fields))
