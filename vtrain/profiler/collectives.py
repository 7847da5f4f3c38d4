"""Collectives between the ranks of torchrun, by operation, size and group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from vtrain.errors import UserInputError
from vtrain.hardware import COLLECTIVES
from vtrain.profiler.fit.links import bus_bytes
from vtrain.profiler.group import Group, open_group
from vtrain.profiler.meta import read_meta, write_meta
from vtrain.profiler.rows import Row, key_of, path_of, read_rows, write_rows
from vtrain.profiler.shapes import SPACES, message_sizes
from vtrain.profiler.sharing import measure_sharing
from vtrain.profiler.timing import Stopwatch

if TYPE_CHECKING:
    from vtrain.profiler.run import Progress, RunOptions

REPEATS = 15
QUARTER = 25.0
"""Percentile reported: a collective waits for its slowest rank, so whatever else runs on the
machine only adds to it."""

BATCH_S = 0.01
MOST_CALLS = 50


def measure_collectives(options: RunOptions, progress: Progress) -> Iterator[str]:
    """Measure collectives on every rank; the first one adds them to the profile and fits.

    Args:
        options: of `vtrain profile run`; the folder must hold the device's own profile.
        progress: called on the first rank after each row.

    Raises:
        UserInputError: no profile, or ranks with different devices.
    """
    meta = read_meta(options.out)
    with open_group(options.kind, options.threads) as group:
        if group.runtime.facts.name != meta.gpu:
            raise UserInputError(
                f"{options.out} holds a profile of {meta.gpu}, this is {group.runtime.facts.name}"
            )
        rows, failed = _measure_all(group, options, progress)
        sharing = measure_sharing(group, Stopwatch(group.runtime, meta.anchor_s))
        if group.rank != 0:
            return
        earlier = read_rows(path_of(options.out, "collectives"), "collectives")
        fresh = {key_of("collectives", row) for row in rows}
        kept = [row for row in earlier if key_of("collectives", row) not in fresh]
        write_rows(options.out, "collectives", [*kept, *rows])
        world = max(meta.world, group.size)
        today = datetime.now(UTC).date().isoformat()
        meta = replace(
            meta, world=world, date=today, shared_matrix=sharing.matrix,
            shared_memory=sharing.memory,
        )  # fmt: skip
        write_meta(options.out, meta)
        yield (
            f"{options.out}: {len(rows)} collectives of {group.size} ranks on {group.nodes} "
            f"node(s) over {group.backend}"
        )
        if meta.shared_matrix > 1.0 or meta.shared_memory > 1.0:
            yield (
                f"ranks share this machine: products x {meta.shared_matrix:.2f}, memory-bound "
                f"kernels x {meta.shared_memory:.2f} with all of them busy (site.toml)"
            )
        yield from (f"skipped {entry}" for entry in failed)
    from vtrain.profiler.run import fit_lines_of

    yield from fit_lines_of(options.out)


def _measure_all(
    group: Group, options: RunOptions, progress: Progress
) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    failed: list[str] = []
    sizes = message_sizes(SPACES[options.kind])
    members = _group_sizes(group.size)
    total = len(sizes) * len(members) * len(COLLECTIVES)
    # Groups are made by every rank, whether it belongs to them or not.
    groups = {count: group.dist.new_group(list(range(count))) for count in members}
    done = 0
    for count in members:
        for op in COLLECTIVES:
            for size in sizes:
                done += 1
                seconds = _time_one(group, groups[count], count, op, size)
                if seconds is None:
                    failed.append(f"{op} of {size} bytes on {count} ranks")
                elif group.rank == 0:
                    rows.append(_row(group, count, op, size, seconds))
                if group.rank == 0:
                    progress(done, total, f"{op} {size} on {count}")
    return rows, failed


def _group_sizes(ranks: int) -> list[int]:
    sizes = [2**power for power in range(1, ranks.bit_length()) if 2**power <= ranks]
    return sizes if ranks in sizes else [*sizes, ranks]


def _time_one(group: Group, members: Any, count: int, op: str, size: int) -> float | None:
    """Return seconds of the slowest rank, the lower quartile of repeats; None: it cannot run."""
    call: Callable[[], Any] | None = None
    if group.rank < count:
        try:
            call = _call(group, members, count, op, size)
            call()
        except RuntimeError:
            # gloo lacks some operations; every rank of the group fails alike.
            call = None
    can = group.slowest(float(call is None and group.rank < count))
    if can > 0.0:
        return None
    first = _batch(group, call, 2)
    repeats = int(np.clip(BATCH_S / max(first, 1e-6), 1, MOST_CALLS))
    times = [_batch(group, call, repeats) for _ in range(REPEATS)]
    return float(np.percentile(times, QUARTER))


def _batch(group: Group, call: Callable[[], Any] | None, count: int) -> float:
    import time

    group.barrier()
    start = time.perf_counter()
    if call is not None:
        for _ in range(count):
            call()
        group.runtime.synchronize()
    spent = (time.perf_counter() - start) / count if call is not None else 0.0
    return group.slowest(spent)


def _call(group: Group, members: Any, count: int, op: str, size: int) -> Callable[[], Any]:
    """Return one collective as a call; sizes as nccl-tests counts them."""
    torch, dist = group.runtime.torch, group.dist
    elements = max(count, int(size / group.runtime.facts.element_bytes) // count * count)
    kind = {"device": group.runtime.device, "dtype": group.runtime.dtype}
    whole, part = torch.ones(elements, **kind), torch.ones(elements // count, **kind)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole, group=members)
    if op == "all_gather":
        gather = _newest(dist, "all_gather_single", "all_gather_into_tensor")
        return lambda: gather(whole, part, group=members)
    if op == "reduce_scatter":
        scatter = _newest(dist, "reduce_scatter_single", "reduce_scatter_tensor")
        return lambda: scatter(part, whole, group=members)
    if op == "all_to_all":
        other = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(other, whole, group=members)
    pair = {0: lambda: dist.send(whole, 1), 1: lambda: dist.recv(whole, 0)}
    return pair.get(group.rank, lambda: None)


def _newest(dist: Any, *names: str) -> Any:
    """Return the first of some names that this torch has: two were renamed in 2.13."""
    return next(getattr(dist, name) for name in names if hasattr(dist, name))


def _row(group: Group, count: int, op: str, size: int, seconds: float) -> Row:
    nodes = max(1, round(group.nodes * count / group.size))
    algorithm = size / seconds / 1e9
    bus = bus_bytes(op, size, count) / seconds / 1e9
    return {
        "gpu": group.runtime.facts.name, "system": f"{group.backend} {group.nodes} node(s)",
        "nodes": str(nodes), "gpus": str(count), "op": op, "bytes": str(size),
        "time_us": f"{seconds * 1e6:.5g}", "algbw_gbs": f"{algorithm:.4g}",
        "busbw_gbs": f"{bus:.4g}", "source": f"vtrain profile, torch {group.runtime.facts.torch}",
        "repeats": str(REPEATS),
    }  # fmt: skip
