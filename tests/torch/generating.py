"""Judge the tokens that ``generate`` of transformers finds with a compiled model and a cache of keys and values.

Prompts of several lengths, of which one row is padded at its begin, are continued greedily. The tokens must be
PyTorch's, each call one graph without fallback, and lengths after the second must build nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import torch

from tests.torch import judging
from tests.torch.judging import Fallbacks
from tilewright.runtime.torch import compiled

#: Families with a decoder; the second ones have an encoder, too.
DECODERS = (
    *("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "phi3", "gpt_neox", "opt", "bloom"),
    *("falcon", "gptj", "stablelm", "starcoder2", "olmo2", "cohere", "granite", "mamba"),
)
PAIRS = ("t5", "mt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "blenderbot")
NAMES = (*DECODERS, *PAIRS)

#: Lengths of prompts, and how many tokens are generated for each.
LENGTHS = ((5, 8), (9, 8), (12, 5), (7, 10))
#: Lengths that may build: PyTorch makes a size symbolic when it changes for the first time.
BUILDING = 2

#: With the same weights for embedding and output a model of random weights says what it heard.
_SPECIAL: Mapping[str, Any] = {
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1},
    **{"forced_eos_token_id": None, "tie_word_embeddings": False},
}
#: How many different tokens must be generated, so that the comparison tells something.
LEAST_DIFFERENT = 8


def subjects(
    widths: Mapping[str, Mapping[str, Any]], fallbacks: Fallbacks
) -> Mapping[str, Callable[[], judging.Cases]]:
    """Return what yields the cases of each family, of which ``widths`` are the arguments of its configuration: one for
    a cache that grows, and one for a cache of a fixed length."""

    def cases(name: str) -> judging.Cases:
        for cache in (None, "static"):
            yield functools.partial(judge, name, widths[name], cache, fallbacks)

    return {name: functools.partial(cases, name) for name in widths}


def made(name: str, widths: Mapping[str, Any]) -> Any:
    """Return a family's model for generation, with random weights that make it prefer a token clearly."""
    import transformers  # needed here alone

    config = transformers.AutoConfig.for_model(name, **{**widths, **_SPECIAL})
    torch.manual_seed(0)
    kind = transformers.AutoModelForSeq2SeqLM if name in PAIRS else transformers.AutoModelForCausalLM
    model = kind.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    return model


def continued(model: Any, length: int, count: int, cache: str | None) -> torch.Tensor:
    """Return two rows of tokens that a model generates, greedily."""
    torch.manual_seed(length)
    prompt = torch.randint(3, 99, (2, length))
    mask = torch.ones_like(prompt)
    mask[1, : length // 3] = prompt[1, : length // 3] = 0
    with torch.no_grad():
        return model.generate(  # type: ignore[no-any-return]
            prompt,
            attention_mask=mask,
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            num_beams=1,
            cache_implementation=cache,
            disable_compile=True,  # transformers' own call of torch.compile, by another backend
        )


def judge(name: str, widths: Mapping[str, Any], cache: str | None, fallbacks: Fallbacks) -> None:
    """Compare the tokens that a compiled model generates with PyTorch's.

    Raises:
        OutOfScopeError: PyTorch itself does not generate with such a cache.
        AssertionError: tokens differ, or a later length built something.
        NotTracedError, FellBackError: as said.
    """
    torch._dynamo.reset()
    try:
        model = made(name, widths)
        expected = [continued(model, *lengths, cache) for lengths in LENGTHS]
    except Exception as error:
        raise judging.OutOfScopeError(f"{type(error).__name__}: {error}") from error
    made_up = [tokens[:, -count:].flatten() for tokens, (_, count) in zip(expected, LENGTHS, strict=True)]
    assert len(torch.cat(made_up).unique()) >= LEAST_DIFFERENT, "the same few tokens again and again"
    fallbacks.lines.clear()
    parts = [model, model.get_encoder()] if name in PAIRS else [model]
    for part in parts:
        part.forward = torch.compile(part.forward, backend="tilewright", fullgraph=True)
    with mock.patch.object(compiled, "build", wraps=compiled.build) as build:
        for number, (lengths, tokens) in enumerate(zip(LENGTHS, expected, strict=True)):
            before = build.call_count
            try:
                found = continued(model, *lengths, cache)
            except torch._dynamo.exc.Unsupported as error:
                raise judging.NotTracedError(str(error).splitlines()[0]) from None
            assert torch.equal(found, tokens), f"{lengths}: expected {tokens.tolist()}, found {found.tolist()}"
            built = build.call_count - before
            assert number < BUILDING or not built, f"{lengths}: {built} builds for a new length"
    fallbacks.check()
