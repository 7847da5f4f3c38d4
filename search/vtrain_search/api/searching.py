"""A search, and what it would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import InfeasibleError, UserInputError
from vtrain_search.api.question import Words, make_request
from vtrain_search.api.result import SearchResult

if TYPE_CHECKING:
    from vtrain_search.driver import Found
    from vtrain_search.problem import Problem


def search(
    budget: str | Sequence[str] = (),
    *,
    cluster: str | Sequence[str] = (),
    price: Words = (),
    deadline: str = "",
    max_gpus: int | None = None,
    target_loss: float | Sequence[float] = (),
    objective: str = "",
    model: str | Path = "",
    fix: Mapping[str, Any] | None = None,
    limit: Mapping[str, tuple[float, float]] | None = None,
    seq_length: int | None = None,
    vocab_size: int | None = None,
    unique_tokens: float | str = "",
    tokens_per_parameter_min: float | None = None,
    stack: str | Path = "",
    site: str | Path = "",
    law: str | Path = "",
    memory_limit: str | float | None = None,
    sampler: str = "tpe",
    space: str = "bilevel",
    seed: int = 0,
    trials: int | None = None,
    timeout: str = "",
    workers: int | str = 1,
    ray_address: str | None = None,
    save_dir: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    quiet: bool = True,
) -> SearchResult:
    """Find the lowest-loss design a budget can train, as `vtrain-search` does.

    The same words mean the same as on the command line, and the same seed finds the same.

    Args:
        budget: `1e6usd`, `2M gpu-hours`, `512xH100x30d`, a range `1e4usd..1e7usd:13`; or several.
        cluster: names or files; several are compared.
        price: dollars a GPU-hour, one a cluster.
        deadline: wall time at most, such as `30d`.
        max_gpus: GPUs at most.
        target_loss: reach this loss instead, for least cost or time.
        objective: "cost" or "time", with a target loss.
        model: a fixed model by name or file: only how to train it is searched.
        fix: pinned dimensions, such as `{"tp": 8, "micro_batch_size": (1, 2)}`.
        limit: ranges, such as `{"hidden_size": (4096, 8192)}`.
        seq_length: tokens of a sequence.
        vocab_size: vocabulary before padding.
        unique_tokens: distinct training tokens there are.
        tokens_per_parameter_min: over-train: at least so many tokens a parameter.
        stack: training software.
        site: file of site factors.
        law: loss law, by name or file.
        memory_limit: largest share of what the context leaves that may be allocated, such as
            0.85 or "85%"; 0.90 when None.
        sampler: tpe, cmaes, nsga2, random.
        space: bilevel or joint.
        seed: seed of the search.
        trials: trials of one budget at most.
        timeout: stop after so long with what there is, such as `10min`.
        workers: processes; 1 searches in this one, "auto" and more use Ray.
        ray_address: join this Ray cluster; it is never stopped.
        save_dir: keep the run here: journal, trials.csv, best.toml, run.json.
        resume: go on with the run in `save_dir`; the question must be the same.
        force: replace the run in `save_dir`.
        quiet: no progress on stderr.

    Raises:
        UserInputError: for words that cannot be read, or a folder that holds another run.
        InfeasibleError: when no budget has a feasible design; names the nearest way out.
    """
    from contextlib import ExitStack, closing

    from vtrain.units import parse_duration_s
    from vtrain_search.build import build_problem
    from vtrain_search.driver import search as run
    from vtrain_search.report import answer_case
    from vtrain_search.report.progress import ProgressLine
    from vtrain_search.run_options import RunOptions
    from vtrain_search.run_record import open_folder
    from vtrain_search.samplers import quiet_optuna
    from vtrain_search.search_state import Settings
    from vtrain_search.workers import make_executor

    if (resume or force) and save_dir is None:
        raise UserInputError(f"{'resume' if resume else 'force'} needs save_dir")
    request = make_request(
        budget, cluster=cluster, price=price, deadline=deadline, max_gpus=max_gpus,
        target_loss=target_loss, objective=objective, model=model, fix=fix, limit=limit,
        seq_length=seq_length, vocab_size=vocab_size, unique_tokens=unique_tokens,
        tokens_per_parameter_min=tokens_per_parameter_min, stack=stack, site=site, law=law,
        memory_limit=memory_limit,
    )  # fmt: skip
    quiet_optuna()
    problem = build_problem(request)
    settings = Settings(sampler=sampler, seed=seed, space=space, max_trials=trials)
    where = None if save_dir is None else Path(save_dir)
    options = RunOptions(
        workers="auto" if ray_address and workers == 1 else str(workers), ray_address=ray_address,
        save_dir=where, resume=where if resume else None, force=force, quiet=quiet,
    )  # fmt: skip
    timeout_s = parse_duration_s(timeout) if timeout else None
    with ExitStack() as resources:
        folder = open_folder(request, settings, options, problem)
        if folder is not None:
            resources.callback(folder.close)
        executor = resources.enter_context(closing(make_executor(problem, options)))
        progress = resources.enter_context(ProgressLine(len(problem.cases), quiet=quiet))
        found = run(
            problem, settings, executor, recorder=folder, timeout_s=timeout_s, on_progress=progress
        )
        progress.stop()
        answers = [
            answer_case(problem, case, own, seed=seed)
            for case, own in zip(problem.cases, found.searches, strict=True)
        ]
        there = tuple(answer for answer in answers if answer is not None)
        if folder is not None:
            folder.write_results(
                [case.label for case in problem.cases], [s.trials for s in found.searches],
                [answer.row for answer in there],
            )  # fmt: skip
    if not there:
        raise _nothing(problem, found)
    return SearchResult(
        problem=problem, request=request, settings=settings, found=found, answers=there
    )


def dry_run(budget: str | Sequence[str] = (), *, workers: int = 1, **question: Any) -> str:
    """Return what a search would try and how long it takes, as `vtrain-search --dry-run` says.

    Args:
        budget: as `search`.
        workers: processes that would evaluate.
        question: any of the arguments of `search` from `cluster` to `memory_limit`.

    Raises:
        UserInputError: for words that cannot be read.
    """
    import inspect

    from vtrain_search.build import build_problem
    from vtrain_search.dry_run import dry_run as lines_of

    known = [name for name in inspect.signature(make_request).parameters if name != "budget"]
    for name in question:
        if name not in known:
            raise UserInputError(f"dry_run() takes no {name!r}", hint=f"one of {', '.join(known)}")
    return "\n".join(lines_of(build_problem(make_request(budget, **question)), workers=workers))


def _nothing(problem: Problem, found: Found) -> InfeasibleError:
    from vtrain_search.diagnosis import diagnose

    if found.stopped:
        return InfeasibleError(f"stopped ({found.stopped}) before any feasible design was found")
    return diagnose(problem, found)
