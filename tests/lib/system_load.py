#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Likes without pause until SIGTERM, from clients that do what good ones do:
when a connection breaks they connect again, at once, and send again.

    system_load.py FIRST_USER    each like is of a user of its own from there on

Prints how many were answered with 1 or 0 ("acked"), how many connections broke
("broken"), and what no client should ever see ("failed"): a connect that was
refused, an error reply, no answer in 20 s.
"""
import itertools
import signal
import socket
import sys
import threading

ADDRESSES = ["/run/likesyncd/likesyncd.sock", ("127.0.0.1", 6480)]
CLIENTS = 8
POSTS = 50
PAUSE = 0.002   # s between the likes of a client

stop = threading.Event()
users = itertools.count(int(sys.argv[1]))   # next() is atomic
lock = threading.Lock()
acked = 0
broken = 0
failed = []


def connect(address):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    connection = socket.socket(family)
    connection.settimeout(20)
    connection.connect(address)
    return connection


def ask(connection, *words):
    """The reply's line; empty when the connection broke before it came."""
    request = b"*%d\r\n" % len(words)
    for word in words:
        word = str(word).encode()
        request += b"$%d\r\n%s\r\n" % (len(word), word)
    reply = b""
    try:
        connection.sendall(request)
        while not reply.endswith(b"\r\n"):
            more = connection.recv(4096)
            if not more:
                return b""
            reply += more
    except (ConnectionResetError, BrokenPipeError):
        return b""
    return reply.strip()


def like(address, connection, user):
    """Until it is answered; returns the connection that is left."""
    global acked, broken
    while True:
        reply = ask(connection, "LIKE", user, user % POSTS)
        if reply:
            break
        with lock:
            broken += 1
        connection.close()
        connection = connect(address)
    with lock:
        if reply in (b":0", b":1"):
            acked += 1
        else:
            failed.append(f"user {user}: {reply}")
    return connection


def client(address):
    try:
        connection = connect(address)
        while not stop.is_set():
            connection = like(address, connection, next(users))
            stop.wait(PAUSE)
        connection.close()
    except OSError as error:
        with lock:
            failed.append(f"{address}: {error!r}")


def main():
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threads = [threading.Thread(target=client, args=(address,))
               for address in ADDRESSES for _ in range(CLIENTS // 2)]
    for thread in threads:
        thread.start()
    stop.wait()   # though all clients may have failed
    for thread in threads:
        thread.join()
    print(f"acked {acked}\nbroken {broken}\nfailed {len(failed)}")
    for line in failed[:5]:
        print(line)


main()
