"""Judge ``torch.compile`` by the model families of transformers: ``python -m tests.torch.families [names]``.

Each family's base model is made from its configuration, with small widths and random weights, and compiled as one graph
without fallback; its results are compared with PyTorch's. ``--generate`` compares the tokens that models with a cache
generate. Nothing is downloaded. Needs ``pip install transformers``.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tests.torch import generating, judging
from tests.torch.judging import Fallbacks
from tests.torch.modules import compare

#: Widths that most configurations know, by their names or by another name for the same.
SMALL: Mapping[str, Any] = {
    **{"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0},
    **{"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64, "head_dim": 8},
}
#: Widths of models of encoder and decoder that name them otherwise.
PAIRED: Mapping[str, Any] = {
    **{"vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 64},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
}
IMAGE: Mapping[str, Any] = {"image_size": 32, "patch_size": 8}

Inputs = Callable[[Any], dict[str, torch.Tensor]]


def tokens(config: Any) -> dict[str, torch.Tensor]:
    """Return two rows of tokens."""
    return {"input_ids": torch.randint(3, 99, (2, 12))}


def masked_tokens(config: Any) -> dict[str, torch.Tensor]:
    """Return two rows of tokens, of which one is shorter."""
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 7:] = 0
    return {**tokens(config), "attention_mask": mask}


def both_tokens(config: Any) -> dict[str, torch.Tensor]:
    """Return tokens for an encoder and for a decoder."""
    return {**tokens(config), "decoder_input_ids": torch.randint(3, 99, (2, 5))}


def masked_pair(config: Any) -> dict[str, torch.Tensor]:
    """Return tokens for an encoder, of which one row is shorter, and for a decoder."""
    return {**masked_tokens(config), **both_tokens(config)}


def image(config: Any, size: int = 32) -> dict[str, torch.Tensor]:
    """Return two images."""
    return {"pixel_values": torch.randn(2, 3, size, size)}


def image_and_tokens(config: Any) -> dict[str, torch.Tensor]:
    """Return two images and their texts."""
    return {**masked_tokens(config), **image(config)}


def sound(config: Any) -> dict[str, torch.Tensor]:
    """Return two rows of samples of sound."""
    return {"input_values": torch.randn(2, 2000)}


@dataclasses.dataclass(frozen=True)
class Family:
    """How a family's base model is made and called.

    Attributes:
        inputs: makes the inputs.
        widths: arguments of the configuration.
        model: the model's class, where it is not the base model.
        parts: for arguments that are configurations of parts their widths.
    """

    inputs: Inputs = masked_tokens
    widths: Mapping[str, Any] = dataclasses.field(default_factory=lambda: SMALL)
    model: str | None = None


def _small(inputs: Inputs = masked_tokens, model: str | None = None, **more: Any) -> Family:
    return Family(inputs, {**SMALL, **more}, model)


def _paired(inputs: Inputs = both_tokens, model: str | None = None, **more: Any) -> Family:
    return Family(inputs, {**PAIRED, **more}, model)


def _image(inputs: Inputs = image, model: str | None = None, **more: Any) -> Family:
    return Family(inputs, {**SMALL, **IMAGE, **more}, model)


_STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_stages": 4}
_SOUND = {
    **{"conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3},
    **{"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2},
}

FAMILIES: Mapping[str, Family] = {
    # Encoders of text.
    **dict.fromkeys(
        (
            *("bert", "roberta", "distilbert", "electra", "albert", "mpnet", "camembert", "xlm-roberta", "ernie"),
            *(
                "layoutlm",
                "mobilebert",
                "roformer",
                "convbert",
                "nystromformer",
                "squeezebert",
                "splinter",
                "data2vec-text",
            ),
            *("xlm-roberta-xl", "roberta-prelayernorm", "megatron-bert", "modernbert", "nomic_bert", "bert-generation"),
        ),
        _small(),
    ),
    "squeezebert": _small(embedding_size=32),
    "deberta": _small(),
    "deberta-v2": _small(),
    "funnel": Family(
        widths={"vocab_size": 99, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48},
        model="FunnelModel",
    ),
    "fnet": Family(tokens, SMALL),
    "ibert": _small(),
    "xlm": Family(widths={"vocab_size": 99, "emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    "flaubert": Family(widths={"vocab_size": 99, "emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    "xlnet": Family(widths={"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    "longformer": _small(attention_window=4),
    "big_bird": _small(attention_type="original_full"),
    "canine": _small(),
    "rembert": _small(input_embedding_size=16),
    "esm": _small(position_embedding_type="rotary"),
    # Decoders of text.
    **dict.fromkeys(
        (
            *(
                "llama",
                "mistral",
                "qwen2",
                "qwen3",
                "gemma",
                "gemma2",
                "phi3",
                "stablelm",
                "starcoder2",
                "olmo",
                "olmo2",
            ),
            *(
                "cohere",
                "cohere2",
                "granite",
                "glm",
                "glm4",
                "nemotron",
                "helium",
                "smollm3",
                "exaone4",
                "arcee",
                "ernie4_5",
            ),
            *("seed_oss", "hunyuan_v1_dense", "bitnet", "apertus", "diffllama", "ministral", "biogpt", "gpt_neox"),
            *("gpt_neox_japanese", "persimmon", "phi", "xglm", "opt", "ctrl", "gpt2", "openai-gpt"),
            *("gpt_bigcode", "bloom", "mpt", "imagegpt"),
        ),
        _small(),
    ),
    "gemma3_text": _small(),
    "codegen": _small(rotary_dim=4),
    "gptj": _small(rotary_dim=4),
    "falcon": Family(widths={key: value for key, value in SMALL.items() if key != "head_dim"}),
    "gpt_neo": _small(attention_types=[[["global", "local"], 1]], num_layers=2),
    "mixtral": _small(num_local_experts=4),
    "qwen2_moe": _small(num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16),
    "olmoe": _small(num_experts=4, num_experts_per_tok=2),
    "granitemoe": _small(num_local_experts=4),
    "mamba": _small(tokens, state_size=8),
    "mamba2": _small(tokens, num_heads=8, head_dim=8, n_groups=1, state_size=8, expand=2, chunk_size=4),
    "falcon_mamba": _small(tokens, state_size=8),
    "recurrent_gemma": _small(tokens, lru_width=32, attention_window_size=8, num_hidden_layers=3),
    "rwkv": _small(tokens, attention_hidden_size=32, context_length=32),
    # Encoder and decoder.
    **dict.fromkeys(("bart", "mbart", "blenderbot", "blenderbot-small", "pegasus", "plbart", "m2m_100"), _paired()),
    "marian": _paired(pad_token_id=0, decoder_start_token_id=0),
    **dict.fromkeys(("mvp", "bigbird_pegasus", "nllb-moe", "led", "fsmt"), _paired()),
    **dict.fromkeys(
        ("t5", "mt5", "umt5", "longt5", "switch_transformers"),
        Family(
            masked_pair,
            {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "num_experts": 4},
        ),
    ),
    "prophetnet": Family(
        both_tokens,
        {
            **{
                "vocab_size": 99,
                "hidden_size": 32,
                "encoder_ffn_dim": 48,
                "num_encoder_layers": 2,
                "decoder_ffn_dim": 48,
            },
            **{"num_encoder_attention_heads": 4, "num_decoder_layers": 2, "num_decoder_attention_heads": 4},
        },
    ),
    # Images.
    **dict.fromkeys(("vit", "deit", "beit", "vit_mae", "vit_msn", "ijepa", "dinov2", "dpt", "vitdet"), _image()),
    "data2vec-vision": _image(),
    "yolos": _small(image, image_size=[32, 32], patch_size=8),
    "dinov2_with_registers": _image(),
    "swin": Family(
        image,
        {
            "image_size": 32,
            **{"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2, "patch_size": 2},
        },
    ),
    "swinv2": Family(
        image,
        {
            "image_size": 32,
            **{"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
        },
    ),
    "swin2sr": Family(
        image,
        {
            "image_size": 32,
            **{"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 1},
        },
    ),
    "convnext": Family(image, _STAGES),
    "convnextv2": Family(image, _STAGES),
    "resnet": Family(image, {**_STAGES, "embedding_size": 8}),
    "regnet": Family(image, {**_STAGES, "embedding_size": 8, "groups_width": 8}),
    "mobilenet_v1": Family(image, {"depth_multiplier": 0.25, "image_size": 32}),
    "mobilenet_v2": Family(image, {"depth_multiplier": 0.25, "image_size": 32}),
    "efficientnet": Family(
        image, {"width_coefficient": 0.25, "depth_coefficient": 0.25, "image_size": 32, "hidden_dim": 320}
    ),
    "segformer": Family(
        image, {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}
    ),
    "poolformer": Family(image, {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "levit": Family(
        functools.partial(image, size=64),
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 48],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
    ),
    "mobilevit": Family(
        functools.partial(image, size=64), {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": 4}
    ),
    "pvt": Family(
        functools.partial(image, size=64),
        {
            "image_size": 64,
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
        },
    ),
    "cvt": Family(
        functools.partial(image, size=64), {"embed_dim": [8, 16, 24], "depth": [1, 2, 3], "num_heads": [1, 2, 2]}
    ),
    "focalnet": _image(embed_dim=16, depths=[1, 1], patch_size=2, focal_levels=[1, 1], focal_windows=[3, 3]),
    "bit": Family(image, {**_STAGES, "embedding_size": 8, "layer_type": "preactivation", "num_groups": 2}),
    # Sound.
    **dict.fromkeys(
        ("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "data2vec-audio", "sew"), _small(sound, **_SOUND)
    ),
    "whisper": _paired(
        lambda config: {"input_features": torch.randn(2, 8, 16), "decoder_input_ids": torch.randint(3, 99, (2, 5))},
        num_mel_bins=8,
        max_source_positions=8,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
    "audio-spectrogram-transformer": _small(
        lambda config: {"input_values": torch.randn(2, 24, 16)}, max_length=24, num_mel_bins=16, patch_size=8
    ),
    # Images and text.
    "clip": Family(
        image_and_tokens, {"text_config": dict(SMALL), "vision_config": {**SMALL, **IMAGE}, "projection_dim": 16}
    ),
    "siglip": Family(
        image_and_tokens, {"text_config": {**SMALL, "projection_size": 32}, "vision_config": {**SMALL, **IMAGE}}
    ),
    "blip": Family(
        image_and_tokens, {"text_config": dict(SMALL), "vision_config": {**SMALL, **IMAGE}, "projection_dim": 16}
    ),
    "chinese_clip": Family(
        image_and_tokens, {"text_config": dict(SMALL), "vision_config": {**SMALL, **IMAGE}, "projection_dim": 16}
    ),
    "altclip": Family(
        image_and_tokens,
        {"text_config": {**SMALL, "project_dim": 16}, "vision_config": {**SMALL, **IMAGE}, "projection_dim": 16},
    ),
    "clipseg": Family(
        image_and_tokens, {"text_config": dict(SMALL), "vision_config": {**SMALL, **IMAGE}, "projection_dim": 16}
    ),
    "vilt": _image(image_and_tokens),
    "detr": _paired(
        functools.partial(image, size=64),
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config={"model_type": "resnet", **_STAGES, "embedding_size": 8, "out_features": ["stage4"]},
        num_queries=5,
    ),
    # Others.
    "decision_transformer": Family(
        lambda config: {
            "states": torch.randn(2, 5, 17),
            "actions": torch.randn(2, 5, 4),
            "returns_to_go": torch.randn(2, 5, 1),
            "timesteps": torch.arange(5).repeat(2, 1),
            "attention_mask": torch.ones(2, 5, dtype=torch.int64),
        },
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
    "patchtst": Family(
        lambda config: {"past_values": torch.randn(2, 32, 3)},
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "ffn_dim": 48,
        },
    ),
}


def made(name: str, family: Family) -> torch.nn.Module:
    """Return a family's model with random weights."""
    import transformers  # needed here alone

    config = transformers.AutoConfig.for_model(name, **family.widths)
    torch.manual_seed(0)
    if family.model is not None:
        return getattr(transformers, family.model)(config).eval()  # type: ignore[no-any-return]
    return transformers.AutoModel.from_config(config).eval()  # type: ignore[no-any-return]


def judge_family(name: str, family: Family, opt_level: int | None, fallbacks: Fallbacks) -> None:
    """Compare a family's model with PyTorch.

    Raises:
        OutOfScopeError: PyTorch itself does not run it as it is made here.
        NotTracedError, UnsupportedOperatorError, AssertionError: as said.
    """
    torch._dynamo.reset()
    try:
        model = made(name, family)
        inputs = family.inputs(model.config)
        torch.manual_seed(1)  # some draw what they hide
        with torch.no_grad():
            expected = _plain(model(**inputs, return_dict=True))
    except Exception as error:
        raise judging.OutOfScopeError(f"{type(error).__name__}: {error}") from error
    compiled = torch.compile(
        model, backend="tilewright", fullgraph=True, dynamic=False, options={"opt_level": opt_level}
    )
    fallbacks.lines.clear()
    torch.manual_seed(1)
    with torch.no_grad():
        try:
            found = _plain(compiled(**inputs, return_dict=True))
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:  # also without a backend
            raise judging.NotTracedError(str(error).splitlines()[0]) from None
    compare(found, expected, name)
    fallbacks.check()


def _plain(value: Any) -> Any:
    """Return the tensors of a model's result, by place."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if hasattr(value, "layers"):  # keys and values of attention
        return [[layer.keys, layer.values] for layer in value.layers if getattr(layer, "keys", None) is not None]
    return None


def main() -> None:
    """Judge the families and print the summary."""
    parser = judging.arguments(__doc__)
    parser.add_argument("--generate", action="store_true", help="judge the tokens that models with a cache generate")
    parser.add_argument("--opt-level", type=int, help="the optimization level")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    fallbacks = Fallbacks()

    def cases(name: str, family: Family) -> judging.Cases:
        yield functools.partial(judge_family, name, family, options.opt_level, fallbacks)

    if options.generate:
        judging.run(options, generating.subjects({name: FAMILIES[name].widths for name in generating.NAMES}, fallbacks))
        return
    judging.run(options, {name: functools.partial(cases, name, family) for name, family in FAMILIES.items()})


if __name__ == "__main__":
    sys.exit(main())
