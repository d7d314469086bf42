#!/bin/sh
# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
#
# Prints the path of a Python 3.11 or 3.12 that can build this package; explains what is missing otherwise.
# Usage: tools/find_python.sh [PYTHON]     with PYTHON only that one is considered
set -u

# Prints "<version> <missing parts>"; runs nothing but the interpreter itself, because a shim may lead nowhere.
inspect='
import sys, sysconfig, os
from importlib.util import find_spec
version = "%d.%d" % sys.version_info[:2]
missing = []
if version not in ("3.11", "3.12"):
    missing.append("version")
if not (find_spec("venv") and find_spec("ensurepip")):
    missing.append("venv")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    missing.append("headers")
print(version, *missing)
'

candidates() {
    if [ -n "${1:-}" ]; then
        echo "$1"
        return
    fi
    printf '%s\n' python3.11 python3.12 python3 python /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3
    if command -v pyenv >/dev/null 2>&1; then
        ls -d "$(pyenv root)"/versions/3.1[12].*/bin/python 2>/dev/null
    fi
}

best=""
best_missing=""
seen=""
for candidate in $(candidates "${1:-}"); do
    found=$("$candidate" -c "$inspect" 2>/dev/null) || continue
    seen="$seen $candidate(${found%% *})"
    missing=${found#"${found%% *}"}
    case "$missing" in
        "") command -v "$candidate"; exit 0 ;;
        *version*) ;;
        *) [ -n "$best" ] || { best=$candidate; best_version=${found%% *}; best_missing=$missing; } ;;
    esac
done

{
    if [ -n "$best" ]; then
        packages=""
        case "$best_missing" in *venv*) packages="$packages python$best_version-venv"
            echo "$best ($best_version) lacks the modules venv and ensurepip, which create .venv." ;; esac
        case "$best_missing" in *headers*) packages="$packages python$best_version-dev"
            echo "$best ($best_version) lacks its C headers (Python.h), which the ROS messages are compiled with." ;; esac
        echo "On Debian and Ubuntu:  sudo apt-get install$packages"
    elif [ -n "${1:-}" ] && [ -z "$seen" ]; then
        echo "PYTHON=$1 does not run."
    else
        echo "Python 3.11 or 3.12 is needed; found:${seen:- no Python at all}."
        echo "On Debian 12:                 sudo apt-get install python3.11 python3.11-venv python3.11-dev"
        echo "On Ubuntu 24.04:              sudo apt-get install python3.12 python3.12-venv python3.12-dev"
        echo "Installed somewhere unusual:  make PYTHON=/path/to/python3.11 ..."
    fi
} >&2
exit 1
