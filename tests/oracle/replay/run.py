"""A run of Macaw, and what it leaves behind."""
import json
import subprocess
import sys

import numpy as np

import tensor_file


def macaw(program, *arguments):
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Run:
    def __init__(self, program, problem, settings, name):
        """`settings`: the configuration's keys."""
        self.program, self.problem = program, problem
        self.folder = problem.folder / name
        config = problem.folder / f"{name}.toml"
        keys = problem.settings() | settings
        config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        macaw(program, "simulate", config, "--quiet", "--trace", "--slots", 1, "--out", self.folder)
        self.model = problem.network.vector(tensor_file.read(self.folder / "model.safetensors"))
        self.metrics = json.loads((self.folder / "metrics.jsonl").read_text().splitlines()[-1])
        self.read_trace()

    def read_trace(self):
        """`turns`: of each round, by client, the positions of each batch of each stage that trains; `hostile`."""
        rounds, self.hostile = {}, set()
        folder = self.folder / "trace"
        for file in sorted(folder.iterdir()) if folder.exists() else ():
            for line in file.read_text().splitlines():
                turn = json.loads(line)
                stages = [[np.array(batch) for batch in stage["batches"]]
                          for stage in turn["stages"] if stage["kind"] == "train"]
                clients = rounds.setdefault(turn["round"], {})
                clients[turn["client"]] = clients.get(turn["client"], []) + stages
                if turn.get("hostile"):
                    self.hostile.add(turn["client"])
        self.turns = [dict(sorted(rounds[r].items())) for r in sorted(rounds)]
        self.clients = sorted(set().union(*self.turns)) if self.turns else []

    def models(self):
        """Those of a rule with several."""
        files = sorted((self.folder / "models").iterdir())
        return [self.problem.network.vector(tensor_file.read(file)) for file in files]

    def states(self, item):
        """By client, this item of what it keeps, as a vector of the model's form; 0 where it has no part."""
        states = {}
        for client in self.clients:
            file = self.folder / f"state-{client}.safetensors"
            macaw(self.program, "state", "export", self.folder, client, "--out", file)
            tensors = tensor_file.read(file)
            states[client] = self.problem.network.vector(
                {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith(item + "/")})
        return states

    def contributions(self):
        """By round, the lines of evaluation.leave_one_out."""
        lines = map(json.loads, (self.folder / "contributions.jsonl").read_text().splitlines())
        return {line["round"]: line for line in lines}

    def confusion(self):
        return json.loads((self.folder / "confusion.json").read_text())
