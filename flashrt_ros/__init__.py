# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""ROS 2 side of FlashRT: messages in, action chunks out."""

from pkgutil import extend_path

# The message modules are generated at build time and lie in the installed package; with the source tree
# first on sys.path both directories must form one package. Nothing heavy may be imported here:
# every tool that only wants flashrt_ros.msg imports this file.
__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
