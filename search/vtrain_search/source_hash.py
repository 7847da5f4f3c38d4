"""A short hash of each part of the program that decides what a search finds."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_SUFFIXES = (".py", ".toml", ".csv", ".json")
_SHOWN = 12


@cache
def source_hashes() -> dict[str, str]:
    """Return a hash of the simulator's code, of its data, and of the search's code.

    Contents and names of all files count, their dates and the folder they lie in do not.
    """
    import vtrain
    import vtrain_search

    simulator, search = (Path(str(m.__file__)).parent for m in (vtrain, vtrain_search))
    data = simulator / "data"
    return {
        "simulator": _hash([p for p in _files(simulator) if data not in p.parents], simulator),
        "data": _hash(_files(data), simulator),
        "search": _hash(_files(search), search),
    }


def changed_parts(stored: object) -> list[str]:
    """Return what differs from the hashes an earlier run kept, in words; empty when nothing does.

    Args:
        stored: what its record says; anything but a table of hashes counts as unknown.
    """
    old = stored if isinstance(stored, dict) else {}
    return [
        f"{part} {old.get(part, 'unknown')} (now {now})"
        for part, now in source_hashes().items()
        if old.get(part) != now
    ]


def _files(folder: Path) -> list[Path]:
    found = (p for p in folder.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
    return sorted(found, key=lambda p: p.as_posix())


def _hash(files: list[Path], root: Path) -> str:
    whole = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        whole.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        whole.update(content)
    return whole.hexdigest()[:_SHOWN]
