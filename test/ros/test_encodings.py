# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Images: a wrong colour order or a skewed row makes the policy act on a world that is not there."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from types import ModuleType, SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from flashrt_kernels.pixels import RawImage
from flashrt_ros.encodings import ENCODINGS, Coded, MalformedImage, UnsupportedEncoding, prepare
from flashrt_ros.parameters import CameraConfig

RED_PIXELS = {
    "rgb8": [255, 0, 0],
    "bgr8": [0, 0, 255],
    "rgba8": [255, 0, 0, 255],
    "bgra8": [0, 0, 255, 255],
    "8UC3": [0, 0, 255],
    "8UC4": [0, 0, 255, 255],
    "mono8": [76],
    "8UC1": [76],
}
RGB_OF = {"rgb8": (0, 1, 2), "bgr8": (2, 1, 0), "rgba8": (0, 1, 2), "bgra8": (2, 1, 0), "mono8": (0, 0, 0)}


def camera(**more: Any) -> CameraConfig:
    fields: dict[str, Any] = {
        "name": "front",
        "slot": "top",
        "topic": "front/image_raw",
        "transport": "raw",
        "max_age": 0.5,
        "required": True,
        "swap_red_blue": False,
        "frozen_after": 0,
    }
    return CameraConfig(**{**fields, **more})


def image(encoding: str, height: int, width: int, data: Any, step: int = 0, big: int = 0) -> Any:
    return SimpleNamespace(
        encoding=encoding, height=height, width=width, data=data, step=step, is_bigendian=big
    )


def convert(message: Any, **more: Any) -> RawImage:
    return prepare(message, camera(**more))[0]()


def rgb(raw: RawImage) -> np.ndarray:
    """The RawImage as a policy reads it: uint8 [h, w, 3]."""
    rows = np.frombuffer(raw.data, np.uint8)[: raw.height * raw.step].reshape(raw.height, raw.step)
    channels = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4, "mono8": 1}[raw.encoding]
    pixels = rows[:, : raw.width * channels].reshape(raw.height, raw.width, channels)
    return pixels[..., list(RGB_OF[raw.encoding])]


@pytest.mark.parametrize("encoding", RED_PIXELS)
def test_R3_red_is_red_in_every_direct_encoding(encoding: str) -> None:
    """Red and blue exchanged would make the policy look for another object."""
    data = np.array(RED_PIXELS[encoding] * 4, np.uint8)
    expected = [76, 76, 76] if "mono" in encoding or encoding == "8UC1" else [255, 0, 0]
    assert (rgb(convert(image(encoding, 2, 2, data))) == expected).all()


@pytest.mark.parametrize("encoding", [name for name, row in ENCODINGS.items() if isinstance(row, Coded)])
def test_R5_coded_encodings_give_the_colours_that_were_encoded(encoding: str) -> None:
    """Cameras that deliver YUV or Bayer work without an extra node."""
    red, green, blue = 200, 60, 30
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    y = round(16 + luma * 219 / 255)
    u = round(128 + (blue - luma) / 1.772 * 224 / 255)
    v = round(128 + (red - luma) / 1.402 * 224 / 255)
    macro = {"yuv422": [u, y, v, y], "uyvy": [u, y, v, y], "yuv422_yuy2": [y, u, y, v], "yuyv": [y, u, y, v]}
    height, width = 8, 8
    if encoding in macro:
        data = np.tile(np.array(macro[encoding], np.uint8), height * width // 2)
    elif encoding == "nv21":
        data = np.concatenate([np.full(height * width, y), np.tile([v, u], height * width // 4)]).astype(
            np.uint8
        )
    else:
        value = {"r": red, "g": green, "b": blue}
        pattern = encoding.removeprefix("bayer_")[:4]
        tile = np.array([value[letter] for letter in pattern], np.uint8).reshape(2, 2)
        data = np.tile(tile, (height // 2, width // 2)).reshape(-1)
    pixels = rgb(convert(image(encoding, height, width, data)))[2:-2, 2:-2].astype(int)
    assert np.abs(pixels - [red, green, blue]).max() <= 4


def test_R1_padded_rows_are_sliced_by_step_and_zero_means_packed() -> None:
    """A driver that pads rows must not give a skewed picture."""
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 9)
    padded = np.concatenate([pixels, np.full((2, 7), 255, np.uint8)], axis=1)
    for step, data in ((0, pixels), (9, pixels), (16, padded)):
        raw = convert(image("rgb8", 2, 3, data.reshape(-1), step))
        assert (rgb(raw) == pixels.reshape(2, 3, 3)).all()


# OpenCV names a Bayer pattern by its second row, ROS by its first: rggb is BayerBG.
CV2_CODES = {
    "yuv422": cv2.COLOR_YUV2BGR_UYVY,
    "uyvy": cv2.COLOR_YUV2BGR_UYVY,
    "yuv422_yuy2": cv2.COLOR_YUV2BGR_YUY2,
    "yuyv": cv2.COLOR_YUV2BGR_YUY2,
    "nv21": cv2.COLOR_YUV2BGR_NV21,
    "bayer_rggb8": cv2.COLOR_BayerBG2BGR,
    "bayer_bggr8": cv2.COLOR_BayerRG2BGR,
    "bayer_gbrg8": cv2.COLOR_BayerGR2BGR,
    "bayer_grbg8": cv2.COLOR_BayerGB2BGR,
}


@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.parametrize("encoding", CV2_CODES)
def test_R1_R5_rare_encodings_are_what_opencv_decodes(encoding: str, padding: int) -> None:
    """The pixels that a dataset was recorded with, bit for bit, with packed rows and with padded ones."""
    row = ENCODINGS[encoding]
    assert isinstance(row, Coded)
    height, width = 8, 12
    shape = (round(height * row.rows), width * row.channels)
    data = np.random.default_rng(3).integers(0, 256, shape, np.uint8)
    coded = data.reshape(height, width, 2) if row.channels == 2 else data
    padded = np.concatenate([data, np.full((shape[0], padding), 99, np.uint8)], axis=1)
    raw = convert(image(encoding, height, width, padded.reshape(-1), shape[1] + padding))
    assert (rgb(raw) == cv2.cvtColor(coded, CV2_CODES[encoding])[..., ::-1]).all()


def test_every_rare_encoding_is_compared_with_opencv() -> None:
    """A new one must not slip through."""
    assert set(CV2_CODES) == {name for name, row in ENCODINGS.items() if isinstance(row, Coded)}


@pytest.mark.parametrize(("text", "extension"), [("jpeg", ".jpg"), ("png", ".png")])
def test_R5_compressed_images_are_what_opencv_decodes(text: str, extension: str) -> None:
    """The pixels that a dataset was recorded with, bit for bit."""
    picture = np.random.default_rng(4).integers(0, 256, (16, 24, 3), np.uint8)
    data = cv2.imencode(extension, picture)[1]
    raw = convert(SimpleNamespace(format=text, data=data), transport="compressed")
    decoded = cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert decoded is not None
    assert (rgb(raw) == decoded[..., ::-1]).all()


def test_R1_padded_rows_of_a_coded_encoding() -> None:
    """The same for a Bayer camera, whose rows are copied before decoding."""
    mosaic = np.arange(64, dtype=np.uint8).reshape(8, 8)
    padded = np.concatenate([mosaic, np.zeros((8, 5), np.uint8)], axis=1)
    packed = convert(image("bayer_rggb8", 8, 8, mosaic.reshape(-1)))
    assert (rgb(convert(image("bayer_rggb8", 8, 8, padded.reshape(-1), 13))) == rgb(packed)).all()


@pytest.mark.parametrize("kind", ["ndarray", "array", "bytes"])
def test_pixels_are_a_view_whatever_library_made_the_message(kind: str) -> None:
    """A copy per message would cost the node its time budget; live and bag messages must read alike."""
    source = np.arange(12, dtype=np.uint8)
    data: Any = {"ndarray": source, "array": array("B", source.tobytes())}.get(kind, source.tobytes())
    raw = convert(image("rgb8", 2, 2, data))
    assert (rgb(raw).reshape(-1) == np.arange(12)).all()
    assert np.shares_memory(np.frombuffer(raw.data, np.uint8), np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (image("rgb8", 2, 2, b"\0" * 12, step=5), "2x2, step 5, 12 bytes.*a row needs 6 bytes"),
        (image("rgb8", 2, 2, b"\0" * 11), "2 rows of 6 bytes need 12"),
        (image("rgb8", 2, 2, b"\0" * 12, step=8), "2 rows of 8 bytes need 16"),
        (image("rgb8", 0, 2, b""), "at least one row"),
        (image("bgr8", 2, 0, b""), "at least one row"),
        (image("nv21", 2, 2, b"\0" * 5), "3 rows of 2 bytes need 6"),
        (image("yuyv", 2, 3, b"\0" * 12), "multiples of 2 and 1"),
    ],
)
def test_R2_malformed_image_is_refused_with_its_numbers(message: Any, words: str) -> None:
    """The user sees topic, encoding, size, step and length of what the driver sent."""
    with pytest.raises(MalformedImage, match=words) as caught:
        prepare(message, camera())
    assert "'front' on front/image_raw" in str(caught.value)
    assert f"encoding {message.encoding}" in str(caught.value)


@pytest.mark.parametrize("encoding", ["mono16", "16UC1", "32FC1", "rgb16", "bayer_rggb16", "nonsense", ""])
@pytest.mark.parametrize("big", [0, 1])
def test_R5_R6_depth_and_wide_encodings_are_refused_naming_the_camera(encoding: str, big: int) -> None:
    """Depth values or swapped bytes must not be shown to the policy as colours."""
    with pytest.raises(
        UnsupportedEncoding, match=f"'front' on front/image_raw: encoding '{encoding}'.*'top'"
    ):
        prepare(image(encoding, 2, 2, b"\0" * 64, big=big), camera())


def test_R6_big_endian_does_not_matter_for_bytes() -> None:
    """Some drivers set the flag on 8-bit images, too."""
    assert convert(image("mono8", 1, 2, b"\1\2", big=1)).encoding == "mono8"


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8", "rgba8", "bgra8"])
def test_R4_swap_red_blue(encoding: str) -> None:
    """A driver with wrong labels is corrected by a parameter."""
    data = np.array(RED_PIXELS[encoding] * 4, np.uint8)
    assert (rgb(convert(image(encoding, 2, 2, data), swap_red_blue=True)) == [0, 0, 255]).all()


def test_R4_swap_red_blue_of_decoded_images() -> None:
    """The correction works for Bayer and compressed cameras as well."""
    mosaic = np.tile(np.array([[250, 0], [0, 0]], np.uint8), (4, 4)).reshape(-1)
    assert rgb(convert(image("bayer_rggb8", 8, 8, mosaic), swap_red_blue=True))[4, 4].argmax() == 2
    swapped = convert(compressed("png", ".png"), transport="compressed", swap_red_blue=True)
    assert (rgb(swapped) == [30, 60, 200]).all()


def test_how_an_image_is_read_is_told() -> None:
    """The log must say how channels without names are understood."""
    assert prepare(image("8UC3", 1, 1, b"\0\0\0"), camera())[1] == "8UC3, read as bgr8"


def compressed(text: str, extension: str, bgr: tuple[int, int, int] = (30, 60, 200)) -> Any:
    pixels = np.full((16, 24, 3), bgr, np.uint8)
    return SimpleNamespace(format=text, data=cv2.imencode(extension, pixels)[1])


@pytest.mark.parametrize(
    ("text", "extension"),
    [
        ("jpeg", ".jpg"),
        ("JPEG", ".jpg"),
        ("png", ".png"),
        ("rgb8; jpeg compressed bgr8", ".jpg"),
        ("bgr8; png compressed bgr8", ".png"),
        ("bayer_rggb8; jpeg compressed bgr8", ".jpg"),
    ],
)
@pytest.mark.parametrize("kind", ["ndarray", "array", "bytes"])
def test_R5_compressed_images(text: str, extension: str, kind: str) -> None:
    """JPEG and PNG work with the format strings of simple drivers and of image_transport."""
    message = compressed(text, extension)
    message.data = {"ndarray": message.data, "array": array("B", message.data.tobytes())}.get(
        kind, message.data.tobytes()
    )
    raw = convert(message, transport="compressed")
    assert (raw.height, raw.width) == (16, 24)
    assert np.abs(rgb(raw).astype(int) - [200, 60, 30]).max() <= 3


def test_R3_compressed_with_exchanged_channels() -> None:
    """image_transport can store rgb8 in the file, which then holds red and blue exchanged."""
    message = compressed("rgb8; jpeg compressed rgb8", ".jpg", bgr=(200, 60, 30))
    assert np.abs(rgb(convert(message, transport="compressed")).astype(int) - [200, 60, 30]).max() <= 3


def test_orientation_tags_are_ignored() -> None:
    """A camera that writes an EXIF orientation must not show the policy a picture turned by 90 degrees."""
    plain = compressed("jpeg", ".jpg").data.tobytes()
    # TIFF header, one directory entry: tag 0x0112 (orientation), type SHORT, count 1, value 6 (turn right)
    entry = b"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00"
    exif = b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01" + entry + b"\x00\x00\x00\x00"
    turned = plain[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + plain[2:]
    obeyed = cv2.imdecode(np.frombuffer(turned, np.uint8), cv2.IMREAD_COLOR)
    assert obeyed is not None
    assert obeyed.shape == (24, 16, 3), "the tag is one that OpenCV understands"
    raw = convert(SimpleNamespace(format="jpeg", data=turned), transport="compressed")
    assert (raw.height, raw.width) == (16, 24)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff not a picture", b"\0" * 100])
def test_R2_undecodable_image_is_malformed(data: bytes) -> None:
    """A truncated network packet is dropped, it does not end the node."""
    message = SimpleNamespace(format="jpeg", data=data)
    with pytest.raises(MalformedImage, match=rf"'front' on front/image_raw: the {len(data)} bytes.*'jpeg'"):
        convert(message, transport="compressed")


def test_R2_compressed_image_that_promises_gigapixels_is_malformed() -> None:
    """One broken header must not be a fatal error of the policy: OpenCV raises here instead of refusing."""
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b"")):
        data += struct.pack(">I", len(content)) + kind + content
        data += struct.pack(">I", zlib.crc32(kind + content))
    message = SimpleNamespace(format="png", data=data)
    with pytest.raises(MalformedImage, match=r"'png' cannot be decoded"):
        convert(message, transport="compressed")


@pytest.mark.parametrize(
    "text", ["16UC1; compressedDepth png", "16UC1; png compressed 16UC1", "h264", "tiff", ""]
)
def test_R5_other_compressed_formats_are_refused(text: str) -> None:
    """Depth inside a PNG and video streams are named, not misread."""
    with pytest.raises(UnsupportedEncoding, match=f"format '{text}'"):
        prepare(SimpleNamespace(format=text, data=b"x"), camera(transport="compressed"))


def test_cv_bridge_decodes_rare_encodings_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a robot the picture is the one that its other nodes see."""
    bridge = SimpleNamespace(imgmsg_to_cv2=lambda message, to: np.full((8, 8, 3), (1, 2, 3), np.uint8))
    module = ModuleType("cv_bridge")
    module.CvBridge = lambda: bridge  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cv_bridge", module)
    assert (rgb(convert(image("bayer_rggb8", 8, 8, bytes(64)))) == [3, 2, 1]).all()


def test_cv_bridge_and_opencv_agree() -> None:
    """A bag replayed on a laptop shows the policy the pixels that it saw on the robot."""
    cv_bridge = pytest.importorskip(
        "cv_bridge", reason="cv_bridge comes from a ROS installation, not from PyPI"
    )
    image_type = pytest.importorskip("sensor_msgs.msg", reason="needs ROS messages").Image
    data = np.random.default_rng(0).integers(0, 256, 64, dtype=np.uint8)
    message = image_type(encoding="bayer_rggb8", height=8, width=8, step=8, data=data.tobytes())
    ours = rgb(convert(message))
    assert (cv_bridge.CvBridge().imgmsg_to_cv2(message, "rgb8") == ours).all()


def test_messages_of_rclpy_and_of_rosbags_read_alike() -> None:
    """What works on a bag works on the robot: the same bytes give the same pixels from both libraries."""
    live_type = pytest.importorskip("sensor_msgs.msg", reason="needs ROS messages").Image
    typesys = pytest.importorskip("rosbags.typesys", reason="needs rosbags")
    types = typesys.get_typestore(typesys.Stores.ROS2_KILTED).types
    bag_type, header_type = types["sensor_msgs/msg/Image"], types["std_msgs/msg/Header"]
    data = np.random.default_rng(1).integers(0, 256, 2 * 12, dtype=np.uint8)
    live = live_type(encoding="bgra8", height=2, width=3, step=12, data=data.tobytes())
    header = header_type(types["builtin_interfaces/msg/Time"](1, 2), "")
    bag = bag_type(header, 2, 3, "bgra8", 0, 12, data)
    assert (rgb(convert(live)) == rgb(convert(bag))).all()


COLOUR = np.array([[0x00C83C1E, 0xFF0000FF, 7], [1, 2, 0xFFFFFFFF]], np.uint32)  # [2, 3], 0xAARRGGBB
POINT = np.dtype({"names": ["x", "rgb"], "formats": ["<f4", "<u4"], "offsets": [0, 8], "itemsize": 16})


def cloud(**more: Any) -> Any:
    """An organised cloud as RealSense and Kinect drivers send it: padded points, NaN where there is no
    depth."""
    points = np.zeros(6, POINT)
    points["x"], points["rgb"] = np.nan, COLOUR.reshape(-1)
    fields = [
        SimpleNamespace(name="x", offset=0, datatype=7, count=1),
        SimpleNamespace(name="rgb", offset=8, datatype=7, count=1),
    ]
    values = {"height": 2, "width": 3, "point_step": 16, "row_step": 48, "is_bigendian": False}
    return SimpleNamespace(**{**values, "fields": fields, "data": points.tobytes(), **more})


@pytest.fixture
def sensor_msgs_py(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sensor_msgs_py.point_cloud2.read_points does: a structured array of the fields asked for."""

    def read_points(cloud: Any, field_names: Any = None, skip_nans: bool = False) -> np.ndarray:
        assert not skip_nans, "points without depth have a colour"
        typed = np.dtype(
            {"names": ["x", "rgb"], "formats": ["<f4", "<f4"], "offsets": [0, 8], "itemsize": 16}
        )
        return np.frombuffer(cloud.data, typed)[list(field_names)]

    module = ModuleType("sensor_msgs_py.point_cloud2")
    module.read_points = read_points  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sensor_msgs_py", ModuleType("sensor_msgs_py"))
    monkeypatch.setitem(sys.modules, "sensor_msgs_py.point_cloud2", module)


@pytest.mark.usefixtures("sensor_msgs_py")
@pytest.mark.parametrize("swap", [False, True])
def test_colours_of_an_organised_cloud_are_a_picture(swap: bool) -> None:
    """RGB-D cameras that offer points only; every pixel at its place, also those without depth."""
    raw = convert(cloud(), transport="pointcloud", swap_red_blue=swap)
    assert (raw.height, raw.width) == (2, 3)
    red, blue = (COLOUR >> 16) & 255, COLOUR & 255
    expected = np.stack([red, (COLOUR >> 8) & 255, blue], axis=-1)
    assert (rgb(raw) == (expected[..., ::-1] if swap else expected)).all()


NO_COLOUR = [SimpleNamespace(name="x", offset=0, datatype=7, count=1)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"height": 1, "width": 6, "row_step": 96}, "not organised"),
        ({"fields": NO_COLOUR}, "no rgb field of 4 bytes; its fields are x"),
        ({"fields": [SimpleNamespace(name="rgb", offset=0, datatype=8, count=1)]}, "no rgb field of 4 bytes"),
        ({"row_step": 64}, "its rows are padded; 48 bytes"),
        ({"data": b"x" * 95}, "2 rows of 48 bytes need 96"),
    ],
)
def test_R2_clouds_that_are_no_picture_are_refused(changes: dict[str, Any], words: str) -> None:
    """The user reads what the driver sends, instead of a policy that acts on shuffled points."""
    with pytest.raises(MalformedImage, match=f"'front' on front/image_raw: malformed point cloud.*{words}"):
        prepare(cloud(**changes), camera(transport="pointcloud"))
