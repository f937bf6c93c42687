"""`duralog job NAME PATH`: every module `duralog.cli.job_<name>` registers its command when it is imported here."""

from __future__ import annotations

import importlib
import pkgutil

import duralog.cli
from duralog.cli.job.spark_job import job_app as job_app

for _module in pkgutil.iter_modules(duralog.cli.__path__, f"{duralog.cli.__name__}."):
    if _module.name.rpartition(".")[2].startswith("job_"):
        importlib.import_module(_module.name)
