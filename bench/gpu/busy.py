#!/usr/bin/env python3
"""How busy the GPU is, from NVML, the driver's library that nvidia-smi shows.

    busy.py [GPU]

Prints a line five times a second until its standard input ends: Unix time, utilisation and SM activity in percent, "-" for what the
driver does not tell.

  utilisation  nvidia-smi's utilization.gpu: the share of the last sixth of a second to a second in which some kernel ran, be it on one of a
               hundred processors
  SM activity  the mean share of the GPU's processors that had work; Hopper and later
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

PERIOD = 0.2  # seconds; GPM wants at least 0.1 between two samples
SM_ACTIVITY = 2  # NVML_GPM_METRIC_SM_UTIL


class Utilization(ctypes.Structure):  # nvmlUtilization_t
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class GpmSupport(ctypes.Structure):  # nvmlGpmSupport_t
    _fields_ = [("version", ctypes.c_uint), ("supported", ctypes.c_uint)]


class GpmMetric(ctypes.Structure):  # nvmlGpmMetric_t
    _fields_ = [("id", ctypes.c_uint), ("result", ctypes.c_int), ("value", ctypes.c_double),
                ("short_name", ctypes.c_char_p), ("long_name", ctypes.c_char_p), ("unit", ctypes.c_char_p)]


class GpmMetrics(ctypes.Structure):  # nvmlGpmMetricsGet_t, which has room for some hundreds
    _fields_ = [("version", ctypes.c_uint), ("count", ctypes.c_uint), ("from_sample", ctypes.c_void_p), ("to_sample", ctypes.c_void_p),
                ("metrics", GpmMetric * 512)]


class Gpu:
    def __init__(self, name: str):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        if self.nvml.nvmlInit_v2() != 0:
            raise OSError("NVML does not start")
        found = (self.nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(self.device)) if name.isdigit()
                 else self.nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self.device)))
        if found != 0:
            raise OSError(f"NVML has no GPU {name}")
        self.before = self.sample() if self.has_gpm() else None

    def has_gpm(self) -> bool:
        support = GpmSupport(version=1)
        try:
            return self.nvml.nvmlGpmQueryDeviceSupport(self.device, ctypes.byref(support)) == 0 and support.supported != 0
        except AttributeError:  # an older driver
            return False

    def sample(self):
        sample = ctypes.c_void_p()
        if self.nvml.nvmlGpmSampleAlloc(ctypes.byref(sample)) != 0:
            return None
        if self.nvml.nvmlGpmSampleGet(self.device, sample) != 0:
            self.nvml.nvmlGpmSampleFree(sample)
            return None
        return sample

    def utilization(self):
        value = Utilization()
        return value.gpu if self.nvml.nvmlDeviceGetUtilizationRates(self.device, ctypes.byref(value)) == 0 else None

    def sm_activity(self):
        """Since the last call."""
        if self.before is None:
            return None
        now = self.sample()
        if now is None:
            return None
        metrics = GpmMetrics(version=1, count=1, from_sample=self.before.value, to_sample=now.value)
        metrics.metrics[0].id = SM_ACTIVITY
        good = self.nvml.nvmlGpmMetricsGet(ctypes.byref(metrics)) == 0 and metrics.metrics[0].result == 0
        self.nvml.nvmlGpmSampleFree(self.before)
        self.before = now
        return metrics.metrics[0].value if good else None


class Busy:
    """`with Busy() as busy`: watches meanwhile, in a process of its own. One thread."""

    def __init__(self):
        self.lines: list[str] = []
        self.why_not = ""  # at the end: what went wrong

    def __enter__(self) -> "Busy":
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
        self.process = subprocess.Popen([sys.executable, str(Path(__file__).resolve()), gpu], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout))
        self.reader.start()
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.reader.join()
        self.why_not = self.process.stderr.read().strip()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.wait()

    def means(self, window: list[float]) -> dict:
        """Over the second half of a measurement, because the utilisation is that of up to a second before."""
        begin, end = window
        kept = [fields for fields in map(str.split, self.lines) if (begin + end) / 2 <= float(fields[0]) <= end]
        return {"busy": mean([fields[1] for fields in kept]), "sm_activity": mean([fields[2] for fields in kept])}


def mean(texts: list[str]):
    values = [float(text) for text in texts if text != "-"]
    return round(sum(values) / len(values), 1) if values else None


def main() -> None:
    try:
        gpu = Gpu(sys.argv[1] if len(sys.argv) > 1 else "0")
    except (OSError, AttributeError) as error:
        sys.exit(f"busy: {error}")
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.wait(PERIOD):
        values = (gpu.utilization(), gpu.sm_activity())
        print(f"{time.time():.3f}", *("-" if value is None else f"{value:.1f}" for value in values), flush=True)


if __name__ == "__main__":
    main()
