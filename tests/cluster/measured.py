"""What a page of figures says of the machine, and what brokers use of it."""

import os
import platform
import subprocess
import time


def cpu_seconds(brokers):
    """Of all of them, since each was started."""
    ticks = 0
    for broker in brokers:
        with open(f"/proc/{broker.process.pid}/stat") as file:
            ticks += sum(int(field) for field in file.read().rsplit(")", 1)[1].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mb(brokers):
    """Of all of them, now."""
    pages = 0
    for broker in brokers:
        with open(f"/proc/{broker.process.pid}/statm") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Run:
    """When a run began, and on what."""

    def __init__(self, pharos):
        self.pharos, self._began, self._load = pharos, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), os.getloadavg()[0]
        self._started = time.monotonic()

    def lines(self, *others):
        """For the top of a page; `others` are the versions of what else took part."""
        version = subprocess.run([self.pharos, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        git = ["git", "-C", os.path.dirname(os.path.abspath(__file__))]
        commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False).stdout.strip()
        with open("/proc/meminfo") as file:
            memory = int(file.readline().split()[1]) / 2**20
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())
        machine = f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}, load average before {self._load:.2f}"
        parts = [f"{version}, scripts at commit {commit}{'+' if changed else ''}", *others]
        return [
            f"- machine: {machine}",
            f"- {'; '.join(parts)}",
            f"- began {self._began}, took {(time.monotonic() - self._started) / 60:.1f} minutes",
        ]
