"""The machine that is measured, as torch sees it: device, precision, clocks, memory."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrain.errors import UserInputError

Torch = Any

DEVICE_KINDS = ("cuda", "cpu")
PLANNED_ELEMENT_BYTES = 2.0
"""Bytes of an element in every formula of vtrain: training computes in half precision."""

_MALLOC_TRIM_THRESHOLD, _MALLOC_MMAP_MAX = -1, -4  # mallopt(3)
_NEVER = 2**31 - 1


def require_torch() -> Torch:
    """Import torch.

    Raises:
        UserInputError: when it is not installed.
    """
    # torch's profiler, which counts a CPU's memory, announces each start on stderr otherwise.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        import torch
    except ImportError:
        raise UserInputError(
            "measuring needs torch, which is not installed", hint="pip install 'vtrain[profile]'"
        ) from None
    return torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a profile records of the machine.

    Attributes:
        kind: "cuda" or "cpu".
        name: what the device calls itself.
        dtype: torch name of the dtype measured, "bfloat16" on GPUs, "float32" on CPUs.
        element_bytes: bytes of an element of it.
        memory_bytes: memory of the device.
        cache_bytes: last-level cache.
        units: streaming multiprocessors, or threads on a CPU.
        torch: torch version.
        runtime: CUDA version, or the CPU's vector instructions as torch names them.
        driver: driver version, empty on a CPU.
    """

    kind: str
    name: str
    dtype: str
    element_bytes: float
    memory_bytes: float
    cache_bytes: float
    units: int
    torch: str
    runtime: str
    driver: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A device made ready for measuring.

    Attributes:
        torch: the module.
        device: torch device.
        dtype: torch dtype of weights and activations.
        facts: what the profile records.
        threads: threads of one CPU operator.
    """

    torch: Torch
    device: Any
    dtype: Any
    facts: Facts
    threads: int

    @property
    def cuda(self) -> bool:
        """Whether kernels run asynchronously on a GPU."""
        return self.facts.kind == "cuda"

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    def free_bytes(self) -> float:
        """Return memory that can still be allocated."""
        if self.cuda:
            free, _ = self.torch.cuda.mem_get_info(self.device)
            return float(free)
        return _cpu_available_bytes()


def open_runtime(kind: str, *, threads: int = 1, index: int = 0) -> Runtime:
    """Make a device ready.

    On a CPU one operator runs on `threads` threads; with one thread its CPU time is measured, so
    that other programs on the machine do not count. The heap is told to keep what it has, as
    torch's GPU allocator does; without that, large tensors pay page faults every time.

    Args:
        kind: one of DEVICE_KINDS.
        threads: threads of one CPU operator.
        index: which GPU.

    Raises:
        UserInputError: no torch, or no such device.
    """
    torch = require_torch()
    if kind not in DEVICE_KINDS:
        raise UserInputError(f"unknown device {kind!r}", hint=f"one of {', '.join(DEVICE_KINDS)}")
    torch.manual_seed(0)
    if kind == "cpu":
        torch.set_num_threads(threads)
        _keep_heap()
        device = torch.device("cpu")
        return Runtime(
            torch=torch, device=device, dtype=torch.float32, facts=_cpu_facts(torch, threads),
            threads=threads,
        )  # fmt: skip
    if not torch.cuda.is_available():
        raise UserInputError(
            "this machine has no CUDA device that torch can use", hint="--device cpu"
        )
    if index >= torch.cuda.device_count():
        raise UserInputError(
            f"CUDA device {index} does not exist",
            hint=f"this machine has {torch.cuda.device_count()}",
        )
    torch.cuda.set_device(index)
    return Runtime(
        torch=torch, device=torch.device("cuda", index), dtype=torch.bfloat16,
        facts=_cuda_facts(torch, index), threads=threads,
    )  # fmt: skip


def clock_mhz(runtime: Runtime) -> float:
    """Return the clock the device runs at now, 0 where it does not tell."""
    if runtime.cuda:
        index = str(runtime.device.index)
        return _leading_number(_nvidia_smi("clocks.sm", index))
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    speeds = [line.split(":")[1] for line in text.splitlines() if line.startswith("cpu MHz")]
    return max((float(speed) for speed in speeds), default=0.0)


def is_out_of_memory(runtime: Runtime, error: BaseException) -> bool:
    """Return whether an error of torch says that memory ran out."""
    kind = getattr(runtime.torch, "OutOfMemoryError", None)
    if kind is not None and isinstance(error, kind):
        return True
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(word in text for word in ("out of memory", "can't allocate memory"))
    )


def _cpu_facts(torch: Torch, threads: int) -> Facts:
    return Facts(
        kind="cpu", name=_cpu_name(), dtype="float32", element_bytes=4.0,
        memory_bytes=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        cache_bytes=_cpu_cache_bytes(), units=threads, torch=str(torch.__version__),
        runtime=str(torch.backends.cpu.get_cpu_capability()), driver="",
    )  # fmt: skip


def _cuda_facts(torch: Torch, index: int) -> Facts:
    properties = torch.cuda.get_device_properties(index)
    return Facts(
        kind="cuda", name=str(properties.name), dtype="bfloat16", element_bytes=2.0,
        memory_bytes=float(properties.total_memory),
        cache_bytes=float(getattr(properties, "L2_cache_size", 50 * 2**20)),
        units=int(properties.multi_processor_count), torch=str(torch.__version__),
        runtime=str(torch.version.cuda), driver=_nvidia_smi("driver_version", str(index)),
    )  # fmt: skip


def _nvidia_smi(field: str, index: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", "-i", index]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _leading_number(text: str) -> float:
    word = text.split()[0] if text.split() else ""
    try:
        return float(word)
    except ValueError:
        return 0.0


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "CPU"


def _cpu_cache_bytes() -> float:
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        word = path.read_text(encoding="utf-8").strip()
        unit = {"K": 2**10, "M": 2**20}.get(word[-1:], 1)
        sizes.append(float(word.rstrip("KM")) * unit)
    return max(sizes, default=32.0 * 2**20)


def _cpu_available_bytes() -> float:
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return 4.0 * 2**30
    for line in text.splitlines():
        if line.startswith("MemAvailable"):
            return float(line.split()[1]) * 1024.0
    return 4.0 * 2**30


def _keep_heap() -> None:
    """Tell glibc never to return memory to the system; other C libraries are left alone."""
    if not hasattr(os, "confstr") or "glibc" not in (platform.libc_ver()[0] or ""):
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_MALLOC_MMAP_MAX, 0)
    mallopt(_MALLOC_TRIM_THRESHOLD, _NEVER)
