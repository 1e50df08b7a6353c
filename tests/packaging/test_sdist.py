"""Test the source distribution: it has the tests and the documentation, and is described without dead links."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Of the repository itself: what only git reads.
LEFT_OUT = {".gitignore"}
#: What setuptools adds.
ADDED = re.compile(r"PKG-INFO|setup\.cfg|tilewright\.egg-info/.*")
LINK = re.compile(r"\]\(([^)#\s]+)")
BUILD = "import sys; sys.path.insert(0, 'build_support'); import backend; print(backend.build_sdist(sys.argv[1]))"


def tracked() -> list[str]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def build(folder: Path, urls: str = "") -> Path:
    """The archive of a copy of the tracked files, with ``urls`` as the addresses in pyproject.toml."""
    source = folder / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    settings = source / "pyproject.toml"
    text = re.sub(r"^\[project\.urls\]\n(?:(?!\[).*\n)*", "", settings.read_text(encoding="utf-8"), flags=re.MULTILINE)
    settings.write_text(text + urls, encoding="utf-8")
    command = [sys.executable, "-c", BUILD, str(folder)]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (archive,) = folder.glob("*.tar.gz")
    return archive


def description(archive: Path) -> Message:
    with tarfile.open(archive) as files:
        (name,) = [name for name in files.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", name)]
        member = files.extractfile(name)
        assert member is not None
        return Parser().parsestr(member.read().decode("utf-8"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sdist"))


def test_it_has_every_file_of_the_repository(archive: Path) -> None:
    with tarfile.open(archive) as files:
        packed = {name.name.partition("/")[2] for name in files.getmembers() if name.isfile()}
    assert {name for name in packed if not ADDED.fullmatch(name)} == set(tracked()) - LEFT_OUT


def test_links_to_files_are_left_out_while_the_repository_has_no_address(archive: Path) -> None:
    text = description(archive).get_payload()
    assert "# Tilewright" in text
    assert [link for link in LINK.findall(text) if not link.startswith("https://")] == []
    assert "docs/extending.md" in text  # the text of a link stays


def test_links_lead_to_the_repository_where_it_has_an_address(tmp_path: Path) -> None:
    archive = build(tmp_path, '\n[project.urls]\nSource = "https://example.org/tilewright/"\n')
    metadata = description(archive)
    assert metadata.get_all("Project-URL") == ["Source, https://example.org/tilewright/"]
    text, version = metadata.get_payload(), metadata["Version"]
    links = [link for link in LINK.findall(text) if not link.startswith("https://mypyc")]
    assert f"https://example.org/tilewright/blob/v{version}/docs/extending.md" in links
    for link in links:
        kind = "raw" if link.endswith((".png", ".svg")) else "blob"
        path = link.removeprefix(f"https://example.org/tilewright/{kind}/v{version}/")
        assert (ROOT / path).exists(), link
