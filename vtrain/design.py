"""Design: one candidate answer, and the one flat schema behind JSON, CSV, TOML and trials."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from vtrain.architecture import Architecture
from vtrain.errors import UserInputError
from vtrain.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names that a row gives to fields of Architecture; a row says `layers`, a class `num_layers`.
_ARCHITECTURE_KEYS = {f.name: f.name for f in fields(Architecture)} | {"num_layers": "layers"}
_PLAN_KEYS = tuple(f.name for f in fields(Plan))


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """One architecture with its tokens, batch, GPUs and plan on one cluster.

    Attributes:
        architecture: the model.
        plan: how it is spread over GPUs; holds the global batch.
        cluster: name of the cluster (or path of its file).
        stack: name of the training software (or path of its file).
        seq_length: tokens of one sequence.
        tokens: training tokens, a whole number of steps; None where only the step matters.
    """

    architecture: Architecture
    plan: Plan
    cluster: str
    stack: str
    seq_length: int
    tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse token counts that are not a whole number of steps.

        Raises:
            UserInputError: naming the nearest valid value.
        """
        if self.seq_length < 1:
            raise UserInputError(f"seq_length must be at least 1, got {self.seq_length}")
        if self.tokens is not None and (self.tokens < 1 or self.tokens % self.tokens_per_step):
            near = max(1, round(self.tokens / self.tokens_per_step)) * self.tokens_per_step
            raise UserInputError(
                f"tokens={self.tokens} must be a multiple of global_batch_size x seq_length = "
                f"{self.tokens_per_step}",
                hint=f"nearest valid: tokens={near}",
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.plan.global_batch_size * self.seq_length

    @property
    def steps(self) -> int | None:
        """Optimizer steps of the whole run; None without tokens."""
        return None if self.tokens is None else self.tokens // self.tokens_per_step

    def to_row(self) -> dict[str, Any]:
        """Return the design as one flat mapping of plain values, in a fixed order.

        Everything a simulator needs to repeat the design is in it; `from_row` is the inverse.
        """
        row: dict[str, Any] = {
            "cluster": self.cluster,
            "stack": self.stack,
            "seq_length": self.seq_length,
            "tokens": self.tokens,
            "gpus": self.plan.gpus,
        }
        for field, key in _ARCHITECTURE_KEYS.items():
            row[key] = getattr(self.architecture, field)
        for key in _PLAN_KEYS:
            row[key] = getattr(self.plan, key)
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Design:
        """Build a design from a flat row; keys that are not part of a design are ignored.

        Text values (a CSV reader's) are turned into the type of their field.

        Args:
            row: as `to_row` writes it; keys with a default may be missing. A row without
                head_dim takes hidden_size / num_attention_heads.

        Raises:
            UserInputError: when a key is missing, unreadable, or contradicts another.
        """
        values = dict(row)
        if values.get("head_dim") in (None, "") and values.get("num_attention_heads"):
            hidden = _whole("hidden_size", values.get("hidden_size"))
            heads = _whole("num_attention_heads", values["num_attention_heads"])
            values["head_dim"] = hidden // max(1, heads)
        values.setdefault("gated_mlp", True)
        architecture = {
            field: _read(values, key, Architecture, field)
            for field, key in _ARCHITECTURE_KEYS.items()
        }
        plan = Plan(**{key: _read(values, key, Plan, key) for key in _PLAN_KEYS})
        gpus = values.get("gpus")
        if gpus not in (None, "") and _whole("gpus", gpus) != plan.gpus:
            raise UserInputError(
                f"gpus={gpus} contradicts tp x cp x pp x dp = {plan.tp} x {plan.cp} x {plan.pp} "
                f"x {plan.dp} = {plan.gpus}"
            )
        tokens = values.get("tokens")
        for key in ("cluster", "seq_length"):
            if values.get(key) in (None, ""):
                raise UserInputError(f"a design needs {key}")
        return cls(
            architecture=Architecture(**architecture),
            plan=plan,
            cluster=str(values["cluster"]),
            stack=str(values.get("stack") or "megatron-core-2025"),
            seq_length=_whole("seq_length", values["seq_length"]),
            tokens=None if tokens in (None, "") else _whole("tokens", tokens),
        )


def _read(values: Mapping[str, Any], key: str, owner: type, field: str) -> Any:
    """Return one value converted to the type of its dataclass field, or the field's default."""
    definition = next(f for f in fields(owner) if f.name == field)
    value = values.get(key)
    if value is None or (value == "" and definition.type != "str"):
        if definition.default is MISSING:
            raise UserInputError(f"a design needs {key}")
        return definition.default
    if definition.type == "bool":
        text = str(value).strip().lower()
        if text not in ("true", "false", "1", "0"):
            raise UserInputError(f"{key} must be true or false, got {value!r}")
        return text in ("true", "1")
    return _whole(key, value) if definition.type == "int" else str(value)


def _whole(key: str, value: Any) -> int:
    """Return a whole number; text such as "4e9" is taken when it is one exactly."""
    try:
        text = value.strip() if isinstance(value, str) else None
        # Whole text stays exact: tokens may exceed what a float64 can count.
        number = value if text is None else int(text) if text.isdigit() else float(text)
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        raise UserInputError(f"{key} must be a whole number, got {value!r}") from None
    if isinstance(value, bool) or whole != number:
        raise UserInputError(f"{key} must be a whole number, got {value!r}")
    return whole
