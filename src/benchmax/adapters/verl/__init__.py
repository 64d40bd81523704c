"""Our environments in verl. Start reading at `agent_loop`.

agent_loop  an agent loop that plays our rollouts on verl's engines, token ids in and out
dataset     rows as verl reads them, in a parquet file
"""

from benchmax.adapters.adapter import TrainerAdapter

ADAPTER = TrainerAdapter(
    name="verl",
    title="verl",
    works=("verl>=0.9,<0.10", "transformers>=5.5.3,<5.11"),
    pin="verl==0.9.1 transformers>=5.5.3,<5.11,!=5.6.0",
    offers="an agent loop on verl's engines",
)
