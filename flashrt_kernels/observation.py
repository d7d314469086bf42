# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What every policy demands of an observation. Each check raises ObservationError in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flashrt_kernels.errors import ObservationError
from flashrt_kernels.image_rules import ImageRule
from flashrt_kernels.pixels import RawImage


def check_state(state: Sequence[float] | np.ndarray, width: int) -> np.ndarray:
    """The joint state as float32 [width]."""
    try:
        with np.errstate(over="ignore"):  # infinity is refused below
            array = np.asarray(state, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ObservationError(f"state: {error}; expected {width} numbers") from None
    if array.shape != (width,):
        raise ObservationError(f"state has shape {list(array.shape)}; expected [{width}]")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ObservationError(f"state[{bad[0]}] is {array[bad[0]]}; expected finite numbers")
    return array


def check_noise(noise: np.ndarray, shape: tuple[int, int]) -> None:
    """Start noise is finite float32 of `shape`."""
    expected = f"expected finite float32 {list(shape)}"
    if not isinstance(noise, np.ndarray):
        raise ObservationError(f"noise is {type(noise).__name__}; {expected}")
    if noise.shape != shape or noise.dtype != np.float32:
        raise ObservationError(f"noise is {noise.dtype} {list(noise.shape)}; {expected}")
    if not np.isfinite(noise).all():
        raise ObservationError(f"noise holds NaN or infinity; {expected}")


def check_instruction(instruction: str) -> None:
    """The instruction is text that a tokenizer can read."""
    if not isinstance(instruction, str):
        raise ObservationError(f"instruction is {type(instruction).__name__}; expected a string")
    try:
        instruction.encode()
    except UnicodeEncodeError as error:
        raise ObservationError(f"instruction {instruction[:80]!r} is not text: {error}") from None


def check_image(name: str, image: np.ndarray | RawImage, limit: int, rule: ImageRule) -> RawImage:
    """The image of camera `name`: at most `limit` bytes, of a size that `rule` takes."""
    try:
        raw = image if isinstance(image, RawImage) else RawImage.from_array(image)
    except ObservationError as error:
        raise ObservationError(f"camera {name!r}: {error}") from None
    if raw.bytes > limit:
        came = f"{raw.width}×{raw.height} {raw.encoding}, {raw.bytes} bytes"
        raise ObservationError(f"camera {name!r}: image is {came}; the limit is {limit} bytes")
    problem = rule.problem(raw.height, raw.width)
    if problem is not None:
        raise ObservationError(f"camera {name!r}: image {problem}")
    return raw


def seeded_noise(seed: int, sequence: int, shape: tuple[int, int]) -> np.ndarray:
    """Standard normal float32 of `shape`: Philox with key = seed, sequence in the counter's highest word.

    The counter also counts the numbers drawn; in its lowest word, neighbouring sequences would share most
    of them.
    """
    for name, value, bits in (("seed", seed, 128), ("sequence", sequence, 64)):
        if not isinstance(value, int | np.integer) or not 0 <= value < 1 << bits:
            raise ObservationError(f"{name}={value!r}; expected an integer from 0 to 2^{bits} - 1")
    counter = np.array([0, 0, 0, sequence], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=int(seed), counter=counter))
    return generator.standard_normal(shape, np.float32)
