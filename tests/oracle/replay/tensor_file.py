"""Vectors of named tensors in safetensors files, in double precision here."""
import json
import struct

import numpy as np

TYPES = {"F32": np.float32, "F64": np.float64, "I32": np.int32}


def write(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        kind = next(kind for kind, dtype in TYPES.items() if dtype == value.dtype)
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))


def read(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8:8 + length]), raw[8 + length:]
    return {name: np.frombuffer(body[slice(*t["data_offsets"])], TYPES[t["dtype"]]).reshape(t["shape"]).astype(float)
            for name, t in header.items() if name != "__metadata__"}
