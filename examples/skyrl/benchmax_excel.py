"""Train a model on spreadsheets with SkyRL, the servers on rented machines: 5 nodes with 20 servers each.

`EXCEL_CLOUD` names the infrastructure that SkyPilot rents from (aws, gcp, azure, kubernetes, slurm/name …).
"""

import os
import sys
from functools import partial

from benchmax.adapters.skyrl.entrypoint import main
from benchmax.envs.excel.excel_env import ExcelEnvLocal, ExcelEnvSkypilot

LEVEL = "manipulation"
"""That of SpreadsheetBench's rows: it lists every tool."""
NODES = int(os.environ.get("EXCEL_NODES", "5"))
SERVERS_PER_NODE = int(os.environ.get("EXCEL_SERVERS_PER_NODE", "20"))

if __name__ == "__main__":
    cloud = os.environ.get("EXCEL_CLOUD")
    rented = partial(ExcelEnvSkypilot, cloud, NODES, SERVERS_PER_NODE, level=LEVEL)
    here = partial(ExcelEnvLocal, num_local_servers=6, level=LEVEL)
    sys.exit(main({"ExcelEnv": rented}, smoke_envs={"ExcelEnv": here}))
