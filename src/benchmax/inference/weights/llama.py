"""The Llama family: its numbers, and its weights in a few fused matrices.

Query, key and value are one matrix, gate and up another, and the residual is added in the matrix product before it.
`Weights.update` copies new values into those buffers in place, by Hugging Face's parameter names, so that addresses (in
a captured CUDA graph) stay valid between training steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmax.errors import NotFoundError, UsageError
from benchmax.inference.weights.store import named_damage, read_json

SUPPORTED = ("llama", "qwen2", "qwen3")
PACK_ROWS = 64
"""Batch size for which oneDNN packs a matrix; measured good from 2 to 512 rows."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The numbers of a checkpoint that shape the computation."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    context: int
    eps: float
    tied: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    rope: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelSpec:
        kind = str(config.get("model_type", "unknown"))
        if kind not in SUPPORTED:
            raise UsageError(
                f"The engine runs {', '.join(SUPPORTED)} models; this one is {kind!r}. "
                "Serve it with another engine and use it through its OpenAI-compatible URL."
            )
        if config.get("use_sliding_window"):
            raise UsageError("The engine has no sliding-window attention. Set use_sliding_window to false.")
        if config.get("hidden_act", "silu") != "silu":
            raise UsageError(f"The engine knows the activation silu; this model uses {config['hidden_act']!r}.")
        heads, hidden = _size(config, "num_attention_heads"), _size(config, "hidden_size")
        kv_heads, head_dim = _size(config, "num_key_value_heads", heads), _size(config, "head_dim", hidden // heads)
        if heads % kv_heads:
            raise _wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})")
        if head_dim % 2:
            raise _wrong("head_dim", head_dim, "an even number")  # rotation pairs its halves
        bias = bool(config.get("attention_bias", False))
        return cls(
            vocab=_size(config, "vocab_size"),
            hidden=hidden,
            layers=_size(config, "num_hidden_layers"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate=_size(config, "intermediate_size"),
            context=_size(config, "max_position_embeddings"),
            eps=_number(config, "rms_norm_eps"),
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=bias or kind == "qwen2",
            o_bias=bias,
            mlp_bias=bool(config.get("mlp_bias", False)),
            qk_norm=kind == "qwen3",
            rope=_rope_settings(config),
        )

    @classmethod
    def from_directory(cls, path: Path) -> ModelSpec:
        file = path / "config.json"
        if not file.is_file():
            raise NotFoundError(f"{path} has no config.json. Give a directory saved by transformers.")
        config = read_json(file)
        try:
            return cls.from_config(config)
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from None

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        raise _wrong(key, value, "a whole number above 0")
    return value


def _number(config: Mapping[str, Any], key: str) -> float:
    value: Any = config.get(key)
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise _wrong(key, value, "a number above 0")
    return float(value)


def _wrong(key: str, value: Any, wanted: str) -> UsageError:
    found = "there is none" if value is None else f"it is {repr(value)[:80]}"
    return UsageError(f"The model's config must have {wanted} as {key}; {found}. Copy or save the model again.")


_ROPE_NUMBERS = {
    "default": ("rope_theta",),
    "linear": ("rope_theta", "factor"),
    "llama3": (
        "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
    ),
}  # fmt: skip
"""The settings that each kind of rotary embedding takes."""


def _rope_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """transformers 5 writes `rope_parameters`; older checkpoints `rope_theta` and `rope_scaling`."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise _wrong("rope_parameters", given, "an object")
    settings = dict(given)
    settings.setdefault("rope_theta", config.get("rope_theta", 10_000.0))
    settings["rope_type"] = settings.get("rope_type") or settings.get("type") or "default"
    if settings["rope_type"] not in tuple(_ROPE_NUMBERS):
        raise UsageError(
            f"The engine knows RoPE default, linear and llama3; this model uses {settings['rope_type']!r}."
        )
    for key in _ROPE_NUMBERS[settings["rope_type"]]:
        _number(settings, key)
    return settings


def rope_tables(spec: ModelSpec, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine for each position, [length, head_dim / 2], float32."""
    rope = spec.rope
    steps = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    frequency = 1.0 / (float(rope["rope_theta"]) ** steps)
    if rope["rope_type"] == "linear":
        frequency = frequency / float(rope["factor"])
    if rope["rope_type"] == "llama3":
        frequency = _llama3(frequency, rope)
    angles = torch.outer(torch.arange(length).float(), frequency)
    return angles.cos().to(device), angles.sin().to(device)


def _llama3(frequency: Tensor, rope: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's stretch: slow frequencies divided by the factor, fast ones kept, a ramp between."""
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    wavelength = 2 * math.pi / frequency
    ramp: Tensor = ((old / wavelength - low) / (high - low)).clamp(0, 1)
    return (1 - ramp) * frequency / float(rope["factor"]) + ramp * frequency


class Projection:
    """A linear layer. On a CPU with oneDNN it keeps a packed copy, up to twice as fast for small batches."""

    def __init__(self, weight: Tensor, bias: bool = False) -> None:
        self.weight = weight
        self.bias = torch.zeros(len(weight), device=weight.device, dtype=weight.dtype) if bias else None
        self.packed: Tensor | None = None
        self.gain: Tensor | None = None
        self.folded: Tensor | None = None

    def fold(self, gain: Tensor) -> None:
        """Keep a second copy of the weight, multiplied by the gain of the norm before it."""
        self.gain, self.folded = gain, torch.empty_like(self.weight)
        self.pack()

    def pack(self) -> None:
        """Make the copies that kernels read: packed for oneDNN, or folded. Called whenever the weight changes."""
        if self.folded is not None and self.gain is not None:
            torch.mul(self.weight, self.gain, out=self.folded)
        if self.weight.device.type == "cpu" and self.weight.dtype == torch.float32 and can_pack():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, PACK_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus the projection of `x`; `residual` may be overwritten."""
        if self.packed is not None:
            out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.packed, self.bias, "add")
            return out
        residual.addmm_(x, self.weight.t())
        return residual if self.bias is None else residual.add_(self.bias)


@cache
def can_pack() -> bool:
    """Whether this torch has oneDNN's packed linear layer, and it computes the right result."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        weight, x, other = torch.randn(48, 32), torch.randn(3, 32), torch.randn(3, 48)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS)
        out = torch.ops.mkldnn._linear_pointwise.binary(x, other, packed, None, "add")
        return bool(torch.allclose(out, other + x @ weight.t(), atol=1e-4))
    except (AttributeError, RuntimeError, TypeError):
        return False


class Layer:
    """One block: attention and feed-forward, their matrices fused."""

    def __init__(self, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> None:
        def ones(width: int) -> Tensor:
            return torch.ones(width, device=device, dtype=dtype)

        def linear(rows: int, columns: int, bias: bool) -> Projection:
            return Projection(torch.zeros(rows, columns, device=device, dtype=dtype), bias)

        self.norm_1, self.norm_2 = ones(spec.hidden), ones(spec.hidden)
        self.q_norm = ones(spec.head_dim) if spec.qk_norm else None
        self.k_norm = ones(spec.head_dim) if spec.qk_norm else None
        self.qkv = linear(spec.q_width + 2 * spec.kv_width, spec.hidden, spec.qkv_bias)
        self.o = linear(spec.hidden, spec.q_width, spec.o_bias)
        self.gate_up = linear(2 * spec.intermediate, spec.hidden, spec.mlp_bias)
        self.down = linear(spec.hidden, spec.intermediate, spec.mlp_bias)

    def targets(self, spec: ModelSpec) -> Iterator[tuple[str, Tensor, Projection | None]]:
        """Where each Hugging Face parameter of this layer is stored."""
        yield "input_layernorm.weight", self.norm_1, self.qkv
        yield "post_attention_layernorm.weight", self.norm_2, self.gate_up
        if self.q_norm is not None and self.k_norm is not None:
            yield "self_attn.q_norm.weight", self.q_norm, None
            yield "self_attn.k_norm.weight", self.k_norm, None
        q, kv, half = spec.q_width, spec.kv_width, spec.intermediate
        pieces: tuple[tuple[str, Projection, int, int], ...] = (
            ("self_attn.q_proj", self.qkv, 0, q),
            ("self_attn.k_proj", self.qkv, q, q + kv),
            ("self_attn.v_proj", self.qkv, q + kv, q + 2 * kv),
            ("self_attn.o_proj", self.o, 0, spec.hidden),
            ("mlp.gate_proj", self.gate_up, 0, half),
            ("mlp.up_proj", self.gate_up, half, 2 * half),
            ("mlp.down_proj", self.down, 0, spec.hidden),
        )
        for name, projection, start, end in pieces:
            yield f"{name}.weight", projection.weight[start:end], projection
            if projection.bias is not None:
                yield f"{name}.bias", projection.bias[start:end], projection


class Weights:
    """All parameters of a model, in fused buffers on one device."""

    def __init__(self, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> None:
        self.spec, self.device, self.dtype = spec, device, dtype
        self.embed = torch.zeros(spec.vocab, spec.hidden, device=device, dtype=dtype)
        self.layers = [Layer(spec, device, dtype) for _ in range(spec.layers)]
        self.norm = torch.ones(spec.hidden, device=device, dtype=dtype)
        self.lm_head = Projection(self.embed if spec.tied else torch.zeros_like(self.embed))
        self.targets = dict(self._named_targets())
        """Each parameter's place by its name, and the projection it belongs to or feeds."""
        self.own_names = self.targets.keys() - ({"lm_head.weight"} if spec.tied else set())
        """Parameters with memory of their own, which every checkpoint must have."""

    def _named_targets(self) -> Iterator[tuple[str, tuple[Tensor, Projection | None]]]:
        yield "model.embed_tokens.weight", (self.embed, self.lm_head if self.spec.tied else None)
        yield "model.norm.weight", (self.norm, None)
        yield "lm_head.weight", (self.lm_head.weight, self.lm_head)
        for i, layer in enumerate(self.layers):
            for name, view, projection in layer.targets(self.spec):
                yield f"model.layers.{i}.{name}", (view, projection)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(view.shape) for name, (view, _) in self.targets.items()}

    @property
    def bytes(self) -> int:
        return sum(self.targets[name][0].nbytes for name in self.own_names)

    def fold(self) -> None:
        """Fold the norms' gains into the matrices that follow them, for kernels that do both at once."""
        with torch.no_grad():
            for layer in self.layers:
                layer.qkv.fold(layer.norm_1)
                layer.gate_up.fold(layer.norm_2)

    def update(self, named: Mapping[str, Tensor]) -> None:
        """Copy parameters, all or some, into place. Nothing is copied when one of them does not fit."""
        into: list[Tensor] = []
        values: list[Tensor] = []
        touched: dict[int, Projection] = {}
        for name, value in named.items():
            if name.endswith("rotary_emb.inv_freq"):
                continue
            view, projection = self._target(name, value)
            into.append(view)
            values.append(value.detach())
            if projection is not None:
                touched[id(projection)] = projection
        with torch.no_grad():
            if values and all(value.device == self.device for value in values):
                torch._foreach_copy_(into, values)
            else:
                for view, value in zip(into, values, strict=True):
                    view.copy_(value)
            for projection in touched.values():
                projection.pack()

    def _target(self, name: str, value: Tensor) -> tuple[Tensor, Projection | None]:
        if name not in self.targets:
            raise UsageError(f"The model has no parameter {name!r}. Use the names of its state_dict().")
        view, projection = self.targets[name]
        if view.shape != value.shape:
            raise UsageError(
                f"{name} has shape {tuple(value.shape)}; the engine's model has {tuple(view.shape)}. "
                "Load weights of the same model."
            )
        return view, projection

    def load_directory(self, path: Path) -> None:
        """Read every safetensors file of a checkpoint; all parameters must be there."""
        from safetensors import safe_open

        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise NotFoundError(f"{path} has no .safetensors file. Save the model with save_pretrained().")
        missing = set(self.own_names)
        for file in files:
            with named_damage(file), safe_open(str(file), framework="pt") as tensors:
                found = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
            self.update(found)
            missing -= set(found)
        if missing:
            raise UsageError(f"{path} lacks {len(missing)} parameters, such as {min(missing)!r}. Save the whole model.")
        self._check_finite(path)

    def _check_finite(self, path: Path) -> None:
        """Raise UsageError for NaN or infinity, which make every logit NaN. A sum shows it without extra memory."""
        names = sorted(self.own_names)
        sums = torch.stack([self.targets[name][0].sum(dtype=torch.float32) for name in names])
        broken = [name for name, fine in zip(names, sums.isfinite().tolist(), strict=True) if not fine]
        if broken:
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            raise UsageError(
                f"The weights in {path} are not finite numbers as {str(self.dtype).removeprefix('torch.')}: there is "
                f"NaN or an infinity in {broken[0]}{more}. Pull or copy the model again, or take an earlier checkpoint."
            )
