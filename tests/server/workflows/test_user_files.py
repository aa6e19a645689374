"""The folder of files that may run, and the copies that requests go on with."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nodeloom.graph_import.dsl.user_code import kept_name
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.server.files import UnsafeName
from nodeloom.server.workflows import user_files
from nodeloom.server.workflows.user_files import UserCodeRefused, UserFiles

TEXT = b"x = 1\n"
DIGEST = hashlib.sha256(TEXT).hexdigest()


def copy_of(files: UserFiles, folder: Path, name: str, sha256: str) -> Path:
    """Where the copy of a file with this content lies."""
    kept = kept_name(files.identity(name).path, sha256)
    assert kept is not None
    return folder / "copies" / kept


@pytest.fixture
def files(tmp_path: Path) -> UserFiles:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "a.py").write_bytes(TEXT)
    return UserFiles(tmp_path / "flows", tmp_path / "copies")


def test_a_file_is_read_with_its_hash(files: UserFiles) -> None:
    source = files.read("a.py")
    assert (source.name, source.data, source.sha256) == ("a.py", TEXT, DIGEST)


@pytest.mark.parametrize("name", ["../a.py", "/a.py", "x\n.py", "b/../../a.py"])
def test_a_name_may_not_leave_the_folder(files: UserFiles, name: str) -> None:
    with pytest.raises(UnsafeName):
        files.read(name)
    with pytest.raises(ModelFileProblem):
        files.identity(name)


def test_a_file_that_is_too_large_or_no_python_is_refused(files: UserFiles, tmp_path: Path) -> None:
    (tmp_path / "flows" / "large.py").write_bytes(b"#" * (user_files.MAX_FILE_BYTES + 1))
    for name, words in (("large.py", "larger than"), ("a.txt", "no Python"), ("b.py", "no file")):
        with pytest.raises(ModelFileProblem, match=words):
            files.read(name)


def test_without_a_flag_nothing_is_given(tmp_path: Path, files: UserFiles) -> None:
    with pytest.raises(UserCodeRefused, match="--workflow-directory"):
        UserFiles(None, None).read("a.py")
    only_workflows = UserFiles(tmp_path / "flows", None)
    assert only_workflows.read("a.py").sha256 == DIGEST
    with pytest.raises(UserCodeRefused, match="--allow-user-models"):
        only_workflows.check_models_allowed()
    for call in (
        lambda: only_workflows.identity("a.py"),
        lambda: only_workflows.keep("a.py", DIGEST),
    ):
        with pytest.raises(ModelFileProblem, match="--allow-user-models"):
            call()
    files.check_models_allowed()


def test_a_copy_outlives_a_change_but_not_the_file(files: UserFiles, tmp_path: Path) -> None:
    files.keep("a.py", DIGEST)
    copy = copy_of(files, tmp_path, "a.py", DIGEST)
    assert copy.read_bytes() == TEXT
    assert (tmp_path / "copies").stat().st_mode & 0o777 == 0o700
    (tmp_path / "flows" / "a.py").write_bytes(b"x = 2\n")
    files.keep("a.py", DIGEST)
    (tmp_path / "flows" / "a.py").unlink()
    with pytest.raises(ModelFileProblem, match=r"no file 'a\.py'"):
        files.keep("a.py", DIGEST)


@pytest.mark.parametrize("sha256", ["0" * 64, "", "../flows/a", "x" * 64])
def test_a_file_with_another_content_is_not_kept(
    files: UserFiles, tmp_path: Path, sha256: str
) -> None:
    with pytest.raises(ModelFileProblem, match="another file here"):
        files.keep("a.py", sha256)
    assert not (tmp_path / "copies").exists()


def test_the_copies_are_bounded_and_the_latest_used_stay(
    files: UserFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_files, "MAX_COPIES", 2)
    digests = []
    for number in range(3):
        text = f"x = {number}".encode()
        (tmp_path / "flows" / "a.py").write_bytes(text)
        digests.append(hashlib.sha256(text).hexdigest())
        files.keep("a.py", digests[-1])
        os.utime(copy_of(files, tmp_path, "a.py", digests[-1]), ns=(number, number))
        files.keep("a.py", digests[0])  # used again
    kept = set((tmp_path / "copies").iterdir())
    assert kept == {copy_of(files, tmp_path, "a.py", digests[number]) for number in (0, 2)}


def test_a_copy_of_a_deleted_file_is_not_found_by_another_files_name(
    files: UserFiles, tmp_path: Path
) -> None:
    files.keep("a.py", DIGEST)
    (tmp_path / "flows" / "a.py").unlink()
    (tmp_path / "flows" / "b.py").write_bytes(b"x = 2\n")
    with pytest.raises(ModelFileProblem, match="another file here"):
        files.keep("b.py", DIGEST)


def test_a_copy_outlives_a_link_that_is_turned_to_another_text(
    files: UserFiles, tmp_path: Path
) -> None:
    link = tmp_path / "flows" / "link.py"
    link.symlink_to("a.py")
    files.keep("link.py", DIGEST)
    (tmp_path / "flows" / "c.py").write_bytes(b"x = 2\n")
    link.unlink()
    link.symlink_to("c.py")
    files.keep("link.py", DIGEST)
    assert copy_of(files, tmp_path, "link.py", DIGEST).read_bytes() == TEXT


def test_a_torn_copy_is_made_anew(files: UserFiles, tmp_path: Path) -> None:
    files.keep("a.py", DIGEST)
    copy = copy_of(files, tmp_path, "a.py", DIGEST)
    copy.write_bytes(b"")
    files.keep("a.py", DIGEST)
    assert copy.read_bytes() == TEXT


def test_a_copy_that_cannot_be_written_is_a_problem_of_the_file(
    files: UserFiles, tmp_path: Path
) -> None:
    (tmp_path / "copies").write_text("no folder")
    with pytest.raises(ModelFileProblem, match="no copy of it can be kept"):
        files.keep("a.py", DIGEST)


def test_threads_keep_files_at_once(
    files: UserFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_files, "MAX_COPIES", 2)
    texts = [f"x = {number}\n".encode() for number in range(8)]
    for number, text in enumerate(texts):
        (tmp_path / "flows" / f"{number}.py").write_bytes(text)
    keeps = [(f"{n}.py", hashlib.sha256(text).hexdigest()) for n, text in enumerate(texts)]
    with ThreadPoolExecutor(len(keeps)) as threads:
        for done in [threads.submit(files.keep, *keep) for keep in keeps * 20]:
            done.result()
    assert len(list((tmp_path / "copies").iterdir())) == 2
