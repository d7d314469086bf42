# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Makes test/data/tiny_smolvla: a toy SmolVLA in LeRobot's own files, and LeRobot's own numbers for it.

    python make_tiny_smolvla.py FOLDER

Needs lerobot 0.6.1 with its extra `smolvla` (transformers 5.5.4, torch 2.x); nothing is downloaded: what
LeRobot would fetch from a hub (the sizes of the language model, its tokenizer) is replaced below. fp32, CPU.

`oracle.safetensors`, B = 1 in front of every axis list; H chunk, S prefix tokens, A padded action width:
raw.*: what the robot delivers. in.*: images [3, 64, 64] in [−1, 1], state, tokens, token_mask, noise [H, A].
vision.<stage>.cam<i>: [64 patches, row-major, 48]; .connector.cam<i>: [4, 64], not yet times √64.
prefix.{embs, pad_masks, att_masks}, prefix.layer<i> [S, 64], prefix.kv.<i>.{k, v} [2, S, 16] after RoPE.
cross.<i>.{k, v} [S, 32]: what the expert's cross-attention makes of them. suffix.t1.embs [H, 48],
suffix.step0.{layer<i>, final_norm} [H, 48]. x_t, v_t [steps, H, A]. actions_*: 10 steps, `.steps5`: 5.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lerobot.policies.smolvla.smolvlm_with_expert as backbone
import lerobot.processor.tokenizer_processor as tokenizer_processor
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from lerobot.policies.smolvla.processor_smolvla import make_smolvla_pre_post_processors
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, SmolVLMConfig

IMAGES = "observation.images."
TASK = "Put the red_block into the tray, then wait"
SENTENCES = [
    "pick up the red block and put it into the tray",
    "open the drawer, then close it",
    "wipe the table with the blue cloth",
    "move the cup to the left of the plate and wait",
]
SPECIAL = {"unk": "<|endoftext|>", "bos": "<|im_start|>", "pad": "<|im_end|>", "eos": "<end_of_utterance>"}
IMAGE_TOKENS = ("<fake_token_around_image>", "<global-img>", "<image>")
VISION = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3}
VISION |= {"patch_size": 8, "image_size": 64}
TEXT = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 5, "num_attention_heads": 4}
TEXT |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 320}
RMS_EPS = 1e-5
DEPTH, SCALE, STATE_DIM, ACTION_DIM = 4, 4, 6, 6


def make_tokenizer(folder: Path) -> None:
    """A byte-level BPE like SmolVLM2's: single digits, no BOS, its own special tokens in front."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT["vocab_size"] - len(IMAGE_TOKENS),
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_special_tokens(list(IMAGE_TOKENS))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {f"{role}_token": token for role, token in SPECIAL.items()}
    settings |= {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def replace_downloads(folder: Path) -> None:
    """LeRobot takes the language model's sizes and its tokenizer from a hub; here from `folder` and above."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), **{f"{k}_token": v for k, v in SPECIAL.items()}
    )
    ids = {
        name: tokenizer.convert_tokens_to_ids(token) for name, token in zip("fgi", IMAGE_TOKENS, strict=True)
    }
    config = SmolVLMConfig(
        vision_config=dict(VISION),
        text_config={
            "model_type": "llama",
            "pad_token_id": tokenizer.pad_token_id,
            "rms_norm_eps": RMS_EPS,
            **TEXT,
        },
        scale_factor=SCALE,
        image_token_id=ids["i"],
        pad_token_id=tokenizer.pad_token_id,
    )
    processor = SimpleNamespace(
        tokenizer=SimpleNamespace(fake_image_token_id=ids["f"], global_image_token_id=ids["g"])
    )
    backbone.AutoConfig = SimpleNamespace(from_pretrained=lambda name: config)
    backbone.AutoProcessor = SimpleNamespace(from_pretrained=lambda name: processor)
    tokenizer_processor.AutoTokenizer = SimpleNamespace(from_pretrained=lambda name: tokenizer)


def make_config() -> SmolVLAConfig:
    """Two cameras that deliver, one that does not, and an empty one; prompt and prefix are padded."""
    visual = {"top": (3, 40, 64), "extra": (3, 40, 64), "wrist": (3, 50, 36)}
    features = {IMAGES + k: PolicyFeature(FeatureType.VISUAL, shape) for k, shape in visual.items()}
    features["observation.state"] = PolicyFeature(FeatureType.STATE, (STATE_DIM,))
    return SmolVLAConfig(
        input_features=features,
        output_features={"action": PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
        chunk_size=6,
        n_action_steps=6,
        max_state_dim=16,
        max_action_dim=8,
        resize_imgs_with_padding=(64, 64),
        empty_cameras=1,
        tokenizer_max_length=32,
        pad_language_to="max_length",
        prefix_length=50,
        num_vlm_layers=DEPTH,
        num_expert_layers=0,
        device="cpu",
    )


def fill(policy: SmolVLAPolicy, random: torch.Generator) -> None:
    """Weights of a size at which every part of the model shows in the actions."""
    for name, p in policy.named_parameters():
        values = torch.randn(p.shape, generator=random)
        if name.endswith("bias"):
            values *= 0.1
        elif p.ndim == 1:
            values = 1 + 0.1 * values
        elif "embed_tokens" in name:
            values *= p.shape[1] ** -0.5  # times √width follows
        elif "position_embedding" in name:
            values *= 0.3
        else:
            size = 0.2 if "modality_projection" in name else 1.2
            values *= size * p[0].numel() ** -0.5
        p.data.copy_(values)


class Recorder:
    """What passes through modules and methods, as copies in the order of the calls."""

    def __init__(self) -> None:
        self.seen: dict[str, list[torch.Tensor]] = defaultdict(list)

    def output(self, name: str, module: torch.nn.Module) -> None:
        def keep(_: Any, __: Any, result: Any) -> None:
            tensor = getattr(result, "last_hidden_state", result)
            self.seen[name].append((tensor[0] if isinstance(tensor, tuple) else tensor).clone())

        module.register_forward_hook(keep)

    def input(self, name: str, module: torch.nn.Module) -> None:
        module.register_forward_pre_hook(lambda _, args: self.seen[name].append(args[0].clone()))

    def method(self, owner: object, name: str, keep: Callable[[dict[str, Any], Any], None]) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            keep(kwargs, result)
            return result

        object.__setattr__(owner, name, wrapped)


def watch(policy: SmolVLAPolicy) -> Recorder:
    """Hooks on every stage. LeRobot calls the parts of layers: what one gives is what the next one takes."""
    record, model = Recorder(), policy.model
    vlm, expert = model.vlm_with_expert.get_vlm_model(), model.vlm_with_expert.lm_expert
    record.output("vision.embeddings", vlm.vision_model.embeddings)
    for i, layer in enumerate(vlm.vision_model.encoder.layers):
        record.output(f"vision.layer{i}", layer)
    record.output("vision.post_layernorm", vlm.vision_model.post_layernorm)
    record.output("vision.connector", vlm.connector)
    for stem, stack in (("prefix.", vlm.text_model), ("suffix.step0.", expert)):
        ends = [layer.input_layernorm for layer in stack.layers[1:]] + [stack.norm]
        for i, norm in enumerate(ends):
            record.input(f"{stem}layer{i}", norm)
    record.output("suffix.step0.final_norm", expert.norm)
    for i in range(1, DEPTH, 2):
        for part in "kv":
            record.output(f"cross.{i}.{part}", getattr(expert.layers[i].self_attn, f"{part}_proj"))

    def prefix(_: dict[str, Any], result: Any) -> None:
        for name, tensor in zip(("embs", "pad_masks", "att_masks"), result, strict=True):
            record.seen[f"prefix.{name}"].append(tensor.clone())

    def cache(arguments: dict[str, Any], result: Any) -> None:
        if arguments["past_key_values"] is None:
            for i, layer in enumerate(result[1].layers):
                record.seen[f"prefix.kv.{i}.k"].append(layer.keys.clone())
                record.seen[f"prefix.kv.{i}.v"].append(layer.values.clone())

    def step(arguments: dict[str, Any], result: torch.Tensor) -> None:
        record.seen["x_t"].append(arguments["x_t"].clone())
        record.seen["v_t"].append(result.clone())

    record.method(model, "embed_prefix", prefix)
    record.method(model.vlm_with_expert, "forward", cache)
    record.method(model, "embed_suffix", lambda _, r: record.seen["suffix.t1.embs"].append(r[0].clone()))
    record.method(model, "denoise_step", step)
    record.method(policy, "prepare_images", lambda _, r: record.seen["in.images"].extend(r[0]))
    return record


def observation(random: torch.Generator) -> dict[str, torch.Tensor]:
    """What the robot delivers: uint8 [h, w, 3] and the state in its units."""

    def picture(h: int, w: int) -> torch.Tensor:
        return torch.randint(0, 256, (h, w, 3), generator=random, dtype=torch.uint8)

    state = 40 * torch.randn(STATE_DIM, generator=random)
    return {IMAGES + "top": picture(40, 64), IMAGES + "wrist": picture(50, 36), "observation.state": state}


def statistics(random: torch.Generator, width: int) -> dict[str, torch.Tensor]:
    mean, std = 20 * torch.randn(width, generator=random), 5 + 30 * torch.rand(width, generator=random)
    return {"mean": mean, "std": std, "min": mean - 2 * std, "max": mean + 2 * std}


def oracle_of(
    policy: SmolVLAPolicy, processors: Any, raw: dict[str, torch.Tensor], noise: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Every tensor of oracle.safetensors."""
    preprocess, postprocess = processors
    batch = {k: v.permute(2, 0, 1) / 255 if v.ndim == 3 else v for k, v in raw.items()}
    batch = preprocess({**batch, "task": TASK})
    record = watch(policy)
    actions = policy.predict_action_chunk(dict(batch), noise=noise)
    seen = {k: v for k, v in record.seen.items() if k not in ("x_t", "v_t", "in.images")}
    out = {("raw.state" if k == "observation.state" else f"raw.{k}"): v for k, v in raw.items()}
    out |= {f"in.image{i}": image for i, image in enumerate(record.seen["in.images"])}
    out |= {
        "in.state_normalized": batch["observation.state"],
        "in.tokens": batch["observation.language.tokens"],
        "in.token_mask": batch["observation.language.attention_mask"].bool(),
        "in.noise": noise,
    }
    for name, calls in seen.items():
        stems = ("vision.",)
        if name.startswith(stems):
            out |= {f"{name}.cam{i}": tensor for i, tensor in enumerate(calls[:2])}
        else:
            out[name] = calls[0]
    out |= {name: torch.stack(record.seen[name], dim=1) for name in ("x_t", "v_t")}
    out["actions_normalized_padded"] = record.seen["x_t"][-1] - 0.1 * record.seen["v_t"][-1]
    assert torch.allclose(out["actions_normalized_padded"][..., :ACTION_DIM], actions, atol=1e-6)
    out["actions_unnormalized"] = postprocess(actions)
    policy.config.num_steps = 5
    out["actions_unnormalized.steps5"] = postprocess(policy.predict_action_chunk(dict(batch), noise=noise))
    policy.config.num_steps = 10
    return {k: v.detach().contiguous().clone() for k, v in out.items()}


def write_dims(folder: Path) -> None:
    """What nothing in config.json says."""
    names = ("width", "depth", "mlp_dim", "num_heads", "num_kv_heads", "head_dim")
    keys = ["hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads"]
    keys += ["num_key_value_heads", "head_dim"]
    dims = {
        "vision": VISION,
        "scale": SCALE,
        "text": {name: TEXT[key] for name, key in zip(names, keys, strict=True)},
        "vocab": TEXT["vocab_size"],
        "rms_eps": RMS_EPS,
    }
    (folder / "model_dims.json").write_text(json.dumps(dims, indent=2) + "\n")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    random = torch.Generator().manual_seed(20261201)
    make_tokenizer(folder)
    replace_downloads(folder)
    policy = SmolVLAPolicy(make_config()).eval()
    fill(policy, random)
    stats = {
        "observation.state": statistics(random, STATE_DIM),
        "action": statistics(random, ACTION_DIM),
    }
    processors = make_smolvla_pre_post_processors(policy.config, stats)
    policy.save_pretrained(folder)
    for processor in processors:
        processor.save_pretrained(folder)
    write_dims(folder)
    raw = observation(random)
    noise = torch.randn(1, policy.config.chunk_size, policy.config.max_action_dim, generator=random)
    tensors = oracle_of(policy, processors, raw, noise)

    again = SmolVLAPolicy.from_pretrained(folder).eval()
    pre_post = make_pre_post_processors(again.config, pretrained_path=str(folder))
    read_back = oracle_of(again, pre_post, raw, noise)
    assert all(torch.equal(read_back[k], v) for k, v in tensors.items())
    save_file(tensors, folder / "oracle.safetensors", {"task": TASK, "lerobot": "0.6.1"})


if __name__ == "__main__":
    main()
