"""Constants of devices that no table covers, taken from a relative by a stated rule.

Each rule names its donor and its reason, and both end up in the device's `[sources]`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Table = dict[str, Any]

STATIC_SHARE = 0.25
"""Share of the donor's board power that does not follow the clock (leakage, memory, links)."""

CLOCK_HZ = {"Volta": 1.53e9, "Ampere": 1.41e9, "Hopper": 1.83e9, "Blackwell": 1.965e9}
"""SM clock behind the datasheet's tensor peaks (NVIDIA architecture whitepapers)."""

A100_PCIE_LEVEL = 1.0 / 1.15
"""Rate of the 300 W board over the model of the 400 W one: median of 61 forward products of the
SimuMax A100 PCIe table against form (b) with the constants of the SXM board."""

V100_LARGE_GEMM_SHARE = 0.74
"""Share of the tensor peak of cuBLAS on large half-precision matrices, Tesla V100: 83 TFLOPS
(Markidis et al. 2018, arXiv 1803.04014, "NVIDIA Tensor Core Programmability")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Borrow:
    """Copy one table (or value) of a donor, adapted."""

    path: str
    donor: str
    why: str
    donor_path: str = ""
    rule: str = "copy"
    """copy, power (sustained factor by board power), clock (attention by SM count and clock),
    pcie or v100 (level of published products)."""


def _relatives(*paths: str, donor: str, why: str, rule: str = "copy") -> tuple[Borrow, ...]:
    return tuple(Borrow(path=path, donor=donor, why=why, rule=rule) for path in paths)


_HALF = Borrow(
    path="gemm.fp16", donor="", donor_path="gemm.bf16", why="same tensor-core path as bf16"
)
_OLD_KERNELS = (
    "kernels written for Ampere instructions: FLOP/s of the donor scaled by SM count and clock"
)
_SHARES = "no table of this device: memory-bound kernels reach like shares of HBM bandwidth"
_MEMORY_GAPS = ("memory_bound.activation_eager", "memory_bound.optimizer")

BORROWED: Mapping[str, tuple[Borrow, ...]] = {
    "a100-sxm-80g": (
        _HALF,
        Borrow(
            path="attention.flash3",
            donor="",
            donor_path="attention.flash2",
            why="FlashAttention-3 does not run on Ampere",
        ),
        *_relatives(*_MEMORY_GAPS, donor="h100-sxm-80g", why=_SHARES),
    ),
    "h100-sxm-80g": (
        _HALF,
        Borrow(path="attention.flash1", donor="a100-sxm-80g", why=_OLD_KERNELS, rule="clock"),
        *_relatives("memory_bound.embedding", donor="a100-sxm-80g", why=_SHARES),
    ),
    "h200-sxm-141g": (
        _HALF,
        *_relatives(
            "gemm.fp8",
            "attention.flash2",
            "attention.flash1",
            donor="h100-sxm-80g",
            why="same chip with more memory",
        ),
        *_relatives("memory_bound", donor="h100-sxm-80g", why=_SHARES),
    ),
    "h100-sxm-96g-500w": (
        *_relatives("gemm", donor="h100-sxm-80g", rule="power", why="same chip on a 500 W board"),
        *_relatives("attention", donor="h100-sxm-80g", why="same chip on a 500 W board"),
        *_relatives("memory_bound", donor="h100-sxm-80g", why=_SHARES),
    ),
    "b200-sxm-180g": (
        _HALF,
        *_relatives(
            "attention.flash2",
            "attention.flash1",
            donor="h100-sxm-80g",
            rule="clock",
            why=_OLD_KERNELS,
        ),
        *_relatives("memory_bound", donor="h100-sxm-80g", why=_SHARES),
    ),
    "gb200": (
        _HALF,
        *_relatives(
            "gemm.fp8",
            "gemm.fp4",
            "attention",
            donor="b200-sxm-180g",
            why="same chip, board power 1,200 W instead of 1,000 W not credited",
        ),
        *_relatives("memory_bound", donor="h100-sxm-80g", why=_SHARES),
    ),
    "b300-sxm-288g": (
        *_relatives(
            "gemm",
            donor="b200-sxm-180g",
            rule="power",
            why="no table of this chip, nearest relative",
        ),
        *_relatives(
            "attention", donor="b200-sxm-180g", why="no table of this chip, nearest relative"
        ),
        *_relatives("memory_bound", donor="h100-sxm-80g", why=_SHARES),
    ),
    "gb300": (
        *_relatives(
            "gemm", donor="gb200", rule="power", why="no table of this chip, nearest relative"
        ),
        *_relatives(
            "attention", donor="b200-sxm-180g", why="no table of this chip, nearest relative"
        ),
        *_relatives("memory_bound", donor="h100-sxm-80g", why=_SHARES),
    ),
    "a100-sxm-40g": _relatives(
        "gemm",
        "attention",
        "memory_bound",
        donor="a100-sxm-80g",
        why="same chip with slower memory",
    ),
    "a100-pcie-80g": (
        *_relatives(
            "gemm",
            donor="a100-sxm-80g",
            rule="pcie",
            why="same chip on a 300 W board: 61 products of the SimuMax A100 PCIe table take 1.15 "
            "of the time (median)",
        ),
        *_relatives("attention", "memory_bound", donor="a100-sxm-80g", why="same chip"),
    ),
    "v100-sxm-32g": (
        Borrow(
            path="gemm.fp16",
            donor="a100-sxm-80g",
            donor_path="gemm.bf16",
            rule="v100",
            why="no table of this chip: shape as on A100, level of large products from "
            "Markidis et al. 2018 (arXiv 1803.04014), 83 TFLOPS = 0.74 of the peak",
        ),
        *(
            Borrow(
                path=f"attention.{name}",
                donor="a100-sxm-80g",
                donor_path="attention.flash1",
                why="no fused kernel of this chip was measured: first generation on A100, as a "
                "share of the peak",
            )
            for name in ("flash1", "flash2", "flash3")
        ),
        *_relatives("memory_bound", donor="a100-sxm-80g", why=_SHARES),
    ),
    "v100-sxm-16g": _relatives(
        "gemm", "attention", "memory_bound", donor="v100-sxm-32g", why="same chip with less memory"
    ),
}
"""Rules by device; an empty donor is the device itself. A device's donors stand above it."""

LINKS_BORROWED: Mapping[str, tuple[Borrow, ...]] = {
    "a100-sxm-40g": _relatives("intra", donor="a100-sxm-80g", why="same board"),
    "h100-sxm-96g-500w": _relatives("intra", donor="h100-sxm-80g", why="same links"),
    "v100-sxm-16g": _relatives("intra", donor="v100-sxm-32g", why="same board"),
}
"""The same for the links of a cluster."""


def apply_borrowed(
    table: Table, rules: tuple[Borrow, ...], finished: Mapping[str, Table], stamp: Table
) -> None:
    """Fill a device's (or cluster's) table in place.

    Args:
        table: parsed TOML with its own fits already in.
        rules: what to take from whom.
        finished: tables of the donors by name.
        stamp: date and command for the sources.
    """
    for rule in rules:
        donor = finished[rule.donor] if rule.donor else table
        donor_path = rule.donor_path or rule.path
        value = copy.deepcopy(_get(donor, donor_path))
        text = f"{rule.donor or 'this device'} {donor_path}: {rule.why}"
        if rule.rule == "power":
            factor = power_factor(float(table["tdp_w"]), float(donor["tdp_w"]))
            text += f"; sustained x {factor:.3f}, the square root of the dynamic power ratio"
            for constants in value.values():
                constants["sustained"] = min(constants["sustained"] * factor, 1.0)
        elif rule.rule == "pcie":
            for constants in value.values():
                constants["sustained"] = constants["sustained"] * A100_PCIE_LEVEL
        elif rule.rule == "clock":
            factor = clock_factor(table, donor)
            for key in ("forward_efficiency", "backward_efficiency"):
                value[key] *= factor
        elif rule.rule == "v100":
            value["sustained"] = min(1.0, V100_LARGE_GEMM_SHARE / _large_share(value))
        _set(table, rule.path, value)
        # Finer sources under a borrowed table would name the wrong origin.
        for key in [k for k in table["sources"] if k.startswith(rule.path + ".")]:
            del table["sources"][key]
        table["sources"][rule.path] = {"source": text, **stamp}


def power_factor(watts: float, donor_watts: float) -> float:
    """Sustained clock of a board over that of its donor.

    Dynamic power goes with f V², and near the top of the curve V rises with about the square root
    of f: f follows the square root of the power that is left after the static share.
    """
    static = STATIC_SHARE * donor_watts
    return math.sqrt((watts - static) / (donor_watts - static))


def clock_factor(table: Table, donor: Table) -> float:
    """Share of the peak that the same instructions reach on another chip, over the donor's."""

    def rate(chip: Table) -> float:
        arch = str(chip["arch"]).split()[0]
        return float(chip["sm_count"]) * CLOCK_HZ[arch] / float(chip["peak_flops"]["bf16"])

    return rate(table) / rate(donor)


def _large_share(constants: Table) -> float:
    """Share of the peak of an 8192³ product under form (b)."""
    share = float(constants["efficiency"])
    for name in ("half_m", "half_n", "half_k"):
        share *= 8192.0 / (8192.0 + float(constants[name]))
    return share


def _get(table: Table, path: str) -> Any:
    value: Any = table
    for key in path.split("."):
        value = value[key]
    return value


def _set(table: Table, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        table = table.setdefault(key, {})
    table[last] = value
