"""The service on a disk that fills up: a small file system where root can mount one, else a limit on file sizes."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import tempfile
import time
import urllib.error
from pathlib import Path

MEGABYTE = 1 << 20
SPACE, BALLAST = 6 * MEGABYTE, 2 * MEGABYTE
PATIENCE = 120.0


class SmallDisk:
    """A file system in memory with a file on it that takes up space until `free`."""

    what = "a file system of 6 MB"
    limits = None

    def __init__(self, folder):
        self.folder = folder / "disk"
        self.folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs", str(self.folder)]
        subprocess.run(mount, check=True, capture_output=True)
        (self.folder / "ballast").write_bytes(bytes(BALLAST))

    def free(self, service):
        (self.folder / "ballast").unlink()

    def close(self):
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


class SmallFiles:
    """No file may grow beyond a size until `free`."""

    what = "a limit of 2 MB a file"

    def __init__(self, folder):
        self.folder = folder / "disk"
        self.folder.mkdir()

    def limits(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (BALLAST, resource.RLIM_INFINITY))

    def free(self, service):
        self.limits = None
        if service is not None:
            most = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, most)

    def close(self):
        pass


def small_disk(folder):
    """The better of the two that can be had."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            return SmallDisk(folder)
    with contextlib.suppress(FileExistsError):
        (folder / "disk").mkdir()
    (folder / "disk").rmdir()
    return SmallFiles(folder)


def refusal(ask, address, count):
    """The code with which a decision is refused, None if it is made."""
    try:
        ask(address, "/v1/decisions", {"bandit": "default", "count": count})
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]["code"] if error.code == 503 else f"status {error.code}"
    return None


def until(condition, what):
    """Wait for a condition, for long."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > limit:
            raise RuntimeError(f"it never came to this: {what}")
        time.sleep(0.01)


def full_disk(make_campaign, ask, seed):
    """Fill it, free it; fill it again, and stop and start on the full disk. Whether nothing was lost."""
    good = True
    for ending in (None, signal.SIGKILL, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as folder:
            disk = small_disk(Path(folder))
            try:
                good &= _fill_and_free(make_campaign, ask, seed, Path(folder), disk, ending)
            finally:
                disk.close()
    return good


def _fill_and_free(make_campaign, ask, seed, folder, disk, ending):
    campaign = make_campaign(folder, seed, disk.folder / "state", disk.limits)
    name = "goes on" if ending is None else f"ends by {ending.name} while it is full"
    print(f"full disk ({disk.what}; the service {name}):")
    try:
        campaign.crowd.send("go")
        until(lambda: refusal(ask, campaign.address, 200) == "storage", "503 storage")
        time.sleep(1.0)  # clients ask on, and are refused
        if ending is None:
            disk.free(campaign.service)
        else:
            _end_and_start(campaign, ending, disk)
        until(lambda: refusal(ask, campaign.address, 1) is None, "decisions again")
        time.sleep(1.0)
        campaign.crowd.send("pause")
        statuses = campaign.finish()
    finally:
        campaign.close()
    print(f"  {statuses.get('503', 0)} requests were refused with 503")
    return campaign.report() and statuses.get("503", 0) > 0


def _end_and_start(campaign, ending, disk):
    """End the service while nothing can be written, try to start it, free space, start it."""
    campaign._end(campaign.service, ending)
    campaign.crowd.send("pause")
    service = campaign.start(wait=False)
    try:
        service.wait()
        print("  it starts on the full disk")
        service.stop(signal.SIGKILL)
    except RuntimeError:
        code, said = service.process.returncode, service.text().strip()
        print(f"  it does not start on the full disk, exit code {code}: {said.splitlines()[-1][:200]}")
        if code != 1:
            campaign.mismatches.append(f"exit code {code} on a full disk: {said[-500:]}")
    disk.free(None)
    campaign.service = campaign.start()
    campaign.crowd.send("go")
