# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The Triton engine published with "Running VLAs at Real-time Speed" (Dexmal), where `pi05_infer` imports.

It bakes the prompt in when it is built; its weights are [inputs, outputs], rotary pairs side by side and
Gemma's norm weights multiplied into the matrices that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.device.inputs import Observation
from benchmarks.device.peers import LeftOut, Task
from benchmarks.device.timing import Sample, gpu_milliseconds
from flashrt_kernels.checkpoint.layout import EMBEDDING, EXPERT, PROJECTOR, VISION, VLM
from flashrt_kernels.flow import time_embedding


class TritonEngine:
    """One CUDA graph of Triton kernels, bf16."""

    name = "Triton engine, bf16, one CUDA graph"
    what = "normalised images on the device → normalised actions on the device; the prompt is fixed at build"

    def __init__(self, task: Task) -> None:
        try:
            import pi05_infer
        except ImportError as error:
            raise LeftOut(f"not installed: {error}") from None
        self.task = task
        self.engine: Any = pi05_infer.Pi05Inference(
            weights(task), task.case.views, task.case.horizon, discrete_state_input=False
        )

    def measure(self, observation: Observation) -> Sample:
        self.write(observation)
        return {"gpu": gpu_milliseconds(self.engine.infer_graph.replay)}

    def write(self, observation: Observation) -> None:
        """Its `forward` up to the replay. The noise buffer becomes the actions: written every time."""
        b = self.engine.buffers
        start, tokens = self.task.case.views * self.task.dims.vision.patches, self.task.case.prompt
        b["encoder_x"][start : start + tokens].copy_(self.engine.weights["language_embeds"])
        b["valid_encoder_len"].fill_(start + tokens)
        b["decoder_rope_weights"].copy_(self.engine.get_decoder_rope_weights(tokens))
        b["observation_images_normalized"].copy_(self.task.images(observation).permute(0, 2, 3, 1))
        b["diffusion_noise"].copy_(self.task.noise(observation))
        torch.cuda.synchronize()

    def actions(self, observation: Observation) -> np.ndarray:
        self.write(observation)
        self.engine.infer_graph.replay()
        return self.engine.buffers["diffusion_noise"].float().cpu().numpy()

    def close(self) -> None:
        self.engine = None


def weights(task: Task) -> dict[str, torch.Tensor]:
    """The file's weights under the engine's names."""
    return {**vision(task), **language(task), **expert(task)}


def stacked(count: int, make: Callable[[int], torch.Tensor]) -> torch.Tensor:
    return torch.stack([make(i) for i in range(count)])


def turned(task: Task, key: str, heads: int) -> torch.Tensor:
    """[outputs, inputs] of a rotary projection → [inputs, outputs], element i next to element i + d/2."""
    return task.tensors[key].unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2).t()


def qkv(task: Task, key: str) -> torch.Tensor:
    heads, kv_heads = task.dims.vlm.num_heads, task.dims.vlm.num_kv_heads
    q, k = turned(task, key + "q_proj.weight", heads), turned(task, key + "k_proj.weight", kv_heads)
    return torch.cat([q, k, task.tensors[key + "v_proj.weight"].t()], dim=1)


def vision(task: Task) -> dict[str, torch.Tensor]:
    t, layers = task.tensors, task.dims.vision.num_hidden_layers
    names = {
        "attn_o": "self_attn.out_proj",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
        "pre_attn_norm": "layer_norm1",
        "pre_ffn_norm": "layer_norm2",
    }

    def key(i: int, name: str) -> str:
        return f"{VISION}encoder.layers.{i}.{name}"

    def joined(i: int, part: str) -> torch.Tensor:
        return torch.cat([t[key(i, f"self_attn.{name}_proj.{part}")] for name in "qkv"])

    found = {
        "vision_patch_embedding_w": t[VISION + "embeddings.patch_embedding.weight"].permute(2, 3, 1, 0),
        "vision_patch_embedding_b": t[VISION + "embeddings.patch_embedding.bias"],
        "vision_position_embedding": t[VISION + "embeddings.position_embedding.weight"],
        "vision_attn_qkv_w": stacked(layers, lambda i: joined(i, "weight").t()),
        "vision_attn_qkv_b": stacked(layers, lambda i: joined(i, "bias")),
        "vision_final_norm_w": t[VISION + "post_layernorm.weight"],
        "vision_final_norm_b": t[VISION + "post_layernorm.bias"],
        "encoder_multi_modal_projector_w": t[PROJECTOR + "weight"].t(),
        "encoder_multi_modal_projector_b": t[PROJECTOR + "bias"],
    }
    for theirs, ours in names.items():
        made = [(t[key(i, ours + ".weight")], t[key(i, ours + ".bias")]) for i in range(layers)]
        found[f"vision_{theirs}_w"] = torch.stack([w.t() if w.ndim == 2 else w for w, _ in made])
        found[f"vision_{theirs}_b"] = torch.stack([b for _, b in made])
    return found


def language(task: Task) -> dict[str, torch.Tensor]:
    t, layers = task.tensors, task.dims.vlm.depth

    def gain(i: int, name: str) -> torch.Tensor:
        return 1 + t[f"{VLM}layers.{i}.{name}.weight"].float()[:, None]  # [inputs, 1]

    def mlp(i: int, name: str) -> torch.Tensor:
        return t[f"{VLM}layers.{i}.mlp.{name}_proj.weight"].t()

    embeds = t[EMBEDDING][task.ids(task.example)].float() * math.sqrt(task.dims.vlm.width)
    return {
        "encoder_attn_qkv_w": stacked(
            layers, lambda i: qkv(task, f"{VLM}layers.{i}.self_attn.") * gain(i, "input_layernorm")
        ),
        "encoder_attn_o_w": stacked(layers, lambda i: t[f"{VLM}layers.{i}.self_attn.o_proj.weight"].t()),
        "encoder_ffn_gate_w": stacked(layers, lambda i: mlp(i, "gate") * gain(i, "post_attention_layernorm")),
        "encoder_ffn_up_w": stacked(layers, lambda i: mlp(i, "up") * gain(i, "post_attention_layernorm")),
        "encoder_ffn_down_w": stacked(layers, lambda i: mlp(i, "down")),
        "language_embeds": embeds,
    }


def expert(task: Task) -> dict[str, torch.Tensor]:
    t, dims, steps = task.tensors, task.dims.action_expert, task.prompts.steps
    times = torch.tensor([1 - step / steps for step in range(steps)], dtype=torch.float32)
    found = {
        "decoder_time_embeds": time_embedding(time=times, width=dims.width),
        "decoder_attn_qkv_w": stacked(dims.depth, lambda i: qkv(task, f"{EXPERT}layers.{i}.self_attn.")),
    }
    per_layer = {
        "attn_o": "self_attn.o_proj",
        **{f"ffn_{n}": f"mlp.{n}_proj" for n in ("gate", "up", "down")},
    }
    for theirs, ours in per_layer.items():
        found[f"decoder_{theirs}_w"] = torch.stack(
            [t[f"{EXPERT}layers.{i}.{ours}.weight"].t() for i in range(dims.depth)]
        )
    for theirs, ours in {"attn": "input_layernorm", "ffn": "post_attention_layernorm"}.items():
        keys = [f"{EXPERT}layers.{i}.{ours}.dense." for i in range(dims.depth)]
        found[f"decoder_pre_{theirs}_norm_mod_w"] = torch.stack([t[key + "weight"].t() for key in keys])
        found[f"decoder_pre_{theirs}_norm_mod_b"] = torch.stack([t[key + "bias"] for key in keys])
    single = {
        "time_mlp_in": "time_mlp_in",
        "time_mlp_out": "time_mlp_out",
        "action_in_proj": "action_in_proj",
        "action_out_proj": "action_out_proj",
        "final_norm_mod": EXPERT + "norm.dense",
    }
    for theirs, ours in single.items():
        found[f"decoder_{theirs}_w"] = t[ours + ".weight"].t()
        found[f"decoder_{theirs}_b"] = t[ours + ".bias"]
    return found
