"""What deploy/ has for other programs: rules of Prometheus, manifests, a job of Slurm."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import tomllib

from support import SOURCE

DEPLOY = SOURCE / "deploy"

# A run that has failed (a), one whose devices are in trouble (b), a server that is gone (c), one
# that has just begun (d).
SERIES = {
    'macaw_run_state{job="macaw",instance="a",state="ended"}': "1x90",
    'macaw_run_state{job="macaw",instance="a",state="running"}': "0x90",
    'macaw_rounds_completed_total{job="macaw",instance="a"}': "3x90",
    'macaw_rounds{job="macaw",instance="a"}': "100x90",
    'macaw_run_state{job="macaw",instance="b",state="running"}': "1x90",
    'macaw_rounds_completed_total{job="macaw",instance="b"}': "3x90",
    'macaw_nodes_late{job="macaw",instance="b"}': "3x90",
    'macaw_nodes{job="macaw",instance="b"}': "4x90",
    'macaw_quarantined_nodes{job="macaw",instance="b"}': "1x90",
    'macaw_disk_free_bytes{job="macaw",instance="b"}': "1x90",
    'macaw_parts_turned_down_total{job="macaw",instance="b"}': "0+60x90",
    'macaw_nodes_lost_total{job="macaw",instance="b"}': "0+60x90",
    'up{job="macaw",instance="c"}': "0x90",
    'macaw_run_state{job="macaw",instance="d",state="running"}': "_x50 1x40",
    'macaw_rounds_completed_total{job="macaw",instance="d"}': "_x50 0x40",
}
FIRES = {
    "MacawServerGone": "c",
    "MacawRunFailed": "a",
    "MacawNoProgress": "b",
    "MacawNodesLate": "b",
    "MacawNodesLost": "b",
    "MacawPartsTurnedDown": "b",
    "MacawDiskFull": "b",
    "MacawQuarantine": "b",
}


class Alerts(unittest.TestCase):
    def rules(self) -> dict[str, str]:
        text = (DEPLOY / "alerts.yaml").read_text()
        return dict(re.findall(r"- alert: (\w+)\n +expr: (.*)\n", text))

    def test_rules_with_two_metrics_say_which_labels_must_agree(self) -> None:
        self.assertEqual(set(self.rules()), set(FIRES))
        for name, expression in self.rules().items():
            if "{state=" in expression and " and " in expression:
                self.assertIn(" and on(job, instance) ", expression, name)

    def test_each_rule_fires_for_its_server_alone(self) -> None:
        promtool = os.environ.get("MACAW_PROMTOOL", "promtool")
        if shutil.which(promtool) is None:
            self.skipTest("no promtool (Debian: prometheus)")
        series = "".join(
            f"      - {{series: '{name}', values: '{values}'}}\n" for name, values in SERIES.items()
        )
        summaries = dict(
            re.findall(
                r'alert: (\w+)\n(?:.*\n)+?.*summary: "(.*)"', (DEPLOY / "alerts.yaml").read_text()
            )
        )
        alerts = ""
        for name, instance in FIRES.items():
            labels = {"instance": instance, "job": "macaw"}
            if name in ("MacawRunFailed",):
                labels["state"] = "ended"
            summary = (
                summaries[name]
                .replace("{{ $labels.instance }}", instance)
                .replace("{{ $value }}", "1")
            )
            shown = ", ".join(f"{key}: {value}" for key, value in labels.items())
            alerts += (
                f"      - eval_time: 85m\n        alertname: {name}\n        exp_alerts:\n"
                f"          - exp_labels: {{{shown}}}\n"
                f'            exp_annotations: {{summary: "{summary}"}}\n'
            )
        with tempfile.TemporaryDirectory() as folder:
            tests = Path(folder) / "tests.yaml"
            tests.write_text(
                f"rule_files: [{DEPLOY / 'alerts.yaml'}]\nevaluation_interval: 1m\ntests:\n"
                f"  - interval: 1m\n    input_series:\n{series}    alert_rule_test:\n{alerts}"
            )
            done = subprocess.run(
                [promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Kubernetes(unittest.TestCase):
    def documents(self, name: str) -> list[str]:
        return (DEPLOY / "kubernetes" / name).read_text().split("\n---\n")

    def test_no_budget_is_over_the_pod_of_a_job(self) -> None:
        kinds = [
            re.findall(r"^kind: (\w+)", text, re.M)[0] for text in self.documents("server.yaml")
        ]
        self.assertIn("Job", kinds)
        # The Job has no /scale: a drain would wait for ever.
        self.assertNotIn("PodDisruptionBudget", kinds)

    def test_the_liveness_probe_needs_no_identity_whatever_the_plan_says(self) -> None:
        job = next(text for text in self.documents("server.yaml") if "kind: Job" in text)
        probe = re.findall(r"livenessProbe: .*--run-dir, ([^\]]+)\]", job)[0]
        self.assertIn(f"- --admin=unix:{probe}/admin.sock\n", job)
        self.assertIn(f"- --run-dir={probe}\n", job)


# The programs of a job: the server listens until it is asked to end, or for a while.
FAKES = {
    "macaw": """
case $2 in init) mkdir -p "$4"; : > "$4/authority.key" ;; invite) echo "MACAW-$5" ;; esac""",
    "macaw-server": """
while (($#)); do case $1 in --run-dir) run=$2 ;; esac; shift; done
mkdir -p "$run"; printf '[node]\\nserver = "x"\\n[data]\\n' > "$run/node.toml"
trap 'echo server stopped; exit 130' TERM
echo 127.0.0.1:1 >&3; exec 3>&-
for ((i = 0; i < 10 * ${SERVER_SECONDS:-100}; i++)); do sleep 0.1; done
echo server ended""",
    "macaw-worker": """
[[ $1 != enrol ]] || { mkdir -p "$5"; : > "$5/node.crt"; exit 0; }
if [[ -n ${WORKER_SECONDS:-} ]]; then
  trap 'exit 0' TERM
  for ((i = 0; i < 10 * WORKER_SECONDS; i++)); do sleep 0.1; done
fi
exit "${WORKER_CODE:-0}" """,
    "srun": """
while [[ $1 == --* ]]; do shift; done
code=0 pids=()
for ((i = 0; i < SLURM_NTASKS; i++)); do SLURM_PROCID=$i "$@" & pids+=($!); done
trap 'kill -TERM "${pids[@]}" 2> /dev/null' TERM
for pid in "${pids[@]}"; do
  while kill -0 "$pid" 2> /dev/null; do wait "$pid" || code=$?; done
done
exit $code""",
    "scontrol": """
case $* in *"show node"*) echo "NodeName=n NodeAddr=127.0.0.1 X=x" ;; *) echo "scontrol $*" ;;
esac""",
}


class Slurm(unittest.TestCase):
    def setUp(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = Path(self._folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name, text in FAKES.items():
            (self.bin / name).write_text("#!/usr/bin/env bash\n" + text + "\n")
            (self.bin / name).chmod(0o755)
        (self.folder / "run.toml").write_text("")

    def start(self, name: str, **settings: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **settings}
        environment["PATH"] = f"{self.bin}:{os.environ['PATH']}"
        environment.update(SLURM_JOB_ID="7", SLURM_NTASKS="2", SLURMD_NODENAME="n")
        environment.pop("MACAW_BIN", None)
        script = DEPLOY / "slurm/macaw.sbatch"
        job = subprocess.Popen(
            ["bash", str(script), str(self.folder / "run.toml"), str(self.folder / name)],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.addCleanup(self.end, job)
        return job

    def end(self, job: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()

    def test_ends_with_the_code_of_its_workers_when_none_is_left(self) -> None:
        job = self.start("out", WORKER_CODE="2")
        said, _ = job.communicate(timeout=90)
        self.assertEqual(job.returncode, 2, said)
        self.assertIn("all workers have ended, with code 2", said)
        self.assertIn("server stopped", said)
        self.assertNotIn("requeue", said)

    def test_ends_with_the_server_when_the_run_is_over(self) -> None:
        job = self.start("out", SERVER_SECONDS="2")  # the workers ended before it
        said, _ = job.communicate(timeout=90)
        self.assertEqual(job.returncode, 0, said)
        self.assertIn("server ended", said)
        self.assertNotIn("requeue", said)

    def test_a_preempted_job_is_queued_again(self) -> None:
        job = self.start("out", WORKER_SECONDS="8", WORKER_CODE="3")
        certificate = self.folder / "out/worker-1/identity/node.crt"
        for _ in range(300):
            if certificate.exists():
                break
            time.sleep(0.1)
        time.sleep(1)
        job.send_signal(signal.SIGTERM)
        said, _ = job.communicate(timeout=90)
        self.assertEqual(job.returncode, 130, said)
        self.assertIn("scontrol requeue 7", said)

    def test_half_an_authority_is_made_whole(self) -> None:
        (self.folder / "out/authority").mkdir(parents=True)
        job = self.start("out", SERVER_SECONDS="1")
        said, _ = job.communicate(timeout=90)
        self.assertEqual(job.returncode, 0, said)
        self.assertTrue((self.folder / "out/authority/authority.key").exists())

    def test_takes_the_folder_as_it_is(self) -> None:
        name = 'R&D |"a\\b\\n"'
        job = self.start(name, SERVER_SECONDS="1")
        said, _ = job.communicate(timeout=90)
        self.assertEqual(job.returncode, 0, said)
        node = tomllib.loads((self.folder / name / "worker-0/node.toml").read_text())
        self.assertEqual(
            node["node"], {"identity": str(self.folder / name / "worker-0/identity"), "server": "x"}
        )


if __name__ == "__main__":
    unittest.main()
