# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""sensor_msgs/Image, CompressedImage, PointCloud2 → `RawImage`, for messages of rclpy and rosbags alike.

Frequent encodings become a view of the message's bytes: colour order and row stride are the image kernel's
work. Rare ones are decoded by cv_bridge where that is installed, else by rosbags-image. JPEG and PNG are
decoded by OpenCV: rosbags-image would turn pictures by their EXIF orientation, and asserts on broken ones.
The names are those of sensor_msgs/image_encodings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
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
    """Bytes that are decoded to bgr8: `channels` per pixel, `rows` per row of pixels.

    Width and height must be multiples of `width_of` and `height_of`.
    """

    channels: int
    rows: float = 1.0
    width_of: int = 1
    height_of: int = 1


ENCODINGS: Final[dict[str, Direct | Coded]] = {
    "rgb8": Direct("rgb8", 3),
    "bgr8": Direct("bgr8", 3),
    "rgba8": Direct("rgba8", 4),
    "bgra8": Direct("bgra8", 4),
    "mono8": Direct("mono8", 1),
    "8UC1": Direct("mono8", 1),
    "8UC3": Direct("bgr8", 3),  # OpenCV's convention for unnamed channels
    "8UC4": Direct("bgra8", 4),
    "yuv422": Coded(2, width_of=2),
    "uyvy": Coded(2, width_of=2),
    "yuv422_yuy2": Coded(2, width_of=2),
    "yuyv": Coded(2, width_of=2),
    "nv21": Coded(1, rows=1.5, width_of=2, height_of=2),
    "bayer_rggb8": Coded(1),
    "bayer_bggr8": Coded(1),
    "bayer_gbrg8": Coded(1),
    "bayer_grbg8": Coded(1),
}
SWAPPED: Final = {"rgb8": "bgr8", "bgr8": "rgb8", "rgba8": "bgra8", "bgra8": "rgba8", "mono8": "mono8"}
COMPRESSED_FORMATS: Final = ("jpeg", "jpg", "png")

Convert = Callable[[], RawImage]
"""Turns a checked message into a RawImage; raises MalformedImage when compressed bytes cannot be decoded."""


def prepare(message: Any, camera: CameraConfig) -> tuple[Convert, str]:
    """Check everything about a message that needs no pixel; returns its conversion and how it will be read.

    Costs microseconds whatever the image's size. Raises MalformedImage or UnsupportedEncoding.
    """
    return PREPARE[camera.transport](message, camera)


def _prepare_raw(message: Any, camera: CameraConfig) -> tuple[Convert, str]:
    encoding, height, width = message.encoding, int(message.height), int(message.width)
    row = _row_of(encoding, camera)
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


def _row_of(encoding: str, camera: CameraConfig) -> Direct | Coded:
    """R5: what is known of an encoding. Raises UnsupportedEncoding for depth and everything else."""
    row = ENCODINGS.get(encoding)
    if row is None:
        raise _unsupported(camera, f"encoding '{encoding}'", ", ".join(ENCODINGS))
    return row


def _as_bytes(data: Any) -> np.ndarray:
    """A view of ndarray (rosbags), array.array (rclpy) or bytes (other readers): uint8 [length]."""
    return np.frombuffer(data, dtype=np.uint8)


def _decode(message: Any, camera: CameraConfig, row: Coded, rows: int, step: int) -> RawImage:
    width = int(message.width)
    pixels = _packed_rows(_as_bytes(message.data), rows, step, width * row.channels)
    bridge = _cv_bridge()
    try:
        if bridge is not None and row.rows == 1.0:  # of planes below each other it knows nothing
            return _from_bgr(_bridge_decode(bridge, message.encoding, rows, width, pixels), camera)
        return _from_bgr(_rosbags_decode(message.encoding, rows, width, pixels), camera)
    except Exception as error:  # whatever a decoder says of one frame, it is that frame
        raise MalformedImage(
            f"camera '{camera.name}' on {camera.topic}: a {width}x{message.height} image with encoding "
            f"{message.encoding} cannot be decoded: {type(error).__name__}: {error}"
        ) from error


def _packed_rows(data: np.ndarray, rows: int, step: int, packed: int) -> np.ndarray:
    """R1: `rows` rows of `step` bytes → uint8 [rows, packed] without the padding."""
    return np.ascontiguousarray(data[: rows * step].reshape(rows, step)[:, :packed])


def _bridge_decode(bridge: Any, encoding: str, rows: int, width: int, pixels: np.ndarray) -> np.ndarray:
    """cv_bridge takes the shape from `step`, and not every release of it works with a step of 0 or swapped
    bytes: it is given packed rows."""
    message = SimpleNamespace(
        encoding=encoding,
        height=rows,
        width=width,
        step=pixels.shape[1],
        is_bigendian=0,
        data=pixels.tobytes(),
    )
    bgr: np.ndarray = bridge.imgmsg_to_cv2(message, "bgr8")
    return bgr


def _rosbags_decode(encoding: str, rows: int, width: int, pixels: np.ndarray) -> np.ndarray:
    """uint8 [rows, bytes of a row] → bgr8 uint8 [h, w, 3]. rosbags-image knows neither padding nor planes:
    it is given packed rows, and of nv21 the rows of both planes as height."""
    from rosbags.image import image_to_cvimage

    message: Any = SimpleNamespace(
        encoding=encoding, height=rows, width=width, is_bigendian=False, data=pixels
    )
    return image_to_cvimage(message, "bgr8")


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


def _prepare_cloud(message: Any, camera: CameraConfig) -> tuple[Convert, str]:
    """The colours of an organised PointCloud2, as RGB-D cameras send it."""
    height, width = int(message.height), int(message.width)
    problem = cloud_problem(message)
    if problem:
        raise MalformedImage(
            f"camera '{camera.name}' on {camera.topic}: malformed point cloud ({width}x{height}, point_step "
            f"{message.point_step}, row_step {message.row_step}, {len(message.data)} bytes): {problem}"
        )
    (field,) = (field.name for field in message.fields if field.name in COLOUR_FIELDS)
    name = SWAPPED["bgra8"] if camera.swap_red_blue else "bgra8"
    return lambda: _cloud_image(message, field, name), f"point cloud {width}x{height}, field {field}"


COLOUR_FIELDS: Final = ("rgb", "rgba")
COLOUR_TYPES: Final = (6, 7)  # UINT32, FLOAT32 of sensor_msgs/PointField: 0xAARRGGBB in its bits


def cloud_problem(cloud: Any) -> str | None:
    """Why a PointCloud2 is no picture; None when it is one."""
    fields = {field.name: field for field in cloud.fields}
    colours = [fields[name] for name in COLOUR_FIELDS if name in fields]
    height, width = int(cloud.height), int(cloud.width)
    if height <= 1 or width <= 0:
        return "it is not organised (height 1): its points are no rows of a picture"
    if len(colours) != 1 or colours[0].datatype not in COLOUR_TYPES:
        return f"it has no rgb field of 4 bytes; its fields are {', '.join(fields) or 'none'}"
    if int(cloud.row_step) != width * int(cloud.point_step):
        return f"its rows are padded; {width * int(cloud.point_step)} bytes a row are needed"
    if len(cloud.data) < height * int(cloud.row_step):
        return f"{height} rows of {int(cloud.row_step)} bytes need {height * int(cloud.row_step)}"
    return None


def _cloud_image(cloud: Any, field: str, name: str) -> RawImage:
    """Colour of each point, invalid ones too, as they lie in memory: blue, green, red, alpha."""
    points = importlib.import_module("sensor_msgs_py.point_cloud2").read_points(
        cloud, field_names=[field], skip_nans=False
    )
    bits = np.ascontiguousarray(np.asarray(points)[field]).view(np.uint32).astype("<u4")  # [h · w]
    height, width = int(cloud.height), int(cloud.width)
    return RawImage(bits.reshape(-1).view(np.uint8), height, width, 4 * width, name)


def _from_bgr(pixels: np.ndarray, camera: CameraConfig, exchanged: bool = False) -> RawImage:
    height, width = pixels.shape[:2]  # [h, w, 3]
    name = "rgb8" if exchanged != camera.swap_red_blue else "bgr8"
    return RawImage(np.ascontiguousarray(pixels).reshape(-1), height, width, width * 3, name)


def _unsupported(camera: CameraConfig, what: str, known: str) -> UnsupportedEncoding:
    return UnsupportedEncoding(
        f"camera '{camera.name}' on {camera.topic}: {what} cannot feed slot '{camera.slot}' of the policy, "
        f"which needs 8-bit colour or grey pixels: {known}"
    )


PREPARE: Final[dict[str, Callable[[Any, CameraConfig], tuple[Convert, str]]]] = {
    "raw": _prepare_raw,
    "compressed": _prepare_compressed,
    "pointcloud": _prepare_cloud,
}
"""Transport of a camera → what checks its messages."""
