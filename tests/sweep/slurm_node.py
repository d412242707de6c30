"""A SLURM of one node, of Debian's packages, in a folder of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")

CONF = """
ClusterName=test
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# Jobs that are queued again may start after this, two minutes by default.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=10
MpiDefault=none
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
NodeName={host} CPUs={cpus} RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
  """A sentence where it cannot be started."""
  search = os.environ["PATH"] + ":/usr/sbin:/sbin"
  for program in PROGRAMS:
    if shutil.which(program, path=search) is None:
      return f"there is no {program} (on Debian: apt-get install slurm-wlm munge)"
  return None


@contextlib.contextmanager
def slurm(folder: Path, unshared: Path) -> Iterator[None]:
  """Start it; what is in `unshared` the node does not see."""
  for name in ("munge", "state", "spool"):
    (folder / name).mkdir(mode=0o755)
  unshared.mkdir(exist_ok=True)
  key = folder / "munge" / "key"
  key.write_bytes(os.urandom(128))
  key.chmod(0o600)
  conf = folder / "slurm.conf"
  host, cpus = socket.gethostname(), len(os.sched_getaffinity(0))
  values = {"host": host, "cpus": cpus, "user": getpass.getuser(), "folder": folder}
  conf.write_text(CONF.format(**values, ports=_free_ports()))
  env = {**os.environ, "SLURM_CONF": str(conf)}
  env["PATH"] = env["PATH"] + ":/usr/sbin:/sbin"
  munge = [f"--{name}-file={folder}/munge/{name}" for name in ("key", "pid", "log")]
  munge += [f"--seed-file={folder}/munge/seed", f"--socket={folder}/munge/socket"]
  hide = f"mount -t tmpfs none {unshared} && exec slurmd -D"
  commands = (
    ["munged", "--foreground", "--force", *munge],
    ["slurmctld", "-D"],
    ["unshare", "--mount", "sh", "-c", hide] if os.getuid() == 0 else ["slurmd", "-D"],
  )
  old = os.environ.get("SLURM_CONF")
  daemons = []
  try:
    for command in commands:
      with (folder / f"{command[0]}.out").open("w") as out:
        daemons.append(
          subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
        )
      time.sleep(1.0)
    os.environ["SLURM_CONF"] = str(conf)
    _wait_until_idle()
    yield
  finally:
    subprocess.run(["scancel", "--user", getpass.getuser()], env=env)
    time.sleep(1.0)
    for daemon in reversed(daemons):
      daemon.terminate()
      daemon.wait(20)
    if old is None:
      os.environ.pop("SLURM_CONF", None)
    else:
      os.environ["SLURM_CONF"] = old


def _wait_until_idle() -> None:
  command = ["sinfo", "--noheader", "--format", "%T"]
  for _ in range(60):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.stdout.strip() == "idle":
      return
    time.sleep(0.5)
  raise RuntimeError(f"SLURM did not start: {done.stdout} {done.stderr}")


def _free_ports() -> tuple[int, int]:
  with socket.socket() as one, socket.socket() as two:
    one.bind(("127.0.0.1", 0))
    two.bind(("127.0.0.1", 0))
    return one.getsockname()[1], two.getsockname()[1]
