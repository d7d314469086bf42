# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Images resized in whole levels, against the libraries that training code calls."""

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from flashrt_kernels.image_resample import resample, result_size, window_of
from flashrt_kernels.pixels import FORMATS, RawImage
from test.kernels.support import seeds

PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def random_image(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Noise: every weight that is wrong shows."""
    return np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), np.uint8)


def resampled(image: np.ndarray | RawImage, height: int, width: int, **parameters: Any) -> np.ndarray:
    """uint8 [height, width, 3] from `resample`, garbage around its input and output; [0, 0, 3]: missing."""
    raw = image if isinstance(image, RawImage) else RawImage.from_array(image)
    pixels = torch.full((raw.bytes + 100,), 200, dtype=torch.uint8)
    info = torch.zeros(4, dtype=torch.int32)
    raw.write(pixels.numpy(), info.numpy())
    out = torch.full((3 * height * width,), 99, dtype=torch.uint8)
    out_info = torch.full((4,), -1, dtype=torch.int32)
    resample(pixels=pixels, info=info, out=out, out_info=out_info, height=height, width=width, **parameters)
    rows, columns, step, code = out_info.tolist()
    assert (step, code) == (3 * columns, FORMATS["rgb8"].code)
    assert (out[3 * rows * columns :] == 99).all()  # nothing behind the image is touched
    return out[: 3 * rows * columns].view(rows, columns, 3).numpy()


def pillow(image: np.ndarray, height: int, width: int, filter: str) -> np.ndarray:
    """Along the rows first: today's Pillow begins with the columns where the height shrinks much more."""
    across = Image.fromarray(image).resize((width, image.shape[0]), PILLOW[filter])
    return np.asarray(across.resize((width, height), PILLOW[filter]))


def area(image: np.ndarray, height: int, width: int) -> np.ndarray:
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


# VGA into a square and into 224, full HD, enlarged, one axis only, a panorama, halved exactly, one pixel
SIZES = [
    ((480, 640), (168, 224)),
    ((480, 640), (256, 256)),
    ((1080, 1920), (256, 256)),
    ((37, 53), (56, 80)),
    ((60, 80), (60, 33)),
    ((60, 960), (16, 32)),
    ((128, 128), (64, 64)),
    ((1, 1), (5, 7)),
]


@pytest.mark.parametrize("filter", PILLOW)
@pytest.mark.parametrize(("size", "to"), SIZES)
def test_R9_is_pillow_bit_for_bit(size: tuple[int, int], to: tuple[int, int], filter: Any) -> None:
    """openpi and GR00T trained on Pillow's images; half a level everywhere would be a shift of our making."""
    image = random_image(*size)
    np.testing.assert_array_equal(resampled(image, *to, filter=filter), pillow(image, *to, filter))


sides = st.integers(1, 70)


@given(sides, sides, sides, sides, st.sampled_from(sorted(PILLOW)), seeds)
@settings(deadline=None, max_examples=60)
def test_R9_is_pillow_for_any_size(
    rows: int, columns: int, height: int, width: int, filter: Any, seed: int
) -> None:
    """Also where a filter reaches over both borders."""
    image = random_image(rows, columns, seed)
    got = resampled(image, height, width, filter=filter)
    np.testing.assert_array_equal(got, pillow(image, height, width, filter))


# shrinking: (rows, columns) → (height, width); whole ratios are summed in integers, 2 : 1 rounds halves up
SHRINK = [
    *SIZES[:3],
    ((720, 1280), (256, 455)),
    ((128, 128), (64, 64)),
    ((96, 144), (32, 36)),
    ((60, 60), (10, 10)),
]


@pytest.mark.parametrize(("size", "to"), SHRINK)
def test_R9_area_shrinks_as_opencv(size: tuple[int, int], to: tuple[int, int]) -> None:
    """GR00T trained on INTER_AREA; fp32 sums may tip over a level where they lie on a half, hardly ever."""
    image = random_image(*size)
    off = np.abs(resampled(image, *to, filter="area").astype(int) - area(image, *to))
    assert off.max() <= 1
    assert (off > 0).mean() <= 5e-4


@given(sides, sides, st.integers(0, 60), st.integers(0, 60), seeds)
@settings(deadline=None, max_examples=60)
def test_R9_area_grows_as_opencv_bit_for_bit(
    rows: int, columns: int, more_rows: int, more_columns: int, seed: int
) -> None:
    """What was cropped grows again: OpenCV then blends seams in 11 bits, another picture than bilinear."""
    image = random_image(rows, columns, seed)
    to = rows + more_rows, columns + more_columns
    np.testing.assert_array_equal(resampled(image, *to, filter="area"), area(image, *to))


@pytest.mark.parametrize("to", [(20, 60), (60, 20)])
def test_R9_area_with_one_axis_growing(to: tuple[int, int]) -> None:
    """OpenCV takes no area then, along neither axis."""
    image = random_image(40, 40)
    np.testing.assert_array_equal(resampled(image, *to, filter="area"), area(image, *to))


@pytest.mark.parametrize("filter", ["bicubic", "area"])
@pytest.mark.parametrize("encoding", sorted(FORMATS))
def test_R3_any_encoding_and_stride(encoding: str, filter: Any) -> None:
    """A policy trained on red blocks must not look for blue ones, nor at sheared pictures."""
    pixel, rows, columns = FORMATS[encoding], 20, 30
    step = columns * pixel.channels + 5
    data = np.random.default_rng(0).integers(0, 256, rows * step, np.uint8)
    packed = data.reshape(rows, step)[:, :-5].reshape(rows, columns, pixel.channels)
    rgb = np.ascontiguousarray(packed[..., list(pixel.rgb)])
    got = resampled(RawImage(data, rows, columns, step, encoding), 14, 18, filter=filter)
    np.testing.assert_array_equal(got, resampled(rgb, 14, 18, filter=filter))


def centre(length: int, kept: float, cut: Callable[[float], int]) -> slice:
    """The middle of an edge, cut off to the left where it cannot be exactly the middle."""
    size = cut(length * kept)
    start = (length - size) // 2
    return slice(start, start + size)


@pytest.mark.parametrize(("crop_size", "cut"), [("floor", int), ("round", round)])
@pytest.mark.parametrize("size", [(31, 54), (243, 323)])
def test_the_middle_is_cut_out(size: tuple[int, int], crop_size: Any, cut: Callable[[float], int]) -> None:
    """A crop that is off by one pixel moves every object; filters must not reach outside of it."""
    image = random_image(*size)
    part = np.ascontiguousarray(image[centre(size[0], 0.95, cut), centre(size[1], 0.95, cut)])
    got = resampled(image, 40, 50, filter="bicubic", crop=0.95, crop_size=crop_size)
    np.testing.assert_array_equal(got, pillow(part, 40, 50, "bicubic"))


@pytest.mark.parametrize("size", [(30, 51), (51, 30), (40, 40)])
def test_square_adds_black_to_the_shorter_edge(size: tuple[int, int]) -> None:
    """Letterboxed in training: stretched instead, everything would be as wide as it is not."""
    image = random_image(*size)
    edge = max(size)
    top, left = ((edge - length) // 2 for length in size)
    square = np.zeros((edge, edge, 3), np.uint8)
    square[top : top + size[0], left : left + size[1]] = image
    got = resampled(image, 25, 25, filter="bilinear", square=True)
    np.testing.assert_array_equal(got, pillow(square, 25, 25, "bilinear"))
    part = np.ascontiguousarray(square[centre(edge, 0.7, int), centre(edge, 0.7, int)])
    got = resampled(image, 25, 25, filter="bilinear", square=True, crop=0.7)
    np.testing.assert_array_equal(got, pillow(part, 25, 25, "bilinear"))


def test_sizes_are_those_of_the_training_code() -> None:
    """One column more or less is another grid of patches: int() for openpi, round() to even for GR00T."""
    assert result_size(480, 640, "inside", 0, 224, 224) == (168, 224)
    assert result_size(37, 53, "inside", 0, 224, 224) == (156, 224)
    assert result_size(480, 640, "shortest", 256, 0, 0) == (256, 341)
    assert result_size(2, 5, "shortest", 1, 0, 0) == (1, 2)
    assert result_size(480, 640, "stretch", 0, 256, 200) == (256, 200)
    assert window_of(256, 341, False, 0.95, "floor") == (6, 9, 243, 323)
    assert window_of(3, 9, True, 1.0, "floor") == (-3, 0, 9, 9)


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        ((1, 900), {"height": 28, "width": 28, "fitting": "inside"}),
        ((40, 90), {"height": 32, "width": 64, "fitting": "shortest", "edge": 32}),
    ],
)
def test_what_has_no_pixel_or_no_room_is_a_missing_camera(
    size: tuple[int, int], parameters: dict[str, Any]
) -> None:
    """Never memory behind the buffer; the rules refuse such images before."""
    assert resampled(random_image(*size), filter="bilinear", **parameters).size == 0


def test_a_missing_camera_stays_one() -> None:
    """rows = 0 must reach the kernel that fills in −1, through every stage."""
    info = torch.tensor([0, 5, 15, 0], dtype=torch.int32)
    given = {"pixels": torch.zeros(9, dtype=torch.uint8), "info": info}
    _, out_info = resample(**given, height=8, width=8, filter="area")
    assert out_info.tolist() == [0, 0, 0, 0]
