# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""From a camera to patches as each policy was trained: when these fail, a policy sees another picture."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.numpy import load_file

from flashrt_kernels.checkpoint.groot_processing import GrootImages
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.image_rules import Fit, ImageRule, openpi
from flashrt_kernels.image_rules_groot import groot_n16, groot_n17, whole_blocks
from flashrt_kernels.pixels import RawImage

N17 = Path(__file__).parents[1] / "data" / "tiny_groot_n17"
RELEASED = GrootImages((256, 256), (230, 230), 256, 0.95, albumentations=True)


def patches_of(rule: ImageRule, image: np.ndarray | None) -> np.ndarray:
    """Patches [rows, features] of one camera, through a graph with another one composed behind it."""
    raw = RawImage.from_array(np.zeros((1, 1, 3), np.uint8) if image is None else image)
    g = StaticGraph("rule", "cpu")
    features = (3 * rule.patch**2 + 7) // 8 * 8
    out = g.buffer("patches", (2 * rule.rows, features), torch.float32)
    for i in range(2):
        pixels, info = (
            g.input(f"{i}.pixels", (raw.bytes,), torch.uint8),
            g.input(f"{i}.info", (4,), torch.int32),
        )
        rule.compose(g, pixels, info, out[i * rule.rows : (i + 1) * rule.rows])
    g.output("patches", out)
    g.plan()
    for i in range(2):
        g.host(f"{i}.info")[:] = 0
    if image is not None:
        raw.write(g.host("0.pixels"), g.host("0.info"))
        g.send("0.pixels", raw.bytes)
    g.replay()
    found = g.read("patches")
    assert (found[rule.rows :, : 3 * rule.patch**2] == -1).all()  # the other camera is missing
    return found[: rule.rows]


def seen(rule: ImageRule, image: np.ndarray | None) -> np.ndarray:
    """uint8 [height, width, 3]: what the model sees; everything in whole levels, as far as fp32 has them."""
    patches = patches_of(rule, image)
    levels = (patches[:, : 3 * rule.patch**2] + 1) * 127.5
    assert np.abs(levels - np.rint(levels)).max() <= 1e-4
    return rule.picture(patches)


def random_image(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, columns, 3), np.uint8)


CAMERAS = [(480, 640), (720, 1280), (640, 480), (37, 53), (224, 224), (9, 90)]


@pytest.mark.parametrize("size", CAMERAS)
def test_R9_openpi_is_its_client(size: tuple[int, int]) -> None:
    """openpi's robots send images that Pillow resized and padded; equal bit for bit."""
    image = random_image(*size)
    ratio = max(size[1] / 224, size[0] / 224)
    height, width = int(size[0] / ratio), int(size[1] / ratio)
    want = Image.new("RGB", (224, 224))
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    want.paste(resized, (int((224 - width) / 2), int((224 - height) / 2)))
    np.testing.assert_array_equal(seen(openpi(224, 224, 14), image), np.asarray(want))


@pytest.mark.parametrize("size", [(480, 640), (640, 480), (37, 53), (512, 512)])
def test_R9_smolvla_pads_on_the_left_and_top(size: tuple[int, int]) -> None:
    """LeRobot pads SmolVLA's images on two sides only: centred, everything would lie elsewhere."""
    image = random_image(*size)
    ratio = max(size[1] / 512, size[0] / 512)
    height, width = int(size[0] / ratio), int(size[1] / ratio)
    x = torch.from_numpy(image / np.float32(255)).permute(2, 0, 1)[None]
    x = F.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)
    x = F.pad(x, (512 - width, 0, 512 - height, 0)) * 2 - 1
    want = x[0].unfold(1, 16, 16).unfold(2, 16, 16).permute(1, 2, 0, 3, 4).reshape(1024, 768)
    got = patches_of(Fit(512, 512, 16, place="end"), image)
    np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=3e-6)


def test_R9_groot_n17_is_lerobot() -> None:
    """Raw images and pixel values stored by LeRobot's own port of N1.7, patches in 2×2 block order.

    Its torch computes with weights of 16 bits: one level off in 1 % of the pixels, two in hardly any.
    """
    stored = load_file(N17 / "oracle_raw.safetensors")
    config = json.loads((N17 / "processor_config.json").read_text())["processor_kwargs"]
    images = GrootImages(tuple(config["image_target_size"]), tuple(config["image_crop_size"]))
    rule = groot_n17(images, patch=8)
    cameras = ("front", "wrist")
    got = np.concatenate([patches_of(rule, stored[f"raw.observation.images.{name}"]) for name in cameras])
    pixel_values = stored["in.pixel_values"].reshape(72, 3, 2, 64)  # a still image, repeated once in time
    off = np.abs(got.reshape(72, 3, 64) - pixel_values[:, :, 0]) * 127.5
    assert off.max() <= 2.001
    assert (off > 0.5).mean() <= 0.0105


def shortest(image: np.ndarray, edge: int) -> np.ndarray:
    """albumentations' SmallestMaxSize with INTER_AREA."""
    scale = edge / min(image.shape[:2])
    if scale == 1:
        return image
    height, width = (round(length * scale) for length in image.shape[:2])
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def middle(image: np.ndarray, kept: float) -> np.ndarray:
    """Isaac-GR00T's FractionalCenterCrop."""
    height, width = (int(length * kept) for length in image.shape[:2])
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return np.ascontiguousarray(image[top : top + height, left : left + width])


def by_pillow(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Eagle's processor, N1.6: Image.resize, whose filter is bicubic unless told otherwise."""
    return np.asarray(Image.fromarray(image).resize((width, height)))


def by_torch(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Qwen3-VL's processor, N1.7: torchvision's resize of uint8."""
    planes = torch.from_numpy(image).permute(2, 0, 1)[None]
    resized = F.interpolate(planes, size=(height, width), mode="bicubic", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


# camera, pixels that the model sees with N1.6 and N1.7
GRIDS = [
    ((256, 256), (252, 252), (256, 256)),
    ((480, 480), (252, 252), (256, 256)),
    ((480, 640), (252, 336), (256, 352)),
    ((720, 1280), (252, 448), (256, 448)),
    ((640, 480), (336, 252), (352, 256)),
]


@pytest.mark.parametrize(("size", "n16", "n17"), GRIDS)
@pytest.mark.parametrize("letter_box", [False, True])
def test_R9_groot_by_area_is_its_training_code(
    size: tuple[int, int], n16: tuple[int, int], n17: tuple[int, int], letter_box: bool
) -> None:
    """Every stage by the library that training calls; which one the last is differs between the two."""
    image = squared = random_image(*size)
    if letter_box:
        edge = max(size)
        squared = np.zeros((edge, edge, 3), np.uint8)
        top, left = (edge - size[0]) // 2, (edge - size[1]) // 2
        squared[top : top + size[0], left : left + size[1]] = image
    cut = shortest(middle(shortest(squared, 256), 0.95), 256)
    images = replace(RELEASED, letter_box=letter_box, camera_size=size)
    ways: list[tuple[ImageRule, tuple[int, int], Callable[..., np.ndarray], float]] = [
        (groot_n16(images), (252, 252) if letter_box else n16, by_pillow, 5e-4),
        (groot_n17(images), (256, 256) if letter_box else n17, by_torch, 0.01),
    ]
    for rule, grid, last, share in ways:
        assert (rule.height, rule.width) == grid
        assert rule.problem(*size) is None
        off = np.abs(seen(rule, image).astype(int) - last(cut, *grid))
        assert off.max() <= 1
        assert (off > 0).mean() <= share


def test_groot_patches_come_in_blocks() -> None:
    """2×2 patches become one token: row-major ones would mix neighbours that are none."""
    image = random_image(480, 640)
    rule = groot_n16(replace(RELEASED, camera_size=(480, 640)))
    patches = patches_of(rule, image)[:, : 3 * 14**2]
    picture = rule.picture(patches) / np.float32(127.5) - 1
    blocks = picture.reshape(9, 2, 14, 12, 2, 14, 3).transpose(0, 3, 1, 4, 6, 2, 5)  # by, bx, dy, dx, c, y, x
    np.testing.assert_allclose(patches, blocks.reshape(432, 588), atol=1e-6)
    assert rule.rows == 432


@pytest.mark.parametrize("make", [groot_n16, groot_n17])
def test_a_camera_that_makes_another_grid_is_refused(make: Callable[..., ImageRule]) -> None:
    """The number of tokens is fixed when a policy is loaded; the message says what to pass."""
    square = make(RELEASED)
    assert square.problem(480, 480) is None
    message = square.problem(480, 640)
    assert message is not None
    assert "640×480" in message
    assert "image_size=(480, 640)" in message
    wide = make(replace(RELEASED, camera_size=(480, 640)))
    assert wide.problem(960, 1280) is None  # the same shape
    assert wide.problem(481, 640) is None  # nearly: the same grid
    for height, width in ((480, 480), (640, 480), (720, 1280), (48, 2000)):
        assert f"image_size=({height}, {width})" in str(wide.problem(height, width))


def test_images_that_shrink_too_much_or_to_nothing_are_refused() -> None:
    """The GPU holds no more weights than for 60 : 1, and a strip of no pixel is no picture."""
    rules: tuple[ImageRule, ...] = (openpi(224, 224, 14), Fit(224, 224, 14), groot_n16(RELEASED))
    for rule in rules[:2]:
        assert "expected a wider or higher one" in str(rule.problem(1, 900))
    assert rules[0].problem(13000, 13000) is None
    for rule, edge in ((rules[0], 14000), (rules[2], 16000)):
        assert "at most 60 times" in str(rule.problem(edge, edge))


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (GrootImages(crop_fraction=0.95, albumentations=True), ("shortest_image_edge", "image_target_size")),
        (GrootImages(shortest_edge=256, albumentations=True), ("crop_fraction=None", "image_crop_size")),
        (GrootImages(shortest_edge=256, crop_fraction=1.5, albumentations=True), ("crop_fraction=1.5",)),
    ],
)
@pytest.mark.parametrize("make", [groot_n16, groot_n17])
def test_a_config_that_says_too_little_is_refused(
    make: Callable[..., ImageRule], images: GrootImages, words: tuple[str, ...]
) -> None:
    """A guessed crop would be a quiet domain shift."""
    with pytest.raises(CheckpointError) as error:
        make(images)
    for word in ("processor_config.json", *words):
        assert word in str(error.value)


def test_n16_without_albumentations_is_refused() -> None:
    """Isaac-GR00T's own versions disagree about what it meant."""
    with pytest.raises(CheckpointError, match="use_albumentations is false; expected true"):
        groot_n16(GrootImages((256, 256), (230, 230)))


def test_n17_without_albumentations_needs_a_target() -> None:
    """Nothing else says how large the images were."""
    with pytest.raises(CheckpointError, match="image_target_size"):
        groot_n17(GrootImages(None, None, 256, 0.95))


def test_n17_without_albumentations_takes_any_camera() -> None:
    """Squashed to a square whatever comes: the grid stays; Isaac's filter is another than LeRobot's."""
    images = GrootImages((256, 256), (230, 230))
    rule = groot_n17(images, filter="bilinear")
    image = random_image(480, 640)
    assert (rule.height, rule.width, rule.problem(480, 640)) == (256, 256, None)
    pil = Image.fromarray(image).resize((256, 256), Image.Resampling.BILINEAR).crop((13, 13, 243, 243))
    want = np.asarray(pil.resize((256, 256), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(seen(rule, image), want)


def test_a_camera_size_that_would_change_nothing_is_refused() -> None:
    """An option that does nothing leaves the user believing that it did."""
    squashed = replace(RELEASED, albumentations=False, camera_size=(480, 640))
    with pytest.raises(CheckpointError, match=r"image_size is \(480, 640\), but .*leave it out"):
        groot_n17(squashed)


def test_edges_become_whole_blocks() -> None:
    """Eagle's processor keeps between 4 and 4,096 blocks; halves go to even."""
    assert whole_blocks(256, 341, 28, (4, 4096)) == (252, 336)
    assert whole_blocks(42, 70, 28, (4, 4096)) == (56, 56)  # 1.5 → 2, 2.5 → 2
    assert whole_blocks(20, 30, 28, (4, 4096)) == (56, 84)
    assert whole_blocks(28 * 100, 28 * 90, 28, (4, 4096)) == (28 * 67, 28 * 60)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Fit(224, 224, 14), ("padding", "224×224", "bilinear")),
        (openpi(224, 224, 14), ("into 224×224", "bilinear")),
        (groot_n16(RELEASED), ("shorter edge of 256", "area", "0.95", "252×252", "bicubic")),
    ],
)
def test_a_rule_says_what_it_does(rule: ImageRule, words: tuple[str, ...]) -> None:
    """`describe` is how users compare with their training code."""
    for word in words:
        assert word in rule.describe()
