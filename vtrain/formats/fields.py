"""Read a foreign mapping field by field and remember what nobody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TRUE = ("true", "yes", "1", "on")
_FALSE = ("false", "no", "0", "off")


class Fields:
    """A mapping whose values are taken by type; what is never taken can be listed.

    A key may have aliases: all that are present must agree. `None` counts as absent.
    """

    def __init__(self, values: Mapping[str, Any], label: str, *, text: bool = False) -> None:
        """Wrap a mapping.

        Args:
            values: the fields of a file, flat.
            label: what an error calls the file.
            text: numbers come as text (a command line), so "8" is a whole number.
        """
        self._values = values
        self._label = label
        self._text = text
        self._taken: set[str] = set()
        self._ignored: set[str] = set()

    def has(self, *keys: str) -> bool:
        """Return whether any of the keys carries a value; it does not count as taken."""
        return any(self._values.get(key) is not None for key in keys)

    def raw(self, *keys: str) -> Any:
        """Take the value of a key or of one of its aliases; None when absent.

        Raises:
            UserInputError: when two aliases disagree.
        """
        self._taken.update(key for key in keys if key in self._values)
        present = [key for key in keys if self._values.get(key) is not None]
        for key in present[1:]:
            if self._values[key] != self._values[present[0]]:
                raise UserInputError(
                    f"{self._label}: {present[0]}={self._values[present[0]]} contradicts "
                    f"{key}={self._values[key]}",
                    hint="keep one of them",
                )
        return self._values[present[0]] if present else None

    def whole(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """Take a whole number.

        Raises:
            UserInputError: when it is absent without a default, of another type, or too small.
        """
        value = self.maybe_whole(*keys, least=least)
        if value is not None:
            return value
        if default is None:
            raise UserInputError(f"{self._label}: {keys[0]} is missing")
        return default

    def maybe_whole(self, *keys: str, least: int = 1) -> int | None:
        """Take a whole number, or None when absent.

        Raises:
            UserInputError: when it is of another type or too small.
        """
        value = self.raw(*keys)
        if value is None:
            return None
        if self._text and isinstance(value, str):
            digits = value.replace("_", "")
            value = int(digits) if digits.lstrip("-").isdigit() else value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UserInputError(
                f"{self._label}: {keys[0]} must be a whole number of at least {least}, "
                f"got {value!r}"
            )
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Take a truth value.

        Raises:
            UserInputError: when it is of another type.
        """
        value = self.raw(*keys)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if self._text and isinstance(value, str) and value.lower() in _TRUE + _FALSE:
            return value.lower() in _TRUE
        raise UserInputError(f"{self._label}: {keys[0]} must be true or false, got {value!r}")

    def word(self, *keys: str, default: str | None = None) -> str | None:
        """Take a text.

        Raises:
            UserInputError: when it is of another type.
        """
        value = self.raw(*keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise UserInputError(f"{self._label}: {keys[0]} must be text, got {value!r}")
        return value

    def section(self, key: str) -> Fields:
        """Take a table within the file (empty when absent); it is read like the whole.

        Raises:
            UserInputError: when it is no table.
        """
        value = self.raw(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise UserInputError(f"{self._label}: {key} must be a table, got {value!r}")
        return Fields(value, f"{self._label}: [{key}]", text=self._text)

    def ignore(self, names: Iterable[str], prefixes: tuple[str, ...] = ()) -> None:
        """Mark fields known to change neither parameters nor time nor memory."""
        names = set(names)
        self._ignored.update(
            key for key in self._values if key in names or (prefixes and key.startswith(prefixes))
        )

    @property
    def ignored(self) -> tuple[str, ...]:
        """Known fields without effect that nobody took, in the order of the file."""
        return tuple(k for k in self._values if k in self._ignored and k not in self._taken)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields that nobody took or knows, in the order of the file."""
        return tuple(k for k in self._values if k not in self._ignored and k not in self._taken)
