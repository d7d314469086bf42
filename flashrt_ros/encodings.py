# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""sensor_msgs/Image and CompressedImage → `RawImage`, for messages of rclpy and of rosbags alike.

Frequent encodings become a view of the message's bytes: colour order and row stride are the image kernel's
work. Rare ones are decoded by cv_bridge where that is installed, else by OpenCV. The names are those of
sensor_msgs/image_encodings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np

from flashrt_kernels.pixels import RawImage
from flashrt_ros.parameters import CameraConfig


class MalformedImage(ValueError):
    """An image whose sizes, or compressed bytes, contradict each other (R2)."""


class UnsupportedEncoding(ValueError):
    """An image in an encoding that no policy was trained on, like depth (R5)."""


@dataclass(frozen=True)
class Direct:
    """Bytes that the image kernel reads as they are, under the name `read_as`."""

    read_as: str
    channels: int


@dataclass(frozen=True)
class Coded:
    """Bytes that cv2.cvtColor turns into bgr8 by `code`: `channels` per pixel, `rows` per row of pixels.

    Width and height must be multiples of `width_of` and `height_of`.
    """

    code: int
    channels: int
    rows: float = 1.0
    width_of: int = 1
    height_of: int = 1


# OpenCV names a Bayer pattern by its second row, ROS by its first: rggb is BayerBG.
ENCODINGS: Final[dict[str, Direct | Coded]] = {
    "rgb8": Direct("rgb8", 3),
    "bgr8": Direct("bgr8", 3),
    "rgba8": Direct("rgba8", 4),
    "bgra8": Direct("bgra8", 4),
    "mono8": Direct("mono8", 1),
    "8UC1": Direct("mono8", 1),
    "8UC3": Direct("bgr8", 3),  # OpenCV's convention for unnamed channels
    "8UC4": Direct("bgra8", 4),
    "yuv422": Coded(cv2.COLOR_YUV2BGR_UYVY, 2, width_of=2),
    "uyvy": Coded(cv2.COLOR_YUV2BGR_UYVY, 2, width_of=2),
    "yuv422_yuy2": Coded(cv2.COLOR_YUV2BGR_YUY2, 2, width_of=2),
    "yuyv": Coded(cv2.COLOR_YUV2BGR_YUY2, 2, width_of=2),
    "nv21": Coded(cv2.COLOR_YUV2BGR_NV21, 1, rows=1.5, width_of=2, height_of=2),
    "bayer_rggb8": Coded(cv2.COLOR_BayerBG2BGR, 1),
    "bayer_bggr8": Coded(cv2.COLOR_BayerRG2BGR, 1),
    "bayer_gbrg8": Coded(cv2.COLOR_BayerGR2BGR, 1),
    "bayer_grbg8": Coded(cv2.COLOR_BayerGB2BGR, 1),
}
SWAPPED: Final = {"rgb8": "bgr8", "bgr8": "rgb8", "rgba8": "bgra8", "bgra8": "rgba8", "mono8": "mono8"}
COMPRESSED_FORMATS: Final = ("jpeg", "jpg", "png")

Convert = Callable[[], RawImage]
"""Turns a checked message into a RawImage; raises MalformedImage when compressed bytes cannot be decoded."""


def prepare(message: Any, camera: CameraConfig) -> tuple[Convert, str]:
    """Check everything about a message that needs no pixel; returns its conversion and how it will be read.

    Costs microseconds whatever the image's size. Raises MalformedImage or UnsupportedEncoding.
    """
    prepare_one = _prepare_compressed if camera.transport == "compressed" else _prepare_raw
    return prepare_one(message, camera)


def _prepare_raw(message: Any, camera: CameraConfig) -> tuple[Convert, str]:
    encoding, height, width = message.encoding, int(message.height), int(message.width)
    row = ENCODINGS.get(encoding)
    if row is None:
        raise _unsupported(camera, f"encoding '{encoding}'", ", ".join(ENCODINGS))
    packed = width * row.channels
    step = int(message.step) or packed  # R1: 0 means packed
    rows = round(height * row.rows) if isinstance(row, Coded) else height
    length = len(message.data)
    problem = None
    if height <= 0 or width <= 0:
        problem = "an image needs at least one row and one column"
    elif step < packed:
        problem = f"a row needs {packed} bytes"
    elif length < rows * step:
        problem = f"{rows} rows of {step} bytes need {rows * step}"
    elif isinstance(row, Coded) and (width % row.width_of or height % row.height_of):
        problem = f"width and height must be multiples of {row.width_of} and {row.height_of}"
    if problem:
        raise MalformedImage(
            f"camera '{camera.name}' on {camera.topic}: malformed image (encoding {encoding}, "
            f"{width}x{height}, step {message.step}, {length} bytes): {problem}"
        )
    if isinstance(row, Coded):
        return lambda: _decode(message, camera, row, rows, step), f"{encoding}, converted"
    name = SWAPPED[row.read_as] if camera.swap_red_blue else row.read_as
    return lambda: RawImage(
        _as_bytes(message.data)[: height * step], height, width, step, name
    ), f"{encoding}, read as {name}"


def _as_bytes(data: Any) -> np.ndarray:
    """A view of ndarray (rosbags), array.array (rclpy) or bytes (other readers): uint8 [length]."""
    return np.frombuffer(data, dtype=np.uint8)


def _decode(message: Any, camera: CameraConfig, row: Coded, rows: int, step: int) -> RawImage:
    bridge = _cv_bridge()
    if bridge is not None:
        return _from_bgr(bridge.imgmsg_to_cv2(message, "bgr8"), camera)
    packed = int(message.width) * row.channels
    pixels = _as_bytes(message.data)[: rows * step].reshape(rows, step)[:, :packed]
    if row.channels > 1:
        pixels = pixels.reshape(rows, int(message.width), row.channels)
    return _from_bgr(cv2.cvtColor(np.ascontiguousarray(pixels), row.code), camera)


def _cv_bridge() -> Any | None:
    """A CvBridge where ROS has one (apt); there is no wheel of it."""
    try:
        return importlib.import_module("cv_bridge").CvBridge()
    except ImportError:
        return None


def _prepare_compressed(message: Any, camera: CameraConfig) -> tuple[Convert, str]:
    """`format` is "jpeg" from simple drivers, "rgb8; jpeg compressed bgr8" from image_transport."""
    original, _, rest = message.format.partition(";")
    words = (rest or original).lower().split()
    known = next((word for word in words if word in COMPRESSED_FORMATS), None)
    wide = original.strip() not in ENCODINGS and bool(rest)  # 16-bit grey or depth inside a PNG
    if known is None or wide:
        raise _unsupported(camera, f"format '{message.format}'", ", ".join(COMPRESSED_FORMATS))
    length = len(message.data)
    # image_transport may be told to store rgb8: then the file's red and blue are exchanged.
    exchanged = any(word.startswith("rgb") for word in words[words.index(known) :])
    return lambda: _decompress(message, camera, length, exchanged), f"'{message.format}'"


def _decompress(message: Any, camera: CameraConfig, length: int, exchanged: bool) -> RawImage:
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION  # the policy was trained on pixels as stored
    why = ""
    try:
        pixels = cv2.imdecode(_as_bytes(message.data), flags) if length else None  # [h, w, 3]
    except cv2.error as error:  # a header that promises gigapixels
        pixels, why = None, f": {error.err}"
    if pixels is None:
        raise MalformedImage(
            f"camera '{camera.name}' on {camera.topic}: the {length} bytes of an image with format "
            f"'{message.format}' cannot be decoded{why}"
        )
    return _from_bgr(pixels, camera, exchanged)


def _from_bgr(pixels: np.ndarray, camera: CameraConfig, exchanged: bool = False) -> RawImage:
    height, width = pixels.shape[:2]  # [h, w, 3]
    name = "rgb8" if exchanged != camera.swap_red_blue else "bgr8"
    return RawImage(np.ascontiguousarray(pixels).reshape(-1), height, width, width * 3, name)


def _unsupported(camera: CameraConfig, what: str, known: str) -> UnsupportedEncoding:
    return UnsupportedEncoding(
        f"camera '{camera.name}' on {camera.topic}: {what} cannot feed slot '{camera.slot}' of the policy, "
        f"which needs 8-bit colour or grey pixels: {known}"
    )
