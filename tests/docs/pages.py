"""Runs the blocks of commands of Markdown pages: pages.py PHAROS ROOT PAGE...

Each page has a directory and a shell of its own, with PHAROS first on the PATH. Blocks of `sh` run in order; a block whose last command is
`pharos serve` runs beside the rest, as in a terminal of its own, until the page ends. Blocks of `python` run with the Python of this
program. Each line of a `text` block must appear in what the block before it printed. Commands that build or install, and blocks that
run the benchmark of the main job or all tests, are left out: other steps run those.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

PHAROS, ROOT, PAGES = sys.argv[1], sys.argv[2], sys.argv[3:]
BUILDS = re.compile(r"^(cargo build|pip install|export PATH=)")
ELSEWHERE = re.compile(r"^(cargo run|\./test)", re.M)
SECONDS = 120


def blocks(page):
    """Yields (line, language, text) of each fenced block."""
    language, lines, start = None, [], 0
    for number, line in enumerate(open(os.path.join(ROOT, page)), 1):
        if language is None and line.startswith("```"):
            language, lines, start = line.strip("`\n "), [], number
        elif language is not None and line.startswith("```"):
            yield start, language, "".join(lines)
            language = None
        elif language is not None:
            lines.append(line)


class Page:
    """One page's directory, its brokers and what its commands printed."""

    def __init__(self, name, directory):
        self.name, self.directory, self.brokers, self.printed = name, directory, [], ""
        self.environment = dict(os.environ, PATH=os.path.dirname(PHAROS) + ":" + os.environ["PATH"], HOME=directory)

    def fail(self, line, reason):
        print(f"not ok {self.name}:{line}: {reason}")
        for log in sorted(os.listdir(self.directory)):
            if log.startswith("serve."):
                print(f"# {log}\n{open(os.path.join(self.directory, log)).read()[-2000:]}")
        sys.exit(1)

    def run(self, line, command, program):
        done = subprocess.run(program, cwd=self.directory, env=self.environment, text=True, timeout=SECONDS,
                              input=command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.printed = done.stdout
        if done.returncode != 0:
            self.fail(line, f"exit status {done.returncode}\n{command}\n{done.stdout}")

    def serve(self, line, command):
        """Starts a broker in a terminal of its own, and waits until it accepts clients."""
        log = os.path.join(self.directory, f"serve.{line}")
        # The previous one of this page may still be ending.
        for broker in self.brokers:
            try:
                broker.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.fail(line, "the page starts a broker while its previous one runs")
        with open(log, "w") as out:
            broker = subprocess.Popen(["bash", "-ec", command.replace("pharos serve", "exec pharos serve")], cwd=self.directory, env=self.environment,
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.brokers = [broker]
        deadline = time.monotonic() + SECONDS
        while "admin: http" not in open(log).read():
            if broker.poll() is not None or time.monotonic() > deadline:
                self.fail(line, f"the broker did not start\n{command}")
            time.sleep(0.1)
        self.printed = open(log).read()

    def expect(self, line, text):
        # Columns may be wider or narrower, and the numbers of ledgers others.
        def squeeze(text):
            return re.sub(r"\b\d+:(\d+)\b", r"L:\1", re.sub(r"\s+", " ", text).strip())

        printed = [squeeze(one) for one in self.printed.splitlines()]
        for wanted in map(squeeze, text.splitlines()):
            if wanted and wanted not in printed:
                self.fail(line, f"the page shows {wanted!r}; the command printed\n{self.printed}")

    def end(self):
        for broker in self.brokers:
            if broker.poll() is None:
                broker.send_signal(signal.SIGTERM)
                if broker.wait(SECONDS) != 0:
                    self.fail(0, f"the broker ended with status {broker.returncode}")


for name in PAGES:
    with tempfile.TemporaryDirectory() as directory:
        page = Page(name, directory)
        for line, language, text in blocks(name):
            if language == "sh" and not ELSEWHERE.search(text):
                command = "\n".join(one for one in text.splitlines() if not BUILDS.match(one)).strip()
                if not command:
                    continue
                if re.search(r"^pharos serve\b", command, re.M):
                    page.serve(line, command)
                else:
                    page.run(line, command, ["bash", "-eo", "pipefail", "-s"])
            elif language == "python":
                page.run(line, text, [sys.executable, "-"])
            elif language == "text":
                page.expect(line, text)
                continue
            else:
                continue
            print(f"ok {name}:{line}", flush=True)
        page.end()
