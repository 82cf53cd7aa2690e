#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Checks the #include lines of daemon/ against the layers.

base < core < adapters < services < composition (the files directly in
daemon/). A file includes its own layer and lower ones only, and each library
is named where its row below says, and nowhere else.

  check_layers.py [ROOT]       checks ROOT/daemon; exit status 1 on a finding
  check_layers.py --self-test  checks that the check finds what it is for
"""
import pathlib
import re
import sys
import tempfile

LAYERS = ["base", "core", "adapters", "services"]
COMPOSITION = len(LAYERS)

# Library headers, and the one layer in which exactly one .c includes them.
ONE_FILE = {
    "hiredis": (r"hiredis/(?!hiredis)", "adapters"),
    "hiredis' TLS": (r"hiredis/hiredis|openssl/", "adapters"),
    "libpq": (r"libpq-fe\.h$|libpq/|postgresql/|pg_config", "adapters"),
    "libmicrohttpd": (r"microhttpd", "adapters"),
    "libsystemd": (r"systemd/", "adapters"),
    "inih": (r"ini\.h$", "core"),
}
# libuv drives all adapters, and the loop is made at the top.
UV = re.compile(r"uv\.h$|uv/")
UV_COMPOSITION = {"daemon_internal.h"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


def layer_of(path):
    """Layer number of a path relative to daemon/, None when there is none."""
    if len(path.parts) == 1:
        return COMPOSITION
    return LAYERS.index(path.parts[0]) if path.parts[0] in LAYERS else None


def layer_name(number):
    return "composition" if number == COMPOSITION else LAYERS[number]


def check_project_include(daemon, path, included):
    """A finding, or None; for includes that name a file of daemon/."""
    target = pathlib.PurePosixPath(included)
    if ".." in target.parts:
        return "includes by a relative path"
    own, other = layer_of(path), layer_of(target)
    if other is None or not (daemon / target).is_file():
        return None
    if other > own:
        return f"goes up from {layer_name(own)} to {layer_name(other)}"
    return None


def check_uv(path):
    if path.parts[0] == "adapters" or str(path) in UV_COMPOSITION:
        return None
    return "libuv is for adapters and daemon_internal.h only"


def check_tree(root):
    """All findings of a source tree, each one line."""
    daemon = pathlib.Path(root) / "daemon"
    findings = []
    users = {library: [] for library in ONE_FILE}
    sources = sorted(p for p in daemon.rglob("*") if p.suffix in (".c", ".h"))
    for source in sources:
        path = source.relative_to(daemon)
        if layer_of(path) is None:
            findings.append(f"daemon/{path}: is in no layer")
            continue
        for included in INCLUDE.findall(source.read_text()):
            found = check_project_include(daemon, path, included)
            if UV.match(included):
                found = found or check_uv(path)
            for library, (pattern, _) in ONE_FILE.items():
                if re.match(pattern, included):
                    users[library].append(path)
            if found:
                findings.append(f"daemon/{path}: {included}: {found}")
    for library, (_, layer) in ONE_FILE.items():
        files = sorted(set(users[library]))
        good = len(files) == 1 and files[0].suffix == ".c" and \
            files[0].parts[0] == layer
        if not good:
            names = ", ".join(map(str, files)) or "no file"
            findings.append(f"{library}: belongs into one .c of {layer}/, is "
                            f"included by {names}")
    return findings


GOOD_TREE = {
    "base/buf.h": "#include <stddef.h>\n",
    "base/buf.c": '#include "base/buf.h"\n',
    "core/options.c": '#include <ini.h>\n#include "base/buf.h"\n',
    "core/options.h": '#include "base/buf.h"\n',
    "adapters/redis.c": "#include <hiredis/async.h>\n#include <uv.h>\n",
    "adapters/tls.c": "#include <hiredis/hiredis_ssl.h>\n"
                      "#include <openssl/ssl.h>\n",
    "adapters/redis.h": '#include "core/options.h"\n',
    "adapters/pg.c": "#include <libpq-fe.h>\n",
    "adapters/http.c": "#include <microhttpd.h>\n",
    "adapters/notify.c": "#include <systemd/sd-daemon.h>\n",
    "services/flusher.c": '#include "adapters/redis.h"\n',
    "services/flusher.h": "",
    "daemon.h": '#include "services/flusher.h"\n',
    "main.c": '#include "daemon.h"\n',
    "daemon_internal.h": "#include <uv.h>\n",
}
# Each changes one file of the good tree; the finding must name the file.
PLANTED = [
    ("base/buf.h", '#include "core/options.h"\n'),
    ("base/buf.c", "#include <uv.h>\n"),
    ("core/options.h", '#include "adapters/redis.h"\n'),
    ("core/options.h", '  #  include "../adapters/redis.h"\n'),
    ("core/options.c", "#include <ini.h>\n#include <libpq-fe.h>\n"),
    ("core/options.h", "#include <ini.h>\n"),
    ("adapters/redis.h", '#include "services/flusher.h"\n'),
    ("adapters/redis.h", "#include <hiredis/hiredis.h>\n"),
    ("adapters/redis.c", "#include <hiredis/async.h>\n"
                         "#include <openssl/err.h>\n"),
    ("adapters/redis.c", "#include <hiredis/async.h>\n#include <ini.h>\n"),
    ("services/flusher.c", "#include <systemd/sd-daemon.h>\n"),
    ("services/flusher.c", "#include <uv.h>\n"),
    ("services/flusher.h", '#include "daemon.h"\n'),
    ("services/flusher.h", '#include <daemon.h>\n'),
    ("daemon.h", "#include <microhttpd.h>\n"),
    ("daemon.h", "#include <uv.h>\n"),
    ("extra/file.c", ""),
]


def findings_of(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root) / "daemon" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_tree(root)


def self_test():
    failures = [f"the good tree: {f}" for f in findings_of(GOOD_TREE)]
    for name, text in PLANTED:
        found = findings_of({**GOOD_TREE, name: text})
        if not any(name in f for f in found):
            failures.append(f"not found: {text.strip()} in {name}: {found}")
    gone = {k: v for k, v in GOOD_TREE.items() if k != "adapters/pg.c"}
    if not any("libpq" in f for f in findings_of(gone)):
        failures.append("not found: libpq is included nowhere")
    return failures


def main(argv):
    if argv[1:] == ["--self-test"]:
        findings = self_test()
    else:
        root = argv[1] if len(argv) > 1 else pathlib.Path(__file__).parents[1]
        findings = check_tree(root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
