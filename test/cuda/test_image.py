# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Camera images → patches on the GPU: when these fail, the policy sees another picture than on the CPU."""

from typing import Any, Literal

import numpy as np
import pytest
import torch

from flashrt_kernels.image import resize_to_patches
from flashrt_kernels.image_resample import resample
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
Filter = Literal["bilinear", "antialias", "none"]


def both(
    raw: RawImage | None, size: tuple[int, int, int], filter: Filter, dtype: torch.dtype, **more: Any
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
    sizes = {"height": height, "width": width, "patch": patch, **more}
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
    if filter != "antialias":
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


@pytest.mark.parametrize("filter", ["bilinear", "antialias", "none"])
@pytest.mark.parametrize("place", ["centre", "end"])
@pytest.mark.parametrize("merge", [1, 2])
def test_blocks_and_places(merge: int, place: str, filter: Filter) -> None:
    """Patches of GR00T in 2×2 blocks, on a grid that is no square; SmolVLA's border on two sides."""
    for rows, columns in ((41, 67), (200, 31), (56, 84)):
        raw = image(rows, columns)
        same(*both(raw, (56, 84, 14), filter, torch.float32, place=place, merge=merge), filter)


# What the rules ask for, and the corners: one axis grows, exactly 2 : 1, whole ratios, no room, 60 : 1.
STAGES: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((480, 640), {"height": 224, "width": 224, "fitting": "inside"}),
    ((480, 640), {"height": 256, "width": 256}),
    ((256, 340), {"height": 252, "width": 336}),
    ((480, 640), {"height": 284, "width": 369, "fitting": "shortest", "edge": 256, "square": False}),
    ((720, 1280), {"height": 284, "width": 284, "fitting": "shortest", "edge": 256, "square": True}),
    ((256, 341), {"height": 284, "width": 368, "fitting": "shortest", "edge": 256, "crop": 0.95}),
    ((256, 256), {"height": 256, "width": 256, "crop": 230 / 256, "crop_size": "round"}),
    ((512, 512), {"height": 256, "width": 256}),
    ((768, 512), {"height": 256, "width": 256}),
    ((40, 40), {"height": 20, "width": 60}),
    ((1, 900), {"height": 28, "width": 28, "fitting": "inside"}),
    ((100, 200), {"height": 30, "width": 50, "fitting": "shortest", "edge": 30}),
    ((1200, 1920), {"height": 20, "width": 32}),
    ((1, 1), {"height": 17, "width": 5}),
]


def resampled(raw: RawImage | None, filter: str, parameters: dict[str, Any]) -> tuple[float, int]:
    """Share of levels that differ from the reference on the CPU, and by how much."""
    from flashrt_kernels.cuda.backend import run

    pixels = torch.full(((raw.bytes if raw else 0) + 100,), 200, dtype=torch.uint8)
    info = torch.zeros(4, dtype=torch.int32)
    if raw:
        raw.write(pixels.numpy(), info.numpy())
    room = 3 * parameters["height"] * parameters["width"]
    ours, want = (torch.full((room,), 99, dtype=torch.uint8, device=device) for device in ("cuda", "cpu"))
    our_info, want_info = (torch.full((4,), -1, dtype=torch.int32, device=d) for d in ("cuda", "cpu"))
    arguments = {"pixels": pixels.cuda(), "info": info.cuda(), "out": ours, "out_info": our_info}
    run(resample, gpu(), **arguments, filter=filter, **parameters)
    resample(pixels=pixels, info=info, out=want, out_info=want_info, filter=filter, **parameters)
    assert our_info.tolist() == want_info.tolist()
    off = (ours.cpu().int() - want.int()).abs()
    return float((off > 0).float().mean()), int(off.max())


@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "area"])
@pytest.mark.parametrize("stage", STAGES, ids=str)
def test_R9_resample(stage: tuple[tuple[int, int], dict[str, Any]], filter: str) -> None:
    """Integers on both devices; only sums of areas in fp32 may tip over a level, hardly ever."""
    size, parameters = stage
    share, most = resampled(image(*size), filter, parameters)
    assert most <= 1
    assert share <= (5e-4 if filter == "area" else 1e-6)


@pytest.mark.parametrize("filter", ["bicubic", "area"])
@pytest.mark.parametrize("encoding", sorted(FORMATS))
def test_resample_of_any_encoding_and_stride(encoding: str, filter: str) -> None:
    """As the camera delivers it, with padded rows."""
    share, most = resampled(image(41, 67, encoding, 5), filter, {"height": 28, "width": 42, "square": True})
    assert most <= 1
    assert share <= 5e-4


def test_a_missing_camera_stays_missing() -> None:
    """rows = 0 reaches the kernel that fills in −1; nothing is read or written."""
    assert resampled(None, "area", {"height": 32, "width": 32}) == (0.0, 0)
