"""Every limit as a constant with its unit and its meaning; `benchmax limits` prints this table.

The annotations are read here, so they are not put off by `from __future__ import annotations`.
"""

from typing import Annotated, NamedTuple


class Limit(NamedTuple):
    name: str
    value: float
    unit: str
    meaning: str


KIB = 1024
MIB = 1024 * KIB

# Datasets
MIN_TRAIN_ROWS: Annotated[int, "rows", "fewest rows a training run accepts"] = 16
GOOD_TRAIN_ROWS: Annotated[int, "rows", "fewer train with a warning"] = 200
ROW_BYTES: Annotated[int, "bytes", "largest dataset row, as JSON"] = 2 * MIB
JSON_DEPTH: Annotated[int, "levels", "deepest nesting in a row or in tool arguments"] = 64
ROW_COLUMNS: Annotated[int, "columns", "most columns in a row"] = 1_000
ROW_ISSUES_SHOWN: Annotated[int, "issues", "bad rows listed before only counting"] = 50

# Rewards
REWARD_COMPONENTS: Annotated[int, "components", "most named rewards in one sample"] = 64
REWARD_SIZE: Annotated[float, "reward", "largest reward or total, either sign: its square fits a float32"] = 1e18
REWARD_NAME_CHARS: Annotated[int, "characters", "longest reward name"] = 80

# One rollout
MAX_TURNS: Annotated[int, "turns", "model turns in one rollout, unless set"] = 16
MAX_TOOL_CALLS: Annotated[int, "calls", "tool calls in one rollout, unless set"] = 64
PARALLEL_TOOL_CALLS: Annotated[int, "calls", "tool calls taken from one turn"] = 32
TOOL_ARGUMENT_BYTES: Annotated[int, "bytes", "arguments of one tool call"] = 256 * KIB
TOOL_OUTPUT_CHARS: Annotated[int, "characters", "tool output shown to the model"] = 32_768
ERROR_CHARS: Annotated[int, "characters", "error text kept in a record"] = 8 * KIB
ROLLOUT_TRIES: Annotated[int, "tries", "one rollout whose environment's process ends under it, the first included"] = 3
LOG_LINES: Annotated[int, "lines", "environment log lines kept for one rollout"] = 200
LOG_LINE_CHARS: Annotated[int, "characters", "one environment log line"] = 2_000

# Deadlines
INIT_SECONDS: Annotated[float, "seconds", "init_rollout"] = 120.0
TOOL_SECONDS: Annotated[float, "seconds", "one run_tool"] = 60.0
REWARD_SECONDS: Annotated[float, "seconds", "compute_reward, and compute_group_reward"] = 150.0
RELEASE_SECONDS: Annotated[float, "seconds", "release_rollout"] = 30.0
MODEL_SECONDS: Annotated[float, "seconds", "one model turn, retries included"] = 300.0
REMOTE_SILENCE_SECONDS: Annotated[float, "seconds", "a server that trains and gives no sign of life is gone"] = 120.0
CHECK_SECONDS: Annotated[float, "seconds", "one check of the doctor that a plug-in adds"] = 20.0
ROLLOUT_SECONDS: Annotated[float, "seconds", "one rollout, unless set"] = 1_800.0

# User code
BLOCKING_SECONDS: Annotated[float, "seconds", "an async hook that holds its loop this long moves to a thread"] = 0.05
BLOCKING_TOTAL_SECONDS: Annotated[float, "seconds", "or waits without `await` this long in several calls"] = 0.1
STALL_SECONDS: Annotated[float, "seconds", "an environment's loop held this long is given up and replaced"] = 5.0
HOOK_THREADS: Annotated[int, "threads", "blocking hooks running at once, per environment"] = 256

# Model calls over HTTP
MODEL_TRIES: Annotated[int, "tries", "one model turn, the first included"] = 4
MODEL_CONNECTIONS: Annotated[int, "connections", "open at once to one model server"] = 512
MODEL_RESPONSE_BYTES: Annotated[int, "bytes", "largest reply of a model server"] = 64 * MIB

# Serving a model
SERVE_ANSWERS: Annotated[int, "answers", "one request to `benchmax serve`: prompts times `n`"] = 2_048
SERVE_STOPS: Annotated[int, "texts", "one request to `benchmax serve`: its `stop`"] = 16
SERVE_STOP_CHARS: Annotated[int, "characters", "one text of such a `stop`"] = 1_000

# The platform
WEBHOOKS: Annotated[int, "webhooks", "those of one user"] = 10
WEBHOOK_SECONDS: Annotated[float, "seconds", "one attempt to deliver a message to a webhook"] = 10.0
MODEL_SESSIONS: Annotated[int, "sessions", "model sessions that one user has open"] = 256
MODEL_SESSION_SECONDS: Annotated[float, "seconds", "one model session, unless set"] = 3_600.0
MODEL_SESSION_MOST_SECONDS: Annotated[float, "seconds", "one model session that asks for longer"] = 86_400.0
MODEL_SESSION_BYTES: Annotated[int, "bytes", "calls kept of one model session; the oldest go first"] = 8 * MIB

# MCP servers
MCP_MESSAGE_BYTES: Annotated[int, "bytes", "largest message of an MCP server"] = 32 * MIB
MCP_FILE_BYTES: Annotated[int, "bytes", "largest file into or out of a workspace"] = 256 * MIB
MCP_WAIT_SECONDS: Annotated[float, "seconds", "a rollout's wait for an MCP server"] = 1_800.0
MCP_START_TRIES: Annotated[int, "tries", "starts that fail in a row before no more is tried for a while"] = 5
MCP_MEMORY_BYTES: Annotated[int, "bytes", "memory of an MCP server, unless it sets `memory`"] = 4096 * MIB
MCP_PROCESSES: Annotated[int, "processes", "processes and threads of an MCP server"] = 1_024
MCP_DISK_BYTES: Annotated[int, "bytes", "a rollout's directory, and the largest file in it"] = 4096 * MIB
MCP_IDLE_SECONDS: Annotated[float, "seconds", "an MCP server nobody uses is ended after this"] = 300.0
MCP_SETUP_DAYS: Annotated[int, "days", "what setup.sh made is kept this long after its last use"] = 30

# Sandboxed calls
SANDBOX_WALL_SECONDS: Annotated[float, "seconds", "one sandboxed call, unless set"] = 30.0
SANDBOX_CPU_SECONDS: Annotated[float, "seconds", "CPU time of one sandboxed call, unless set"] = 60.0
SANDBOX_MEMORY_BYTES: Annotated[int, "bytes", "memory of one sandboxed call, unless set"] = 1024 * MIB
SANDBOX_PROCESSES: Annotated[int, "processes", "processes and threads of one sandboxed call, unless set"] = 128
SANDBOX_OPEN_FILES: Annotated[int, "files", "open in one process of a sandboxed call, unless set"] = 256
SANDBOX_DISK_BYTES: Annotated[int, "bytes", "all files a sandboxed call writes, and the largest, unless set"] = (
    256 * MIB
)
SANDBOX_OUTPUT_BYTES: Annotated[int, "bytes", "what a sandboxed call prints, unless set"] = 10 * MIB
SANDBOX_CALLS: Annotated[int, "calls", "at once in one sandbox; others wait"] = 128
SANDBOX_ENV_PROCESSES: Annotated[int, "processes", "processes and threads of a sandboxed environment's process"] = 4_096
SANDBOX_START_SECONDS: Annotated[float, "seconds", "start of a sandbox, imports included"] = 120.0

# Ready environments
REASONING_ANSWER_CHARS: Annotated[int, "characters", "longest answer that the reasoning environment scores"] = 20_000
REASONING_SCORE_SECONDS: Annotated[
    float, "seconds", "processor time to score one puzzle; an answer that takes longer is wrong"
] = 2.0
REASONING_MAKE_SECONDS: Annotated[float, "seconds", "processor time to make the puzzles of one dataset"] = 120.0
MATH_ANSWER_CHARS: Annotated[int, "characters", "longest answer that the math environment judges"] = 300
MATH_JUDGE_SECONDS: Annotated[
    float, "seconds", "processor time to compare two answers; one that takes longer is wrong"
] = 1.0
# The code environment
CODE_ANSWER_CHARS: Annotated[int, "characters", "longest answer that the code environment runs"] = 50_000
CODE_CPU_SECONDS: Annotated[float, "seconds", "processor time of a solution, for all its tests"] = 2.0
CODE_WALL_SECONDS: Annotated[float, "seconds", "one solution, for all its tests"] = 20.0
CODE_MEMORY_BYTES: Annotated[int, "bytes", "memory of one solution"] = 512 * MIB
CODE_VALUE_BYTES: Annotated[int, "bytes", "what a solution returns from one call, as JSON"] = 1 * MIB
CODE_OUTPUT_BYTES: Annotated[int, "bytes", "what run_python shows of what code prints"] = 4_000
CODE_SOLUTIONS: Annotated[int, "solutions", "run at once; others wait"] = 32
# The CRM environment
CRM_QUERY_CHARS: Annotated[int, "characters", "one SOQL or SOSL query"] = 20_000
CRM_QUERY_DEPTH: Annotated[int, "levels", "brackets and queries inside one another in such a query"] = 32
CRM_PATH_STEPS: Annotated[int, "relationships", "a path to a field in such a query"] = 5
CRM_QUERY_ROWS: Annotated[int, "rows", "one such query; more is an error, not a cut"] = 2_000
CRM_QUERY_STEPS: Annotated[int, "steps", "SQLite's work for one such query"] = 2_000_000
CRM_LIVE_CALLS: Annotated[int, "calls", "to a live Salesforce org at once"] = 8
CRM_LIVE_SECONDS: Annotated[float, "seconds", "one answer of a live Salesforce org"] = 20.0
CRM_LIVE_TRIES: Annotated[int, "tries", "one call to a live org that is busy, the first included"] = 4
# The Excel environment
EXCEL_CALL_SECONDS: Annotated[
    float, "seconds", "processor time of one call of an Excel tool, and of one recalculation"
] = 20.0
EXCEL_MEMORY_BYTES: Annotated[int, "bytes", "memory of such a call"] = 1024 * MIB
EXCEL_FILE_BYTES: Annotated[int, "bytes", "all workbooks of such a call"] = 64 * MIB
EXCEL_OUTPUT_BYTES: Annotated[int, "bytes", "what the code of such a call prints"] = 64 * KIB
EXCEL_DUMP_CHARS: Annotated[int, "characters", "a workbook as text, for a model"] = 8_000
EXCEL_TOOL_CELLS: Annotated[int, "cells", "read or written by one call of a cell tool"] = 10_000
EXCEL_ANSWER_CELLS: Annotated[int, "cells", "compared in one area of an answer"] = 200_000

# Search
INDEX_FILE_BYTES: Annotated[int, "bytes", "largest file or article that is indexed"] = 32 * MIB
CORPUS_SECONDS: Annotated[float, "seconds", "one answer of the platform about a corpus"] = 15.0
CORPUS_TRIES: Annotated[int, "tries", "one search of a corpus of the platform, the first included"] = 4

# The Wikipedia environment
WIKIPEDIA_ARTICLE_CHARS: Annotated[int, "characters", "an article shown to the model"] = 10_000
WIKIPEDIA_LIVE_SECONDS: Annotated[float, "seconds", "one answer of a live MediaWiki"] = 10.0
WIKIPEDIA_LIVE_TRIES: Annotated[int, "tries", "one call to a live MediaWiki, the first included"] = 4
WIKIPEDIA_LIVE_WAIT: Annotated[float, "seconds", "one call to a live MediaWiki, its pauses included"] = 50.0
WIKIPEDIA_CACHED: Annotated[int, "answers", "of a live MediaWiki that are remembered"] = 20_000

# The search environment
SEARCH_OUTPUT_CHARS: Annotated[int, "characters", "one search result shown to the model"] = 10_000

# Batches
ROLLOUTS_AT_ONCE: Annotated[int, "rollouts", "in flight in one batch, unless set"] = 256
FAILED_BATCHES: Annotated[int, "batches", "without a scored rollout in a row, in an outside trainer"] = 8

TABLE = [Limit(name, globals()[name], *noted.__metadata__) for name, noted in __annotations__.items()]
