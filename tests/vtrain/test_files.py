"""Files are written whole, and nothing but files is ever replaced."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from vtrain.errors import UserInputError
from vtrain.files import write_text


def test_a_link_is_followed(tmp_path: Path) -> None:
    """The target of a link gets the text; the link stays a link."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """A named pipe passes the text on and is not replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text")
    reader.join(10.0)
    assert read == ["text"]
    assert pipe.is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """A folder in the place of the file is one line, and no temporary file is left."""
    with pytest.raises(UserInputError, match="cannot write"):
        write_text(tmp_path, "text")
    with pytest.raises(UserInputError, match="cannot write"):
        write_text(tmp_path / "none" / "file", "text")
    assert not list(tmp_path.iterdir())
