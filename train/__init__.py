"""Training and evaluation of models. Importing this sets how OpenMP works, before torch is imported."""

import os

from travlr.workers import container_cores, usable_cores

# Threads of OpenMP that wait must not spin: two trainings on two cores would take ten times as long.
if "GOMP_SPINCOUNT" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if container_cores() is not None:  # torch sees the cores of the machine alone
    os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))
