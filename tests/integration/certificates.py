# SPDX-License-Identifier: MIT
"""Certificates for tests, made by the openssl of the system."""
import ipaddress

from servers import run

# As OpenSSL 3.4 and newer takes them.
EXPIRED = ["-not_before", "20200101000000Z", "-not_after", "20200102000000Z"]
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """A CA and what it signs, all in one directory."""

    def __init__(self, directory, name="ca"):
        self.dir = directory
        self.name = name
        self.file = directory / f"{name}.pem"
        self.key = directory / f"{name}.key"
        run(["openssl", "req", "-x509", *KEY, "-keyout", self.key, "-out",
             self.file, "-days", "2", "-subj", f"/CN=test {name}"])

    def issue(self, *names, validity=("-days", "2")):
        """(certificate, key) for host names and IP addresses."""
        base = self.dir / f"{self.name}-{len(list(self.dir.iterdir()))}"
        cert, key = base.with_suffix(".pem"), base.with_suffix(".key")
        request, extensions = base.with_suffix(".csr"), base.with_suffix(".ext")
        extensions.write_text("subjectAltName=" + ",".join(map(general, names)))
        run(["openssl", "req", *KEY, "-keyout", key, "-out", request, "-subj",
             "/CN=test"])
        run(["openssl", "x509", "-req", "-in", request, "-CA", self.file,
             "-CAkey", self.key, *validity, "-extfile", extensions, "-out",
             cert])
        return cert, key


def general(name):
    """As the extension of a certificate spells it."""
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"
