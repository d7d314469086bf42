# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Camera images → patches on the GPU: when these fail, the policy sees another picture than on the CPU."""

from typing import Literal

import numpy as np
import pytest
import torch

from flashrt_kernels.image import resize_to_patches
from flashrt_kernels.pixels import FORMATS, RawImage
from test.cuda.support import gpu, requires_cuda

pytestmark = requires_cuda
SIZES = [
    (480, 640),
    (1200, 1920),
    (720, 1280),
    (640, 480),
    (37, 53),
    (9, 90),
    (224, 224),
    (1, 1),
    (100, 30),
    (60, 7680),
]
Filter = Literal["bilinear", "antialias"]


def both(
    raw: RawImage | None, size: tuple[int, int, int], filter: Filter, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Patches from the kernel and from the reference on the CPU, over poisoned outputs."""
    from flashrt_kernels.cuda.backend import run

    height, width, patch = size
    pixels = torch.full(((raw.bytes if raw else 0) + 100,), 200, dtype=torch.uint8)
    info = torch.zeros(4, dtype=torch.int32)
    if raw:
        raw.write(pixels.numpy(), info.numpy())
    shape = (height * width // patch**2, (3 * patch**2 + 7) // 8 * 8)
    ours, want = (torch.full(shape, torch.nan, dtype=dtype, device=device) for device in ("cuda", "cpu"))
    sizes = {"height": height, "width": width, "patch": patch}
    run(resize_to_patches, gpu(), pixels=pixels.cuda(), info=info.cuda(), out=ours, filter=filter, **sizes)
    resize_to_patches(pixels=pixels, info=info, out=want, filter=filter, **sizes)
    return ours.cpu().float(), want.float()


def image(rows: int, columns: int, encoding: str = "rgb8", padding: int = 0, seed: int = 0) -> RawImage:
    """Random pixels."""
    step = columns * FORMATS[encoding].channels + padding
    data = np.random.default_rng(seed).integers(0, 256, rows * step, np.uint8)
    return RawImage(data, rows, columns, step, encoding)


def same(ours: torch.Tensor, want: torch.Tensor, filter: Filter) -> None:
    """Equal; a whole level may tip over where the fp32 sum lies on a half, but hardly ever."""
    assert torch.isfinite(ours).all()
    off = (ours - want).abs()
    if filter == "bilinear":
        assert off.max() <= 1e-6
    else:
        assert off.max() <= 2 / 255 + 1e-6
        assert (off > 1e-6).float().mean() < 1e-3


@pytest.mark.parametrize("filter", ["bilinear", "antialias"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_R9_resize(size: tuple[int, int], filter: Filter) -> None:
    """4:3, 16:9, portrait, odd sizes, very wide, already right, one pixel, a panorama."""
    same(*both(image(*size), (224, 224, 14), filter, torch.float32), filter)


@pytest.mark.parametrize("filter", ["bilinear", "antialias"])
@pytest.mark.parametrize("encoding", sorted(FORMATS))
@pytest.mark.parametrize("padding", [0, 5])
def test_any_encoding_stride_and_patch(encoding: str, padding: int, filter: Filter) -> None:
    """Encoding and row stride never change what the model sees."""
    for seed, (rows, columns) in enumerate([(41, 67), (90, 31), (17, 17)]):
        raw = image(rows, columns, encoding, padding, seed)
        same(*both(raw, (28, 42, 7), filter, torch.float32), filter)


@pytest.mark.parametrize("filter", ["bilinear", "antialias"])
def test_patches_wider_than_a_warp(filter: Filter) -> None:
    """Vision towers with 40-pixel patches."""
    same(*both(image(90, 133), (80, 120, 40), filter, torch.float32), filter)


def test_bf16_patches() -> None:
    """Rounded once, as the CPU rounds."""
    ours, want = both(image(480, 640), (224, 224, 14), "bilinear", torch.bfloat16)
    assert (ours - want).abs().max() <= 2**-8
    assert (ours != want).float().mean() < 1e-3


@pytest.mark.parametrize("filter", ["bilinear", "antialias"])
def test_missing_camera_is_minus_one_everywhere(filter: Filter) -> None:
    """LeRobot feeds −1 for cameras that are not there; the padding of each patch stays 0."""
    ours, want = both(None, (28, 28, 14), filter, torch.float32)
    assert torch.equal(ours, want)


def test_a_thin_strip_is_black() -> None:
    """Nothing of it remains inside the square."""
    ours, want = both(image(1, 900), (28, 28, 14), "antialias", torch.float32)
    assert torch.equal(ours, want)
