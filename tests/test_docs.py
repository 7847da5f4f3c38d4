"""The pages of docs/ say what is: their Python runs, their commands parse."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
_FENCE = re.compile(r"^```(\w*(?: torch)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NEEDS_TORCH = "python torch"
_SHELL = ("", "bash", "sh", "console")


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the fenced blocks of a page in some languages, in order."""
    text = page.read_text(encoding="utf-8")
    return [body for language, body in _FENCE.findall(text) if language in languages]


def commands(page: Path) -> list[list[str]]:
    """Return the words of every vtrain command of a page."""
    found = []
    for body in blocks(page, *_SHELL):
        for line in body.replace("\\\n", " ").splitlines():
            words = line.strip().removeprefix("$ ")
            if re.match(r"vtrain(-search)? ", words):
                found.append(shlex.split(words.split(" > ")[0].split(" | ")[0], comments=True))
    return found


def write_files(folder: Path) -> None:
    """Write what pages speak of: run_gpt3.sh, config.json, train.csv and the folder tables."""
    import vtrain.api as vt

    run = vt.simulate("gpt3-175b", "A100", gpus=1024, tp=8, pp=16, global_batch_size=1536)
    (folder / "run_gpt3.sh").write_text(vt.export(run.design(), "megatron"))
    small = vt.simulate("llama3-8b", gpus=8, tp=2, global_batch_size=512)
    (folder / "config.json").write_text(vt.export(small.design(), "hf"))
    steps = "".join(f"{number},{7.0 + 0.01 * (number % 3)}\n" for number in range(1, 40))
    (folder / "train.csv").write_text(f"number,step_time_s\n{steps}")
    (folder / "tables").mkdir()
    (folder / "tables" / "gemm.csv").write_text(products())


def products() -> str:
    """Return a table of matrix products of an H100: dense peak at 70 %, 5 us to start."""
    lines = ["gpu,dtype,m,n,k,time_us,tflops,source,layout,batch,note"]
    for m in (512, 1024, 2048, 4096, 8192):
        for n, k in ((1024, 4096), (4096, 1024), (4096, 4096), (8192, 4096), (4096, 14336)):
            seconds = 5e-6 + 2.0 * m * n * k / (0.7 * 989.4e12)
            lines.append(f"H100-SXM,bf16,{m},{n},{k},{seconds * 1e6:.4g},,made up,TN,1,")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.stem
)  # fmt: skip
def test_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block of a page runs, in order, in one folder with the files pages speak of."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for body in blocks(page, "python"):
        exec(compile(body, str(page), "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, _NEEDS_TORCH)], ids=lambda p: p.stem
)  # fmt: skip
def test_python_that_measures_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page that measure this machine run where torch is installed."""
    pytest.importorskip("torch", reason="measuring needs torch, which is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for body in blocks(page, _NEEDS_TORCH):
        exec(compile(body, str(page), "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_commands_of_a_page_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command shown exists and takes the options it is shown with; none is run."""
    from vtrain_search.budget import join_units
    from vtrain_search.cli import cli as optimizer

    from vtrain.cli import cli as simulator

    monkeypatch.setattr(sys, "argv", ["vtrain"])
    for words in commands(page):
        group = optimizer if words[0] == "vtrain-search" else simulator
        parse(group, words[0], join_units(words[1:]))


def parse(command: click.Command, name: str, words: list[str]) -> None:
    """Parse a command line down to its last sub-command without running anything."""
    context = command.make_context(name, list(words))
    if isinstance(command, click.Group):
        # What a group leaves begins with the name of its sub-command.
        left = [*context._protected_args, *context.args]
        if left:
            sub_name, sub, rest = command.resolve_command(context, left)
            assert sub is not None, f"{name} has no {left[0]}"
            parse(sub, f"{name} {sub_name}", rest)
