"""Collectives: latency + bandwidth + square root of size, inside and across NVLink domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtrain.errors import UserInputError
from vtrain.hardware import COLLECTIVES, CollectiveTerms, group_span

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vtrain.hardware import Cluster

    Array = NDArray[np.float64]


def collective_seconds(
    cluster: Cluster,
    op: str,
    bytes: ArrayLike,
    group_size: ArrayLike,
    stride: ArrayLike,
    *,
    bucket_bytes: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Seconds of one collective in every group at once, as frameworks lay ranks out.

    Inside a domain T = a0 + a1 (n - 1) + w/B + c sqrt(w); across N domains
    T = L log2(N) + w/B + (s0 + s1 log2(N)) sqrt(w/B) with B that of a ring whose domains have
    as many NICs as the group has ranks there; the others serve its siblings (constants:
    `CollectiveTerms`, `NetworkFit`).

    Args:
        cluster: links and fitted constants.
        op: all_reduce, all_gather, reduce_scatter or all_to_all.
        bytes: message size as nccl-tests counts it, any shape: the buffer of one rank for
            all_reduce, the larger (whole) buffer for the others.
        group_size: ranks, broadcast against `bytes`; one rank costs nothing.
        stride: distance between neighbouring ranks (`group_span`).
        bucket_bytes: when given, the message goes as full buckets of this size and one rest,
            and the answer is the sum; 0 sends one message.

    Returns:
        Seconds, float64 of the broadcast shape.

    Raises:
        UserInputError: unknown `op`.
    """
    if op not in COLLECTIVES or op == "send_recv":
        valid = ", ".join(COLLECTIVES[:-1])
        raise UserInputError(f"unknown collective {op!r}", hint=f"valid: {valid}")
    size = np.asarray(group_size, dtype=np.float64)
    message = np.asarray(bytes, dtype=np.float64)
    ranks, domains = group_span(cluster, size, stride)
    local = domains <= 1.0
    everywhere_local = bool(local.all())
    if everywhere_local:
        fixed, per_byte, per_root = _intra(cluster.intra.terms[op], op, size)
    else:
        fixed, per_byte, per_root = _inter(cluster, op, size, ranks, domains)
        if local.any():
            inner = _intra(cluster.intra.terms[op], op, size)
            fixed = np.where(local, inner[0], fixed)
            per_byte = np.where(local, inner[1], per_byte)
            per_root = np.where(local, inner[2], per_root)
    if bucket_bytes is None or (np.isscalar(bucket_bytes) and bucket_bytes == 0.0):
        seconds = fixed + per_byte * message + per_root * np.sqrt(message)
    else:
        bucket = np.asarray(bucket_bytes, dtype=np.float64)
        full = np.floor(message / bucket)
        rest = message - full * bucket
        roots = full * np.sqrt(bucket) + np.sqrt(rest)
        seconds = fixed * (full + (rest > 0)) + per_byte * message + per_root * roots
    return np.where((size > 1.0) & (message > 0.0), seconds, 0.0)


def send_recv_seconds(
    cluster: Cluster,
    bytes: ArrayLike,
    stride: ArrayLike,
    *,
    group_size: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Seconds to send a message to the neighbour at `stride`, all ranks of a stage at once.

    Through NVLink when the neighbour sits in the same domain, else through the GPU's share of
    the NICs.

    Args:
        cluster: links and fitted constants.
        bytes: message size, any shape.
        stride: distance to the peer, broadcast against `bytes`.
        group_size: ranks of the pipeline. When given, the answer is the mean over its
            boundaries, some of which may leave the domain; else every boundary counts as
            inside when the stride is smaller than the domain.

    Returns:
        Seconds, float64 of the broadcast shape.
    """
    message = np.asarray(bytes, dtype=np.float64)
    stride_f = np.asarray(stride, dtype=np.float64)
    if group_size is None:
        outside = (stride_f >= cluster.nvlink_domain).astype(np.float64)
    else:
        size = np.asarray(group_size, dtype=np.float64)
        _, domains = group_span(cluster, size, stride_f)
        outside = (domains - 1.0) / np.maximum(size - 1.0, 1.0)
    near = cluster.intra.terms["send_recv"]
    net = cluster.inter
    inner = near.a0_s + near.a1_s + message / near.bandwidth_bytes_per_s
    inner = inner + near.sqrt_s_per_sqrt_byte * np.sqrt(message)
    outer = net.send_floor_s + message / (cluster.nic_bytes_per_s * net.send_efficiency)
    return inner + (outer - inner) * outside


def _intra(terms: CollectiveTerms, op: str, size: Array) -> tuple[Array, Array, Array]:
    """Seconds, seconds per byte and per square-root byte inside one domain."""
    bus = _bus_factor(op, size)
    bandwidth: float | Array = terms.bandwidth_bytes_per_s
    if terms.bandwidth_by_ranks:
        table = np.asarray(terms.bandwidth_by_ranks, dtype=np.float64)
        bandwidth = table[np.clip(size - 2.0, 0, table.size - 1).astype(np.intp)]
    fixed = terms.a0_s + terms.a1_s * (size - 1.0)
    return fixed, bus / bandwidth, terms.sqrt_s_per_sqrt_byte * np.sqrt(bus)


def _inter(
    cluster: Cluster, op: str, size: Array, ranks: Array, domains: Array
) -> tuple[Array, Array, Array]:
    """The same across domains."""
    net = cluster.inter
    hops = np.log2(np.maximum(domains, 2.0))
    if op == "all_to_all":
        # Every rank sends the share of the other domains through its own NIC; no hierarchy.
        nic = cluster.nic_bytes_per_s * net.all_to_all_efficiency
        per_byte = (size - ranks) / (size * nic)
    else:
        nic = cluster.nic_bytes_per_s * net.nic_efficiency
        wire = nic * ranks
        per_byte = _bus_factor(op, size) / np.minimum(wire, net.nvlink_bytes_per_s)
    share = 1.0 if op == "all_reduce" else 0.5
    per_root = (net.sqrt_s + net.sqrt_hop_s * hops) * np.sqrt(per_byte)
    return share * net.hop_s * hops, per_byte, per_root


def _bus_factor(op: str, size: Array) -> Array:
    """Bus traffic over message size (nccl-tests, PERFORMANCE.md)."""
    factor = (size - 1.0) / np.maximum(size, 1.0)
    return 2.0 * factor if op == "all_reduce" else factor
