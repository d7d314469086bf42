# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Camera images → patches: when these fail, the policy sees another picture than in training."""

from array import array
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels.errors import GraphError, ObservationError
from flashrt_kernels.image import fitted_size, patches_to_image, resize_to_patches
from flashrt_kernels.pixels import FORMATS, RawImage
from test.kernels.support import poisoned, seeds

# Bytes of one pixel of colour (r, g, b) in each encoding.
ENCODE = {
    "rgb8": lambda r, g, b: (r, g, b),
    "bgr8": lambda r, g, b: (b, g, r),
    "rgba8": lambda r, g, b: (r, g, b, 77),
    "bgra8": lambda r, g, b: (b, g, r, 77),
    "mono8": lambda r, g, b: (r,),
}


def to_patches(raw: RawImage, height: int, width: int, patch: int, filter: str = "bilinear") -> np.ndarray:
    """Through buffers with a poisoned output and garbage behind the image."""
    pixels = torch.full((raw.bytes + 100,), 200, dtype=torch.uint8)
    info = torch.zeros(4, dtype=torch.int32)
    raw.write(pixels.numpy(), info.numpy())
    features = 3 * patch**2
    out = poisoned((height * width // patch**2, -(-features // 8) * 8), torch.float32)
    sizes = {"height": height, "width": width, "patch": patch}
    resize_to_patches(pixels=pixels, info=info, out=out, filter=filter, **sizes)
    assert (out[:, features:] == 0).all()  # meets weights of 0, but NaN · 0 is NaN
    return out[:, :features].numpy()


def to_image(raw: RawImage, height: int, width: int, patch: int, filter: str = "bilinear") -> np.ndarray:
    """float [height, width, 3] in [−1, 1]."""
    grid = to_patches(raw, height, width, patch, filter).reshape(
        height // patch, width // patch, 3, patch, patch
    )
    return grid.transpose(0, 3, 1, 4, 2).reshape(height, width, 3)


def resize_with_pad(rgb: np.ndarray, height: int, width: int) -> np.ndarray:
    """What LeRobot 0.6.1 does, through torch's own bilinear resize: float [height, width, 3] in [−1, 1]."""
    rows, columns, _ = rgb.shape
    ratio = max(columns / width, rows / height)
    size = (int(rows / ratio), int(columns / ratio))
    x = torch.from_numpy(rgb / np.float32(255)).permute(2, 0, 1)[None]
    x = F.interpolate(x, size=size, mode="bilinear", align_corners=False).clamp(0, 1)
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    x = F.pad(x, (left, width - size[1] - left, top, height - size[0] - top))
    return (x[0].permute(1, 2, 0) * 2 - 1).numpy()


# R9: 4:3, 16:9, portrait, odd sizes, very wide, already right, smaller than the model's, one pixel.
SIZES = [(48, 64), (108, 192), (192, 108), (37, 53), (9, 90), (56, 56), (40, 64), (1, 1)]


@pytest.mark.parametrize("size", SIZES)
def test_R9_resize_is_that_of_the_training_code(size: tuple[int, int]) -> None:
    """Stretching or cropping instead of padding moves every object."""
    rgb = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    got = to_image(RawImage.from_array(rgb), 56, 56, 14)
    np.testing.assert_allclose(got, resize_with_pad(rgb, 56, 56), rtol=0, atol=2e-6)


def triangle(count: int, size: int) -> np.ndarray:
    """Weights [size, count] of a triangle that reaches one new pixel to each side, at least one old one."""
    ratio = count / size
    centre = (np.arange(size)[:, None] + 0.5) * ratio - 0.5
    weights = np.maximum(1 - np.abs(np.arange(count) - centre) / max(ratio, 1), 0)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("encoding", ["rgb8", "bgra8", "mono8"])
@pytest.mark.parametrize("size", SIZES)
def test_R9_antialias_is_that_of_openpi(size: tuple[int, int], encoding: str) -> None:
    """Filtered before it shrinks, in whole levels: fine texture would alias."""
    pixel = FORMATS[encoding]
    data = np.random.default_rng(0).integers(0, 256, (*size, pixel.channels), np.uint8)
    raw = RawImage(data.tobytes(), *size, 0, encoding)
    got = (to_image(raw, 56, 56, 14, filter="antialias") + 1) * 127.5
    height, width = fitted_size(*size, 56, 56)
    planes = data[..., list(pixel.rgb)].astype(np.float64)
    exact = np.einsum("hr,rcx,wc->hwx", triangle(size[0], height), planes, triangle(size[1], width))
    top, left = (56 - height) // 2, (56 - width) // 2
    part = got[top : top + height, left : left + width]
    assert np.abs(part - exact).max() <= 0.5 + 1e-3
    assert np.abs(got - np.rint(got)).max() <= 1e-4
    assert got.sum() == pytest.approx(part.sum(), abs=1e-2)  # black around it


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from(sorted(FORMATS)), st.integers(0, 9), seeds)
@settings(deadline=None)
def test_any_size_encoding_and_stride(
    rows: int, columns: int, encoding: str, padding: int, seed: int
) -> None:
    """Encoding and row stride never change what the model sees."""
    rng = np.random.default_rng(seed)
    pixel = FORMATS[encoding]
    step = columns * pixel.channels + padding
    data = rng.integers(0, 256, rows * step, np.uint8)
    packed = data.reshape(rows, step)[:, : columns * pixel.channels].reshape(rows, columns, pixel.channels)
    rgb = packed[:, :, list(pixel.rgb)]
    if min(fitted_size(rows, columns, 28, 42)) < 1:
        return
    raw = RawImage(data.tobytes(), rows, columns, step, encoding)
    want = resize_with_pad(np.ascontiguousarray(rgb), 28, 42)
    np.testing.assert_allclose(to_image(raw, 28, 42, 7), want, rtol=0, atol=3e-6)


@pytest.mark.parametrize("encoding", [name for name in FORMATS if name != "mono8"])
def test_R3_red_is_red_in_every_encoding(encoding: str) -> None:
    """A policy trained on red blocks must not look for blue ones."""
    data = bytes(ENCODE[encoding](255, 0, 0)) * 4
    image = to_image(RawImage(data, 2, 2, 0, encoding), 28, 28, 14)
    np.testing.assert_allclose(image, np.broadcast_to([1.0, -1.0, -1.0], (28, 28, 3)), atol=1e-6)


def test_R3_mono_is_grey() -> None:
    """One channel becomes three."""
    image = to_image(RawImage(bytes([51] * 4), 2, 2, 0, "mono8"), 28, 28, 14)
    np.testing.assert_allclose(image, np.full((28, 28, 3), 2 * 51 / 255 - 1), atol=1e-6)


def test_R1_rows_are_padded() -> None:
    """Without the stride every row shifts and the picture shears; the last row's padding may be missing."""
    rows = [bytes(ENCODE["rgb8"](value, 0, 0)) * 2 + b"\xff\xff" for value in (0, 255)]
    image = to_image(RawImage(b"".join(rows)[:-2], 2, 2, 8, "rgb8"), 28, 28, 14)
    assert (image[0, :, 0] == -1).all()
    assert (image[-1, :, 0] == 1).all()
    assert (image[:, :, 1:] == -1).all()


def test_R1_a_single_row_may_have_any_step() -> None:
    """Nothing follows the only row, and a uint32 step would not fit the kernel's int32."""
    raw = RawImage(bytes(range(30)), 1, 10, 2**32 - 1, "rgb8")
    info = np.zeros(4, np.int32)
    raw.write(np.zeros(30, np.uint8), info)
    assert info.tolist() == [1, 10, 30, FORMATS["rgb8"].code]


def test_missing_camera_is_minus_one_everywhere() -> None:
    """LeRobot feeds −1 for cameras that are not there."""
    out = poisoned((4, 592), torch.float32)
    empty = torch.zeros(10, dtype=torch.uint8), torch.zeros(4, dtype=torch.int32)
    resize_to_patches(pixels=empty[0], info=empty[1], out=out, height=28, width=28, patch=14)
    assert out[:, :588].eq(-1).all()


def test_patches_are_row_major_with_channel_y_x_features() -> None:
    """The order in which a convolution's weight flattens."""
    rgb = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    patches = to_patches(RawImage.from_array(rgb), 4, 6, 2)
    want = rgb[2:4, 4:6].transpose(2, 0, 1).reshape(-1) / 127.5 - 1
    np.testing.assert_allclose(patches[-1], want, atol=1e-6)


def test_patches_in_blocks() -> None:
    """GR00T joins 2×2 patches that follow each other: they must be neighbours."""
    rgb = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    sizes = {"height": 8, "width": 12, "patch": 2}
    raw = RawImage.from_array(rgb)
    rows = torch.from_numpy(to_patches(raw, 8, 12, 2)).view(2, 2, 3, 2, 12)  # [by, dy, bx, dx, feature]
    pixels, info = torch.empty(raw.bytes, dtype=torch.uint8), torch.empty(4, dtype=torch.int32)
    raw.write(pixels.numpy(), info.numpy())
    blocks = resize_to_patches(pixels=pixels, info=info, **sizes, merge=2, out_dtype=torch.float32)
    assert torch.equal(blocks[:, :12].view(2, 3, 2, 2, 12), rows.permute(0, 2, 1, 3, 4))
    np.testing.assert_array_equal(patches_to_image(blocks.numpy(), **sizes, merge=2), rgb)


def test_a_side_that_blocks_do_not_fill_is_refused() -> None:
    """Half a block would leave patches that no token holds."""
    given = {"pixels": torch.zeros(3, dtype=torch.uint8), "info": torch.zeros(4, dtype=torch.int32)}
    out = poisoned((6, 16), torch.float32)
    with pytest.raises(GraphError, match="resize_to_patches: out"):
        resize_to_patches(**given, out=out, height=6, width=4, patch=2, merge=2)


@pytest.mark.parametrize("size", [(5, 9), (28, 28), (40, 12)])
def test_unscaled_pixels_lie_in_the_centre(size: tuple[int, int]) -> None:
    """What an earlier kernel has resized must not be resized again; what is too large is cut off."""
    rgb = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    want = np.zeros((28, 28, 3), np.uint8)
    part = rgb[:28, :28]
    top, left = ((28 - length) // 2 for length in part.shape[:2])
    want[top : top + part.shape[0], left : left + part.shape[1]] = part
    got = (to_image(RawImage.from_array(rgb), 28, 28, 14, filter="none") + 1) * 127.5
    np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_R4_model_image_shows_what_went_in(dtype: torch.dtype) -> None:
    """The debug picture must be the model's, to one level of uint8 in bf16."""
    rgb = np.random.default_rng(0).integers(0, 256, (28, 28, 3), np.uint8)
    patches = torch.from_numpy(to_patches(RawImage.from_array(rgb), 28, 28, 14)).to(dtype).float().numpy()
    seen = patches_to_image(patches, 28, 28, 14)
    assert np.abs(seen.astype(int) - rgb).max() <= (1 if dtype == torch.bfloat16 else 0)


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(12)),
        bytearray(range(12)),
        memoryview(bytes(range(12))),
        array("B", range(12)),
        np.arange(12, dtype=np.uint8),
        np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    ],
    ids=lambda data: type(data).__name__,
)
def test_any_byte_container(data: Any) -> None:
    """rclpy gives array.array, rosbags NumPy arrays, others bytes."""
    want = to_image(RawImage(bytes(range(12)), 2, 2, 6, "rgb8"), 28, 28, 14)
    np.testing.assert_array_equal(to_image(RawImage(data, 2, 2, 6, "rgb8"), 28, 28, 14), want)


def test_arrays_of_any_memory_layout() -> None:
    """OpenCV users flip BGR to RGB with [..., ::-1], which is a view with a negative stride."""
    bgr = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    flipped = to_image(RawImage.from_array(bgr[..., ::-1]), 28, 28, 14)
    np.testing.assert_array_equal(flipped, to_image(RawImage(bgr, 5, 7, 0, "bgr8"), 28, 28, 14))


BAD: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "encoding": ((b"\0" * 12, 2, 2, 6, "yuv422"), ("'yuv422'", "rgb8, bgr8, rgba8, bgra8, mono8")),
    "step": ((b"\0" * 12, 2, 2, 5, "rgb8"), ("2×2", "step 5", "at least 6")),
    "length": ((b"\0" * 11, 2, 2, 6, "rgb8"), ("11 bytes", "at least 12")),
    "height": ((b"", 0, 2, 6, "rgb8"), ("2×0", "at least 1×1")),
    "width": ((b"", 2, 0, 0, "rgb8"), ("0×2", "at least 1×1")),
    "wrapped": ((b"\0" * 12, np.uint32(2**31 + 1), 2, np.uint32(2), "mono8"), ("12 bytes", "4294967298")),
    "fraction": ((b"\0" * 12, 2.5, 2, 6, "rgb8"), ("'float'", "integer sizes")),
    "no bytes": (([1] * 12, 2, 2, 6, "rgb8"), ("'list'", "expected bytes")),
    "negative": ((b"\0" * 12, 2, -2, 0, "rgb8"), ("-2×2", "at least 1×1")),
}


@pytest.mark.parametrize("case", BAD)
def test_R2_contradicting_sizes_are_refused(case: str) -> None:
    """Reading past the end of a message would show garbage or crash."""
    arguments, words = BAD[case]
    with pytest.raises(ObservationError) as error:
        RawImage(*arguments)
    for word in words:
        assert word in str(error.value)


def test_data_with_gaps_is_refused() -> None:
    """A cropped array is not what its bytes say."""
    with pytest.raises(ObservationError, match="expected contiguous bytes"):
        RawImage(np.zeros((2, 4, 3), np.uint8)[:, :2], 2, 2, 0, "rgb8")


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3)), [[1]], None]
)
def test_arrays_that_are_not_rgb_are_refused(pixels: Any) -> None:
    """A float or RGBA array would be read as other pixels."""
    with pytest.raises(ObservationError, match=r"expected uint8 \[height, width, 3\]"):
        RawImage.from_array(pixels)
