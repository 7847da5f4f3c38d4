"""Model files: exact counts, published sizes, sources, names."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from vtrain.errors import UserInputError
from vtrain.models import load_model, model_names

EXACT = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "qwen1.5-72b": 72_287_920_128,
    "bloom-176b": 176_247_271_424,
    "gpt-neox-20b": 20_554_567_680,
}


@pytest.mark.parametrize(("name", "parameters"), EXACT.items())
def test_parameters_are_exact(name: str, parameters: int) -> None:
    """The count equals the one its makers published, to the parameter."""
    assert load_model(name).architecture.parameters == parameters


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "vocab"),
    [
        ("gpt3-175b", 96, 12288, 50257),
        ("mt-nlg-530b", 105, 20480, 50257),
        ("megatron-145.6b", 80, 12288, 51200),
        ("megatron-1008b", 128, 25600, 51200),
    ],
)
def test_gpt_counts_follow_the_megatron_formula(
    name: str, layers: int, hidden: int, vocab: int
) -> None:
    """12 l h^2 (1 + 13/12h + (V+s)/12lh), arXiv 2104.04473 eq. 2, plus the final norm."""
    expected = 12 * layers * hidden**2 + 13 * layers * hidden + (vocab + 2048) * hidden
    assert load_model(name).architecture.parameters == expected + 2 * hidden


def test_gated_mlp_has_three_matrices() -> None:
    """Qwen1.5-72B has 72.3B parameters, not the 56.2B of a calculator with two (PC-50)."""
    model = load_model("qwen1.5-72b").architecture
    assert model.ffn_hidden_size == 3 * model.hidden_size
    two_matrices = model.parameters - model.num_layers * model.hidden_size * model.ffn_hidden_size
    assert two_matrices == pytest.approx(56.19e9, rel=1e-3)


def _rounded(text: str) -> tuple[float, float]:
    """Value and half a unit in the last place of a text such as 18.4B."""
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?([MB])", text)
    assert match is not None, text
    unit = {"M": 1e6, "B": 1e9}[match[3]]
    return float(text[:-1]) * unit, 0.5 * unit * 10 ** -len(match[2] or "")


@pytest.mark.parametrize("name", model_names())
def test_every_model_has_its_published_size(name: str) -> None:
    """Exact where an exact count was published, else within 0.5 % or the rounding of the name."""
    model = load_model(name)
    assert model.published.keys() & {"parameters", "parameters_non_embedding"}
    for field in ("parameters", "parameters_non_embedding"):
        value = model.published.get(field)
        ours = getattr(model.architecture, field)
        if isinstance(value, int):
            assert ours == value
        elif value is not None:
            published, half = _rounded(value)
            # A note owns up to a name that its own shape contradicts.
            slack = 0.04 * published if "note" in model.published else 0.0
            assert abs(ours - published) <= max(0.005 * published, half, slack) * (1 + 1e-9)


@pytest.mark.parametrize("name", model_names())
def test_every_value_has_a_source_and_a_date(name: str) -> None:
    """Shape, sequence length and published size each name where and when they were published."""
    model = load_model(name)
    assert set(model.sources) == {"architecture", "seq_length", "published"}
    for item in model.sources.values():
        assert len(item["source"]) > 10
        assert re.fullmatch(r"20\d\d-\d\d", item["date"])
    assert model.seq_length >= 1024
    assert model.name == name


def test_only_known_exceptions_to_the_published_size() -> None:
    """Notes that excuse a deviation stay few."""
    noted = [n for n in model_names() if "note" in load_model(n).published]
    assert noted == ["megatron-h100-1.7b", "nemotron3-22b"]


def test_names_and_aliases_in_any_case() -> None:
    """A model answers to its aliases, whatever the case, and aliases are unambiguous."""
    assert load_model("Llama-2-70B") == load_model("llama2-70b")
    assert load_model("LLAMA3.1-405B").name == "llama3-405b"


def test_aliases_are_unambiguous() -> None:
    """No alias is another model's name or alias."""
    seen = set(model_names())
    for item in (files("vtrain") / "data" / "models").iterdir():
        for alias in tomllib.loads(item.read_text(encoding="utf-8")).get("aliases", []):
            assert alias == alias.lower()
            assert alias not in seen
            seen.add(alias)


def test_unknown_model_names_the_nearest() -> None:
    """An unknown name is refused with the nearest ones."""
    with pytest.raises(UserInputError, match=r"unknown model 'llama3-700b'; nearest: .*llama3-70b"):
        load_model("llama3-700b")


GOOD = """
name = "mine"
seq_length = 4096
[architecture]
num_layers = 2
hidden_size = 256
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 64
ffn_hidden_size = 768
gated_mlp = true
vocab_size = 1000
"""


def test_own_file(tmp_path: Path) -> None:
    """A user's file needs shape and sequence length only."""
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    model = load_model(str(path))
    assert (model.name, model.seq_length) == ("mine", 4096)
    assert model.architecture.parameters_embedding == 2 * 1000 * 256


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("hidden_size = 256", "hiden_size = 256", "unknown field 'hiden_size'; nearest: hidden_"),
        ("num_layers = 2\n", "", "lacks num_layers"),
        ("seq_length = 4096\n", "", "seq_length are required"),
        ("num_layers = 2", "num_layers = 0", "at least 1"),
        ("[architecture]", "[architecture", "is not TOML"),
        ("name", "nome", "unknown field 'nome'; nearest: name"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, old: str, new: str, rule: str) -> None:
    """A file with an unknown, missing or impossible field is refused by name."""
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UserInputError, match=re.escape(rule)):
        load_model(str(path))


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is refused."""
    with pytest.raises(UserInputError, match="cannot read model file"):
        load_model(str(tmp_path / "none.toml"))
