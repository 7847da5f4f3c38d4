"""What a loss law needs to know about candidate designs, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vtrain.errors import UserInputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Designs:
    """Candidate designs; every field is an array, all broadcastable to one shape.

    The user's vocabulary is absent on purpose: a law is fed non-embedding parameters plus the
    embedding of *its own* vocabulary, so that a large vocabulary buys no predicted loss.

    Raises:
        UserInputError: a value is not a positive finite number, or shapes do not fit together.
    """

    parameters_non_embedding: FloatArray
    """Parameters without token and position embeddings and without the output head."""
    tokens: FloatArray
    """Tokens processed in training, repeats counted."""
    hidden_size: FloatArray
    """Model width."""
    num_layers: FloatArray
    """Decoder layers."""
    head_dim: FloatArray
    """Size of one attention head."""
    global_batch_tokens: FloatArray
    """Tokens in one optimizer step."""
    ffn_ratio: FloatArray | None = None
    """Feed-forward width over model width as two matrices of the same size: multiply the width
    of a gated (three-matrix) block by 3/2. None: taken to be within the range of the data."""

    def __post_init__(self) -> None:
        """Turn every field into a float array and refuse what no law can be asked."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            array = np.asarray(value, dtype=np.float64)
            object.__setattr__(self, field.name, array)
            # NaN fails the comparison, so one pass finds it too.
            if not bool(np.all((array > 0.0) & (array < np.inf))):
                bad = array[~((array > 0.0) & (array < np.inf))].flat[0]
                raise UserInputError(
                    f"{field.name} must be positive and finite, got {bad:g}",
                    hint="drop designs that cannot be trained before asking for their loss",
                )
        try:
            np.broadcast_shapes(*(array.shape for array in self._arrays()))
        except ValueError as error:
            shapes = {field.name: np.shape(getattr(self, field.name)) for field in fields(self)}
            raise UserInputError(f"design arrays do not broadcast together: {shapes}") from error

    def _arrays(self) -> list[FloatArray]:
        values = (getattr(self, field.name) for field in fields(self))
        return [value for value in values if value is not None]

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of all fields."""
        return np.broadcast_shapes(*(array.shape for array in self._arrays()))

    def flat(self) -> Designs:
        """Return the same designs with every field one-dimensional and of full length."""
        shape = self.shape
        return Designs(
            **{
                field.name: np.broadcast_to(getattr(self, field.name), shape).reshape(-1)
                for field in fields(self)
                if getattr(self, field.name) is not None
            }
        )

    def broadcast_to(self, shape: tuple[int, ...]) -> Designs:
        """Return the designs broadcast to a shape."""
        return Designs(
            **{
                field.name: np.broadcast_to(getattr(self, field.name), shape)
                for field in fields(self)
                if getattr(self, field.name) is not None
            }
        )

    def take(self, index: ArrayLike | slice) -> Designs:
        """Return the designs at `index` of the flattened designs."""
        flat = self.flat()
        return Designs(
            **{
                field.name: np.atleast_1d(getattr(flat, field.name)[index])
                for field in fields(self)
                if getattr(flat, field.name) is not None
            }
        )

    def with_tokens(self, tokens: ArrayLike) -> Designs:
        """Return the same designs trained on other token counts, batch unchanged."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Designs(**{**values, "tokens": np.asarray(tokens, dtype=np.float64)})
