#!/usr/bin/env bash
# Debian packages the client tests need beside Java 17, Maven, Go 1.26, Node 20 with npm, Python 3.11 and Rust 1.95.
# Needs root; a CI step runs it once.
#   protobuf-compiler  the build script of the Rust client
#   python3-venv       the Python client gets an environment of its own
#   g++ make           the Rust client's compression libraries are C
#   libssl-dev pkg-config iproute2  its TLS is OpenSSL
set -euo pipefail
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends protobuf-compiler python3-venv g++ make libssl-dev pkg-config iproute2
