"""Train a model on spreadsheets with SkyRL, the servers on rented machines: 5 nodes with 20 servers each.

`EXCEL_CLOUD` names the infrastructure that SkyPilot rents from (aws, gcp, azure, kubernetes, slurm/name …).
"""

import os
import sys
from functools import partial

from benchmax.adapters.skyrl.entrypoint import main
from benchmax.envs.excel.excel_env import ExcelEnvLocal, ExcelEnvSkypilot

NODES = int(os.environ.get("EXCEL_NODES", "5"))
SERVERS_PER_NODE = int(os.environ.get("EXCEL_SERVERS_PER_NODE", "20"))

if __name__ == "__main__":
    rented = partial(
        ExcelEnvSkypilot, cloud=os.environ.get("EXCEL_CLOUD"), num_nodes=NODES, servers_per_node=SERVERS_PER_NODE
    )
    sys.exit(main({"ExcelEnv": rented}, smoke_envs={"ExcelEnv": partial(ExcelEnvLocal, num_local_servers=6)}))
