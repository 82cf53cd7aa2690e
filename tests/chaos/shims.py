# SPDX-License-Identifier: MIT
"""Libraries that are preloaded into a server, and steered while it runs.

    clock = Clock(bed)
    redis = bed.redis(preload=[clock])
    clock.move(3600)

    nth = Nth(bed)
    daemon = bed.daemon(redis, pg, preload=[nth])       # needs a plain build
    nth.arm("write", 3, "EPIPE")
    ...
    seen, failed = nth.disarm()

    disk = Disk(bed)
    cluster = bed.postgres(preload=[disk])
    disk.fill(cluster.data / "base")    # for Redis' AOF: redis.dir
    ...
    disk.free()

    power = Power(bed)
    redis = bed.redis(preload=[power])
    redis.kill9()
    lost, since = power.cut(redis.aof())

One of them may be preloaded into several processes, which then share its state. The
sources are in shims/, built with LIKESYNCD_FAULTS."""
import errno
import mmap
import os
import shutil
import struct

from harness import BUILD, Failed

PAGE = 4096


class Shim:
    """A library and its file; both may be used by any user."""

    name = None
    plain = False       # does not go with sanitizers

    def __init__(self, bed):
        source = BUILD / "tests" / "chaos" / "shims" / f"{self.name}.so"
        if not source.exists():
            raise Failed(f"{source} is not built: LIKESYNCD_FAULTS is off")
        directory = bed.make_dir(self.name)
        self.library = directory / source.name
        shutil.copy(source, self.library)
        self.file = directory / "page"
        self.file.write_bytes(bytes(PAGE))
        self.file.chmod(0o666)
        with self.file.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), PAGE)

    def env(self):
        return {f"CHAOS_{self.name.upper()}": str(self.file)}

    def get(self, word):
        return struct.unpack_from("=q", self.page, 8 * word)[0]

    def put(self, word, value):
        struct.pack_into("=q", self.page, 8 * word, value)

    def loaded(self):
        """How many processes have had it."""
        return self.get(0)


class Clock(Shim):
    """Wall time, moved; clocks that only go forward stay as they are."""

    name = "clock"

    def move(self, seconds):
        """So far from the true time, either way."""
        self.put(1, int(seconds * 1_000_000))


class Nth(Shim):
    """Calls that fail: of "alloc" (malloc, calloc, realloc), "write" (to sockets:
    write, writev, send, sendto, sendmsg) or "connect"."""

    name = "nth"
    plain = True
    FAMILIES = ("alloc", "write", "connect")
    ARMED, FAMILY, NTH, TIMES, ERROR, FAILED, SEEN = range(1, 8)

    def arm(self, family, nth, error=None, times=1):
        """From now on the nth call of the family fails, and those after it up
        to `times`; nth=0 only counts. `error`: a name of errno."""
        error = error or {"alloc": "ENOMEM", "write": "EPIPE",
                          "connect": "ECONNREFUSED"}[family]
        self.put(self.ARMED, 0)
        self.put(self.FAMILY, self.FAMILIES.index(family))
        self.put(self.NTH, nth)
        self.put(self.TIMES, times)
        self.put(self.ERROR, getattr(errno, error))
        self.put(self.FAILED, 0)
        for n in range(len(self.FAMILIES)):
            self.put(self.SEEN + n, 0)
        self.put(self.ARMED, 1)

    def seen(self, family):
        """How many there were since it was armed."""
        return self.get(self.SEEN + self.FAMILIES.index(family))

    def failed(self):
        return self.get(self.FAILED)

    def disarm(self):
        """(how many calls of the family there were, how many of them failed).
        None failed: a whole round passed, and N need not go higher."""
        self.put(self.ARMED, 0)
        return self.get(self.SEEN + self.get(self.FAMILY)), self.failed()


class Disk(Shim):
    """A disk that is full for the files below a directory: none of them grows.
    No need of root, of a mount or of many bytes."""

    name = "disk"
    UNDER_WORD, UNDER_BYTES = 3, 256

    def __init__(self, bed, under=None):
        super().__init__(bed)
        if under is not None:
            self.under(under)

    def under(self, directory):
        text = f"{directory}/".encode()
        if len(text) >= self.UNDER_BYTES:
            raise ValueError(f"too long: {directory}")
        start = 8 * self.UNDER_WORD
        self.page[start:start + self.UNDER_BYTES] = \
            text.ljust(self.UNDER_BYTES, b"\0")

    def fill(self, directory=None):
        """From now on; below `directory`, if it was not said before."""
        if directory is not None:
            self.under(directory)
        if not self.page[8 * self.UNDER_WORD]:
            raise ValueError("under which directory?")
        self.put(1, 1)

    def free(self):
        """There is space again."""
        self.put(1, 0)

    def refused(self):
        """How many writes found no space, ever."""
        return self.get(2)


class Power(Shim):
    """A power cut: of a file only that is left which was brought to the disk."""

    name = "power"
    FILES, WORDS = 64, 4
    UNDER_WAY, LIST = 2, 5      # words

    def slow(self, seconds):
        """Each sync takes so much longer."""
        self.put(1, int(seconds * 1_000_000))

    def synced(self, path):
        """How long the file was at its last sync that ended well; up to when
        (time.monotonic) that is all that was to be written; and how long it took.
        (0, None, 0) without one."""
        inode, size = path.stat().st_ino, self.FILES * self.WORDS
        for slot in range(self.LIST, self.LIST + size, self.WORDS):
            if self.get(slot) == inode:
                return self.get(slot + 1), self.get(slot + 2) / 1e6, \
                    self.get(slot + 3) / 1e6
        return 0, None, 0

    def under_way(self):
        """When the sync began that is under way, or was when its process was
        killed; None without one."""
        return self.get(self.UNDER_WAY) / 1e6 or None

    def cut(self, path):
        """To a file that nobody has open: (bytes that are gone, since when they
        are)."""
        size, since, _ = self.synced(path)
        lost = path.stat().st_size - size
        if lost > 0:
            os.truncate(path, size)
        return max(lost, 0), since
