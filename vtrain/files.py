"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from vtrain.errors import UserInputError


def write_text(path: str | Path, text: str) -> None:
    """Write text to a file by way of a temporary one in the same folder and a rename.

    A link is followed. What is no regular file (a device, a pipe) is written to, never replaced.

    Raises:
        UserInputError: when the folder does not exist or cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        _write_through(target, text)
        return
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise UserInputError(f"cannot write {target}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; a result should be as readable as the user's others.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise UserInputError(f"cannot write {target}: {error.strerror}") from None


def _write_through(target: Path, text: str) -> None:
    try:
        with target.open("w", encoding="utf-8", newline="") as stream:
            stream.write(text)
    except OSError as error:
        raise UserInputError(f"cannot write {target}: {error.strerror}") from None
