"""What is uploaded to the hub, by a client that only takes notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from tests.helpers import unfinish, write
from travlr import publish
from travlr.settings import UsageError

CARD = {"README.md", "example.png", "croissant.json", "dataset.json"}


class FakeHub:
    """Stands in for `HfApi`. uploads: repository, its type, whether it is private, and names of files."""

    uploads: list[tuple[str, str, bool, set[str]]]

    def __init__(self, **_: Any) -> None:
        self.repositories: dict[str, tuple[str, bool]] = {}

    def create_repo(self, name: str, *, repo_type: str, private: bool, exist_ok: bool) -> huggingface_hub.RepoUrl:
        assert exist_ok
        url = huggingface_hub.RepoUrl(f"https://huggingface.co/{'datasets/' * (repo_type == 'dataset')}me/{name}")
        self.repositories[url.repo_id] = repo_type, private
        return url

    def upload_folder(
        self, *, repo_id: str, repo_type: str, folder_path: Path, allow_patterns: list[str], commit_message: str
    ) -> None:
        kind, private = self.repositories[repo_id]
        assert kind == repo_type and commit_message
        names = [path.relative_to(folder_path).as_posix() for path in folder_path.rglob("*") if path.is_file()]
        files = set(filter_repo_objects(names, allow_patterns=allow_patterns))  # as the client chooses files
        self.uploads.append((repo_id, kind, private, files))


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool, set[str]]]:
    FakeHub.uploads = []
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    return FakeHub.uploads


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def test_publish_uploads_a_dataset_and_nothing_else(
    tmp_path: Path, uploads: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, _ = write(tmp_path)
    shards = {file["name"] for file in manifest["files"]}
    fill(tmp_path, "index.html", "notes.json", ".token", "old/README.md", f"old/{min(shards)}")
    publish.main([str(tmp_path), "repo=scenes"])
    printed = capsys.readouterr().out
    assert not uploads and all(name in printed for name in ("private", *CARD, *shards))
    publish.main([str(tmp_path), "repo=scenes", "push=true", "private=false"])
    assert uploads == [("me/scenes", "dataset", False, CARD | shards)]


def test_publish_uploads_a_run_without_checkpoints_and_logs(tmp_path: Path, uploads: list[Any]) -> None:
    files = {"settings.yaml", "results.json", "model.safetensors", "config.json", "tokenizer.json", "README.md"}
    others = "checkpoints/last.ckpt", "checkpoints/config.json", "wandb/run/config.yaml", ".env.json", "events.0.local"
    publish.main([str(fill(tmp_path, *files, *others)), "repo=model", "push=true"])
    assert uploads == [("me/model", "model", True, files)]


@pytest.mark.parametrize("case", ["unfinished run", "evaluation", "unfinished dataset", "damaged", "link", "missing"])
def test_publish_refuses_a_folder(case: str, tmp_path: Path, uploads: list[Any]) -> None:
    folder = tmp_path / "folder"
    if case == "unfinished run":
        fill(folder, "settings.yaml", "model.safetensors")
    elif case == "evaluation":
        fill(folder, "settings.yaml", "results.json")
    elif case == "unfinished dataset":
        unfinish(folder)
    elif case == "damaged":
        manifest, _ = write(folder)
        (folder / manifest["files"][-1]["name"]).write_bytes(b"PAR1")
    elif case == "link":
        fill(folder, "settings.yaml", "results.json", "model.safetensors")
        fill(tmp_path, "secret.json")
        (folder / "config.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(UsageError, match="folder"):
        publish.main([str(folder), "repo=x", "push=true"])
    assert not uploads


def test_publish_refuses_a_wrong_name(tmp_path: Path, uploads: list[Any]) -> None:
    write(tmp_path)
    with pytest.raises(ValueError, match="repo"):
        publish.main([str(tmp_path), "repo=../x", "push=true"])
    assert not uploads
