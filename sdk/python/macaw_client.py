"""Makes a training function a client of a Macaw fleet (docs/guides/own-program.md).

Copy this file beside your program; it needs NumPy alone. The worker starts the program by
`workers.command` and keeps it, so whatever it loads before serve() is there for every turn.

    import macaw_client

    def train(weights, task):              # weights: {"0.weight": array, …}, to change in place
        ...                                # your epochs on the rows of task.name, by task.local["lr"]
        return None, rows, steps, losses   # rows used, steps taken, the sum of the rows' losses

    macaw_client.serve(train, name="hospital trainer 2.1, torch 2.4")

A program that trains one model by several processes (torch.distributed) begins with program(ranks=…).
"""
import json
import math
import mmap
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import traceback

import numpy as np

PROTOCOL = 1


class Task:
    """What the worker asks for. Of both kinds: client (its number in the run), name (its name in your
    declared data), split ("train", "validation", "test") and sums, the run's names for `losses`.
    To train: round, phase, stage, seed, rows (how many were declared), local (the keys of [local] as a
    dict; lr has the round's schedule in it), trainable (the names of the tensors to train), personal,
    trial (whether the worker only tries the program: one step of two rows, before the run);
    mu, anchor and correction: add mu * (w - anchor) + correction to each gradient, before weight
    decay and momentum (only of serve(…, corrections=True)). To evaluate: rows begin to end - 1.
    With workers.give_rows, also x, y and lengths: arrays of your own with the rows, as the model gets
    them; lengths is None unless rows are padded."""

    def __init__(self, fields):
        self.__dict__.update(fields)

    def random(self):
        """A generator that depends on the run's seed, the round and the client: the same each time."""
        return np.random.default_rng([self.seed, self.round, self.phase, self.stage, self.client])


class _Memory:
    """The vectors that program and worker share, as arrays by name."""

    def __init__(self, hello):
        self.places = hello["memory"]
        self.layout = hello["layout"]
        self.dtype = np.dtype(hello["dtype"])
        self.bytes = mmap.mmap(int(os.environ["MACAW_MEMORY"]), self.places["bytes"])

    def arrays(self, place):
        at = self.places[place]
        return {t["name"]: np.ndarray(t["shape"], self.dtype, self.bytes, at + t["offset"])
                for t in self.layout}

    def take(self, weights):
        """Checks what a train function gave back, and writes what is not there yet."""
        ends = self.arrays("end")
        if not isinstance(weights, dict) or weights.keys() != ends.keys():
            names = sorted(weights) if isinstance(weights, dict) else type(weights).__name__
            raise TypeError(f"train returned {names} instead of the weights {sorted(ends)}")
        size = max((t["offset"] + ends[t["name"]].nbytes for t in self.layout), default=0)
        memory = np.ndarray(size, np.uint8, self.bytes, self.places["end"])
        moved = {}
        for name, end in ends.items():
            array = weights[name]
            array = array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)
            if array.shape != end.shape or array.dtype != end.dtype:
                raise TypeError(f"train returned {name} as {array.dtype}{list(array.shape)}, "
                                f"the model has {end.dtype}{list(end.shape)}")
            if array.ctypes.data != end.ctypes.data or array.strides != end.strides:
                # Another view of this memory would change while the others are written.
                moved[name] = array.copy() if np.may_share_memory(array, memory) else array
        for name, array in moved.items():
            ends[name][...] = array


class _Rows:
    """The memory in which the worker gives rows and takes the model's outputs (workers.give_rows)."""

    def __init__(self, hello):
        self.features = np.dtype(hello["rows"]["features"])
        self.labels = np.dtype(hello["rows"]["labels"])
        self.dtype = np.dtype(hello["dtype"])
        self.shape = hello["input_shape"]
        self.bytes = None

    def map(self, at):
        if self.bytes is None or len(self.bytes) < at["bytes"]:
            self.bytes = mmap.mmap(int(os.environ["MACAW_ROWS"]), at["bytes"])

    def give(self, task, at):
        """Copies, since the next question writes over the memory."""
        self.map(at)
        rows = at["rows"]
        task.x = np.ndarray([rows, *self.shape], self.features, self.bytes, at["features"]).copy()
        task.y = np.ndarray([rows], self.labels, self.bytes, at["labels"]).copy()
        task.lengths = None
        if at["lengths"] is not None:
            task.lengths = np.ndarray([rows], np.int32, self.bytes, at["lengths"]).copy()

    def take(self, outputs, shape, at):
        """Checks the model's outputs, and writes them."""
        outputs = outputs.detach().cpu().numpy() if hasattr(outputs, "detach") else np.asarray(outputs)
        if list(outputs.shape) != shape:
            raise ValueError(f"the model's outputs have shape {list(outputs.shape)}, and the run's "
                             f"task needs {shape}")
        np.ndarray(shape, self.dtype, self.bytes, at["outputs"])[...] = outputs


def program(ranks=1):
    """Call it first, before anything looks at a GPU. Leaves this process the GPUs of its slot, a GPU
    a rank (CUDA_VISIBLE_DEVICES), and with ranks > 1 starts this program again for the ranks 1, 2, …,
    with what torch.distributed reads: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Returns
    this process's rank. Only rank 0 speaks with the worker; serve() hands the others what it is asked.
    They end when rank 0 does, and a rank that fails ends rank 0, which the worker starts again.
    serve() makes a group of the ranks unless you have made one. Any user of the machine can reach one
    made by MASTER_PORT; init_process_group(…, store=ranks_store(), rank=…, world_size=…) is for this
    user alone."""
    if "MACAW_LIFELINE" in os.environ:  # a rank that the lines below have started
        threading.Thread(target=_end_with_rank_0, daemon=True).start()
        return int(os.environ["RANK"])
    _take_gpus(ranks)
    if ranks > 1:
        _start_ranks(ranks)
    return 0


def _take_gpus(count):
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        files = pathlib.Path("/dev").glob("nvidia[0-9]*")
        there = sorted((file.name[6:] for file in files), key=int)
    else:
        there = [word for word in given.split(",") if word]
    if there:
        first = int(os.environ.get("MACAW_SLOT", 0)) * count
        mine = [there[(first + rank) % len(there)] for rank in range(min(count, len(there)))]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(mine)


def _start_ranks(count):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), MACAW_RANKS=str(count),
                      MACAW_RANKS_STORE=str(os.memfd_create("ranks")))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the ranks are all here
    lifeline, _ = os.pipe()  # the other end stays open until this process ends, however it does
    theirs = {name: value for name, value in os.environ.items()
              if name not in ("MACAW_CHANNEL", "MACAW_MEMORY", "MACAW_ROWS")}
    theirs["MACAW_LIFELINE"] = str(lifeline)
    store = int(os.environ["MACAW_RANKS_STORE"])
    for rank in range(1, count):
        child = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]], stdin=subprocess.DEVNULL, pass_fds=[lifeline, store],
            env={**theirs, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        threading.Thread(target=_watch, args=(child, rank), daemon=True).start()
    os.close(lifeline)


def _watch(child, rank):
    code = child.wait()
    if code != 0:
        print(f"rank {rank} ended with code {code}", file=sys.stderr, flush=True)
        os._exit(1)


def _end_with_rank_0():
    os.read(int(os.environ["MACAW_LIFELINE"]), 1)
    os._exit(0)


def ranks_store():
    """Where the ranks of program(ranks=…) find each other, for torch.distributed.init_process_group:
    a file in memory that they have inherited, which no other user can open, and which ends with
    them."""
    import datetime

    import torch.distributed as group

    store = group.FileStore(f"/proc/self/fd/{os.environ['MACAW_RANKS_STORE']}",
                            int(os.environ["MACAW_RANKS"]))
    store.set_timeout(datetime.timedelta(minutes=30))  # ranks may load their rows for long
    return store


class _Ranks:
    """The processes of program(ranks=…): each question goes to all of them, over gloo, as JSON and
    arrays. Nothing that arrives is code. sharded: vectors of the model stay with rank 0."""

    def __init__(self, sharded):
        import torch
        import torch.distributed as group

        self._torch, self._all, self._sharded = torch, group, sharded
        if not group.is_initialized():
            group.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                                     store=ranks_store(), rank=int(os.environ["RANK"]),
                                     world_size=int(os.environ["WORLD_SIZE"]))
        self._gloo = group.new_group(backend="gloo")
        self.rank = group.get_rank()

    def ask(self, function):
        """The same function; what it is called with goes to the other ranks first."""
        if function is None:
            return None

        def call(weights, task):
            about = dict(task.__dict__)
            if not about.get("mu"):
                about["anchor"] = None  # the weights themselves
            question = {"about": about, "weights": weights}
            if self._sharded:
                for name in {"anchor", "correction"} & about.keys():
                    about[name] = _shapes(about[name])
                question["weights"] = _shapes(weights)
            self._send(question)
            return function(weights, task)

        return call

    def end(self):
        self._send(None)

    def follow(self, functions):
        """Of the other ranks: does what rank 0 is asked, until rank 0 ends."""
        while (question := self._take()) is not None:
            about, weights = question["about"], question["weights"]
            if about["kind"] == "train" and about["anchor"] is None and not about.get("in_place"):
                about["anchor"] = weights if self._sharded else _copies(weights)
            functions[about["kind"]](weights, Task(about))

    def _send(self, question):
        arrays = []
        text = json.dumps(_packed(question, arrays)).encode()
        self._share(np.array([len(text)]))
        for array in (np.frombuffer(text, np.uint8), *arrays):
            self._share(array)

    def _take(self):
        size = self._share(np.zeros(1, np.int64))
        text = self._share(np.zeros(int(size[0]), np.uint8))
        return _unpacked(json.loads(text.tobytes()), self._share)

    def _share(self, array):
        tensor = self._torch.from_numpy(np.array(array))
        if tensor.numel() > 0:
            self._all.broadcast(tensor, src=0, group=self._gloo)
        return tensor.numpy()


class _Shape:
    """An array that the other ranks get as zeros of this shape, which take no memory."""

    def __init__(self, array):
        self.array = array


def _shapes(vectors):
    return vectors and {name: _Shape(array) for name, array in vectors.items()}


def _copies(vectors):
    return {name: array.copy() for name, array in vectors.items()}


def _packed(value, arrays):
    """As JSON has it; arrays are appended to `arrays`, in the order in which _unpacked meets them."""
    if isinstance(value, _Shape):
        return {"zeros": [value.array.dtype.str, *value.array.shape]}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": [value.dtype.str, *value.shape]}
    if isinstance(value, dict):
        return {"dict": [[key, _packed(one, arrays)] for key, one in value.items()]}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_packed(one, arrays) for one in value]
    return value


def _unpacked(value, share):
    """What _packed has packed; `share` fills an array."""
    if isinstance(value, list):
        return [_unpacked(one, share) for one in value]
    if not isinstance(value, dict):
        return value
    (kind, inside), = value.items()
    if kind == "zeros":
        return np.broadcast_to(np.zeros((), np.dtype(inside[0])), inside[1:])
    if kind == "array":
        return share(np.zeros(inside[1:], np.dtype(inside[0])))
    return set(inside) if kind == "set" else {key: _unpacked(one, share) for key, one in inside}


def _sums(losses):
    sums = losses if isinstance(losses, dict) else {"loss": losses}
    return {name: float(x) if math.isfinite(x) else None for name, x in sums.items()}  # JSON has no NaN


def _rate(name, rate):
    rate = None if rate is None else float(rate)  # of NumPy, too
    if rate is not None and not 0 <= rate < math.inf:
        raise ValueError(f"train returned {name} = {rate}: it is a number from 0 on, or None where "
                         "the steps are not those of SGD")
    return rate


def _train(train, memory, task):
    starts, weights = memory.arrays("start"), memory.arrays("end")
    if getattr(task, "in_place", False):  # the weights are there already; nothing is corrected
        starts = None
    else:
        for name, start in starts.items():
            start.flags.writeable = False
            weights[name][...] = start
    task.anchor = memory.arrays("anchor") if task.anchor else starts
    task.correction = memory.arrays("correction") if task.correction else None
    entries = [t["name"] for t in memory.layout if not t["buffer"]]
    kept = {t["name"]: keep for t, keep in zip(memory.layout, task.trainable or [])}
    task.trainable = {name for name in entries if kept.get(name, True)}
    answer = train(weights, task)
    if not isinstance(answer, tuple) or len(answer) not in (4, 5):
        raise TypeError("train must return (weights or None, rows, steps, losses), and may add rates")
    memory.take(weights if answer[0] is None else answer[0])
    told = {"rows": int(answer[1]), "steps": int(answer[2])}
    for name, count in told.items():
        if count < 0:
            raise ValueError(f"train returned {name} = {count}: it is a number from 0 on")
    if len(answer) == 5:
        told.update({name: _rate(name, answer[4][name]) for name in ("rate_sum", "a_norm1")})
    return told if answer[3] is None else {**told, "sums": _sums(answer[3])}


def _error(error, fatal, hidden):
    traceback.print_exc()  # to the worker's log
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if f.filename not in hidden]
    if not theirs and hidden == {__file__}:
        theirs = frames
    def place(frame):
        return f"{os.path.basename(frame.filename)}:{frame.lineno}"
    trace = [f"{place(f)} in {f.name}: {f.line}" for f in theirs[-5:]]
    return {"error": {"kind": type(error).__name__, "message": str(error), "fatal": fatal,
                      "where": place(theirs[-1]) if theirs else "", "trace": trace}}


def serve(train, evaluate=None, name="a Python program", corrections=False, outputs=None, fatal=False,
          hidden=(), in_place=False, sharded=False):
    """Answers the worker until it ends. train(weights, task) returns (weights or None for those that
    it changed in place, rows, steps, losses); evaluate(weights, task) returns the sums that task.sums
    names, as a dict. An exception leaves the client out of the round, with the exception's words.
    `name` becomes part of the run's numeric profile: put versions into it.

    train may return rates as well, {"rate_sum": …, "a_norm1": …}: the learning rates of its steps, added,
    and how far its optimizer goes with a gradient of 1, divided by the rate (the steps of plain SGD).
    SCAFFOLD and FedNova divide by them. Both None: it is no SGD, and these rules are refused. Without
    rates, it is taken to follow [local].

    With workers.give_rows, train may leave the losses None, and outputs(weights, task) may return the
    model's outputs for task.x instead of evaluate: the worker computes losses and metrics from them.
    in_place: train does without task.anchor where nothing is corrected; the weights are then in memory
    once instead of twice. fatal: an exception ends the run. hidden: files whose lines are left out of
    its words.

    After program(ranks=…) all ranks call serve, and each question calls the function in each of them
    with the same weights and task. What rank 0 returns counts, so its rows and losses are those of all
    ranks. An exception ends the program: its ranks may wait for each other. sharded: only rank 0 gets
    the numbers of weights, task.anchor and task.correction; for the others they are zeros of the same
    names and shapes, which take no memory. For models that the ranks divide (FSDP)."""
    ranks = _Ranks(sharded) if "MACAW_RANKS" in os.environ else None
    if ranks is not None and ranks.rank > 0:
        ranks.follow({"train": train, "evaluate": evaluate, "outputs": outputs})
        return
    if "MACAW_CHANNEL" not in os.environ:
        sys.exit("this program is started by macaw-worker: set workers.backend = \"process\" and "
                 f"workers.command = [\"python3\", {json.dumps(sys.argv[0])}]")
    sys.stdout.reconfigure(line_buffering=True)
    for variable in ("MACAW_CHANNEL", "MACAW_MEMORY", "MACAW_ROWS"):  # not for your own children
        if variable in os.environ:
            os.set_inheritable(int(os.environ[variable]), False)
    channel = socket.socket(fileno=int(os.environ["MACAW_CHANNEL"]))
    lines = channel.makefile("r", encoding="utf-8")

    def say(answer):
        channel.sendall((json.dumps(answer, allow_nan=False) + "\n").encode())

    hello = json.loads(lines.readline())
    if hello.get("macaw") != PROTOCOL:
        sys.exit(f"the worker speaks version {hello.get('macaw')}, this macaw_client.py {PROTOCOL}")
    memory = _Memory(hello)
    rows = _Rows(hello) if hello.get("rows") else None
    about = {key: hello[key] for key in ("sums", "task", "outputs", "dtype")}
    if ranks is not None:
        train, evaluate, outputs = map(ranks.ask, (train, evaluate, outputs))
    say({"ready": PROTOCOL, "name": name, "corrections": corrections,
         "evaluates": evaluate is not None, "outputs": outputs is not None, "in_place": in_place})
    for line in lines:
        question = json.loads(line)
        kind = next(kind for kind in ("train", "evaluate", "outputs") if kind in question)
        task = Task({**about, "kind": kind, **question[kind]})
        try:
            if rows is not None:
                rows.give(task, question[kind]["at"])
            if kind == "train":
                answer = _train(train, memory, task)
            elif kind == "evaluate":
                answer = {"sums": _sums(evaluate(memory.arrays("start"), task))}
            else:
                shape = [len(task.y), about["outputs"]]
                if about["task"] == "next-token":
                    shape.insert(1, task.x.shape[1])
                rows.take(outputs(memory.arrays("start"), task), shape, question[kind]["at"])
                answer = {}
        except Exception as error:  # the client's own doing: the next one may fare better
            if ranks is not None:
                traceback.print_exc()
                sys.stderr.flush()
                time.sleep(1)  # if a rank has died, _watch says which one, and ends this process
                os._exit(1)
            answer = _error(error, fatal, {__file__, *hidden})
        say({"id": question["id"], **answer})
    if ranks is not None:
        ranks.end()
