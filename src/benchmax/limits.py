"""Every limit as a constant with its unit; `benchmax limits` prints this table."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

Number = TypeVar("Number", int, float)


class Limit(NamedTuple):
    name: str
    value: float
    unit: str
    meaning: str


TABLE: list[Limit] = []


def _limit(name: str, value: Number, unit: str, meaning: str) -> Number:
    TABLE.append(Limit(name, value, unit, meaning))
    return value


KIB = 1024
MIB = 1024 * KIB

# Datasets
MIN_TRAIN_ROWS = _limit("MIN_TRAIN_ROWS", 16, "rows", "fewest rows a training run accepts")
GOOD_TRAIN_ROWS = _limit("GOOD_TRAIN_ROWS", 200, "rows", "fewer train with a warning")
ROW_BYTES = _limit("ROW_BYTES", 2 * MIB, "bytes", "largest dataset row, as JSON")
JSON_DEPTH = _limit("JSON_DEPTH", 64, "levels", "deepest nesting in a row or in tool arguments")
ROW_COLUMNS = _limit("ROW_COLUMNS", 1_000, "columns", "most columns in a row")
ROW_ISSUES_SHOWN = _limit("ROW_ISSUES_SHOWN", 50, "issues", "bad rows listed before only counting")

# Rewards
REWARD_COMPONENTS = _limit("REWARD_COMPONENTS", 64, "components", "most named rewards in one sample")
REWARD_SIZE = _limit("REWARD_SIZE", 1e18, "reward", "largest reward or total, either sign: its square fits a float32")
REWARD_NAME_CHARS = _limit("REWARD_NAME_CHARS", 80, "characters", "longest reward name")

# One rollout
MAX_TURNS = _limit("MAX_TURNS", 16, "turns", "model turns in one rollout, unless set")
MAX_TOOL_CALLS = _limit("MAX_TOOL_CALLS", 64, "calls", "tool calls in one rollout, unless set")
PARALLEL_TOOL_CALLS = _limit("PARALLEL_TOOL_CALLS", 32, "calls", "tool calls taken from one turn")
TOOL_ARGUMENT_BYTES = _limit("TOOL_ARGUMENT_BYTES", 256 * KIB, "bytes", "arguments of one tool call")
TOOL_OUTPUT_CHARS = _limit("TOOL_OUTPUT_CHARS", 32_768, "characters", "tool output shown to the model")
ERROR_CHARS = _limit("ERROR_CHARS", 8 * KIB, "characters", "error text kept in a record")
ROLLOUT_TRIES = _limit(
    "ROLLOUT_TRIES", 3, "tries", "one rollout whose environment's process ends under it, the first included"
)
LOG_LINES = _limit("LOG_LINES", 200, "lines", "environment log lines kept for one rollout")
LOG_LINE_CHARS = _limit("LOG_LINE_CHARS", 2_000, "characters", "one environment log line")

# Deadlines
INIT_SECONDS = _limit("INIT_SECONDS", 120.0, "seconds", "init_rollout")
TOOL_SECONDS = _limit("TOOL_SECONDS", 60.0, "seconds", "one run_tool")
REWARD_SECONDS = _limit("REWARD_SECONDS", 150.0, "seconds", "compute_reward, and compute_group_reward")
RELEASE_SECONDS = _limit("RELEASE_SECONDS", 30.0, "seconds", "release_rollout")
MODEL_SECONDS = _limit("MODEL_SECONDS", 300.0, "seconds", "one model turn, retries included")
REMOTE_SILENCE_SECONDS = _limit(
    "REMOTE_SILENCE_SECONDS", 120.0, "seconds", "a server that trains and gives no sign of life is gone"
)
ROLLOUT_SECONDS = _limit("ROLLOUT_SECONDS", 1_800.0, "seconds", "one rollout, unless set")

# User code
BLOCKING_SECONDS = _limit(
    "BLOCKING_SECONDS", 0.05, "seconds", "an async hook that holds its loop this long moves to a thread"
)
BLOCKING_TOTAL_SECONDS = _limit(
    "BLOCKING_TOTAL_SECONDS", 0.1, "seconds", "or waits without `await` this long in several calls"
)
STALL_SECONDS = _limit("STALL_SECONDS", 5.0, "seconds", "an environment's loop held this long is given up and replaced")
HOOK_THREADS = _limit("HOOK_THREADS", 256, "threads", "blocking hooks running at once, per environment")

# Model calls over HTTP
MODEL_TRIES = _limit("MODEL_TRIES", 4, "tries", "one model turn, the first included")
MODEL_CONNECTIONS = _limit("MODEL_CONNECTIONS", 512, "connections", "open at once to one model server")
MODEL_RESPONSE_BYTES = _limit("MODEL_RESPONSE_BYTES", 64 * MIB, "bytes", "largest reply of a model server")

# Serving a model
SERVE_ANSWERS = _limit("SERVE_ANSWERS", 2_048, "answers", "one request to `benchmax serve`: prompts times `n`")
SERVE_STOPS = _limit("SERVE_STOPS", 16, "texts", "one request to `benchmax serve`: its `stop`")
SERVE_STOP_CHARS = _limit("SERVE_STOP_CHARS", 1_000, "characters", "one text of such a `stop`")

# The platform
WEBHOOKS = _limit("WEBHOOKS", 10, "webhooks", "those of one user")
WEBHOOK_SECONDS = _limit("WEBHOOK_SECONDS", 10.0, "seconds", "one attempt to deliver a message to a webhook")
MODEL_SESSIONS = _limit("MODEL_SESSIONS", 256, "sessions", "model sessions that one user has open")
MODEL_SESSION_SECONDS = _limit("MODEL_SESSION_SECONDS", 3_600.0, "seconds", "one model session, unless set")
MODEL_SESSION_MOST_SECONDS = _limit(
    "MODEL_SESSION_MOST_SECONDS", 86_400.0, "seconds", "one model session that asks for longer"
)
MODEL_SESSION_BYTES = _limit(
    "MODEL_SESSION_BYTES", 8 * MIB, "bytes", "calls kept of one model session; the oldest go first"
)

# MCP servers
MCP_MESSAGE_BYTES = _limit("MCP_MESSAGE_BYTES", 32 * MIB, "bytes", "largest message of an MCP server")
MCP_FILE_BYTES = _limit("MCP_FILE_BYTES", 256 * MIB, "bytes", "largest file into or out of a workspace")
MCP_WAIT_SECONDS = _limit("MCP_WAIT_SECONDS", 1_800.0, "seconds", "a rollout's wait for an MCP server")
MCP_START_TRIES = _limit("MCP_START_TRIES", 5, "tries", "starts that fail in a row before no more is tried for a while")
MCP_MEMORY_BYTES = _limit("MCP_MEMORY_BYTES", 4096 * MIB, "bytes", "memory of an MCP server, unless it sets `memory`")
MCP_PROCESSES = _limit("MCP_PROCESSES", 1_024, "processes", "processes and threads of an MCP server")
MCP_DISK_BYTES = _limit("MCP_DISK_BYTES", 4096 * MIB, "bytes", "a rollout's directory, and the largest file in it")
MCP_IDLE_SECONDS = _limit("MCP_IDLE_SECONDS", 300.0, "seconds", "an MCP server nobody uses is ended after this")
MCP_SETUP_DAYS = _limit("MCP_SETUP_DAYS", 30, "days", "what setup.sh made is kept this long after its last use")

# Sandboxed calls
SANDBOX_WALL_SECONDS = _limit("SANDBOX_WALL_SECONDS", 30.0, "seconds", "one sandboxed call, unless set")
SANDBOX_CPU_SECONDS = _limit("SANDBOX_CPU_SECONDS", 60.0, "seconds", "CPU time of one sandboxed call, unless set")
SANDBOX_MEMORY_BYTES = _limit("SANDBOX_MEMORY_BYTES", 1024 * MIB, "bytes", "memory of one sandboxed call, unless set")
SANDBOX_PROCESSES = _limit(
    "SANDBOX_PROCESSES", 128, "processes", "processes and threads of one sandboxed call, unless set"
)
SANDBOX_OPEN_FILES = _limit("SANDBOX_OPEN_FILES", 256, "files", "open in one process of a sandboxed call, unless set")
SANDBOX_DISK_BYTES = _limit(
    "SANDBOX_DISK_BYTES", 256 * MIB, "bytes", "all files a sandboxed call writes, and the largest, unless set"
)
SANDBOX_OUTPUT_BYTES = _limit("SANDBOX_OUTPUT_BYTES", 10 * MIB, "bytes", "what a sandboxed call prints, unless set")
SANDBOX_CALLS = _limit("SANDBOX_CALLS", 128, "calls", "at once in one sandbox; others wait")
SANDBOX_ENV_PROCESSES = _limit(
    "SANDBOX_ENV_PROCESSES", 4_096, "processes", "processes and threads of a sandboxed environment's process"
)
SANDBOX_START_SECONDS = _limit("SANDBOX_START_SECONDS", 120.0, "seconds", "start of a sandbox, imports included")

# Ready environments
REASONING_ANSWER_CHARS = _limit(
    "REASONING_ANSWER_CHARS", 20_000, "characters", "longest answer that the reasoning environment scores"
)
REASONING_SCORE_SECONDS = _limit(
    "REASONING_SCORE_SECONDS",
    2.0,
    "seconds",
    "processor time to score one puzzle; an answer that takes longer is wrong",
)
REASONING_MAKE_SECONDS = _limit(
    "REASONING_MAKE_SECONDS", 120.0, "seconds", "processor time to make the puzzles of one dataset"
)
MATH_ANSWER_CHARS = _limit("MATH_ANSWER_CHARS", 300, "characters", "longest answer that the math environment judges")
MATH_JUDGE_SECONDS = _limit(
    "MATH_JUDGE_SECONDS", 1.0, "seconds", "processor time to compare two answers; one that takes longer is wrong"
)
# The code environment
CODE_ANSWER_CHARS = _limit("CODE_ANSWER_CHARS", 50_000, "characters", "longest answer that the code environment runs")
CODE_CPU_SECONDS = _limit("CODE_CPU_SECONDS", 2.0, "seconds", "processor time of a solution, for all its tests")
CODE_WALL_SECONDS = _limit("CODE_WALL_SECONDS", 20.0, "seconds", "one solution, for all its tests")
CODE_MEMORY_BYTES = _limit("CODE_MEMORY_BYTES", 512 * MIB, "bytes", "memory of one solution")
CODE_VALUE_BYTES = _limit("CODE_VALUE_BYTES", 1 * MIB, "bytes", "what a solution returns from one call, as JSON")
CODE_OUTPUT_BYTES = _limit("CODE_OUTPUT_BYTES", 4_000, "bytes", "what run_python shows of what code prints")
CODE_SOLUTIONS = _limit("CODE_SOLUTIONS", 32, "solutions", "run at once; others wait")
# The CRM environment
CRM_QUERY_CHARS = _limit("CRM_QUERY_CHARS", 20_000, "characters", "one SOQL or SOSL query")
CRM_QUERY_DEPTH = _limit("CRM_QUERY_DEPTH", 32, "levels", "brackets and queries inside one another in such a query")
CRM_PATH_STEPS = _limit("CRM_PATH_STEPS", 5, "relationships", "a path to a field in such a query")
CRM_QUERY_ROWS = _limit("CRM_QUERY_ROWS", 2_000, "rows", "one such query; more is an error, not a cut")
CRM_QUERY_STEPS = _limit("CRM_QUERY_STEPS", 2_000_000, "steps", "SQLite's work for one such query")
CRM_LIVE_CALLS = _limit("CRM_LIVE_CALLS", 8, "calls", "to a live Salesforce org at once")
CRM_LIVE_SECONDS = _limit("CRM_LIVE_SECONDS", 20.0, "seconds", "one answer of a live Salesforce org")
CRM_LIVE_TRIES = _limit("CRM_LIVE_TRIES", 4, "tries", "one call to a live org that is busy, the first included")
# The Excel environment
EXCEL_CALL_SECONDS = _limit(
    "EXCEL_CALL_SECONDS", 20.0, "seconds", "processor time of one call of an Excel tool, and of one recalculation"
)
EXCEL_MEMORY_BYTES = _limit("EXCEL_MEMORY_BYTES", 1024 * MIB, "bytes", "memory of such a call")
EXCEL_FILE_BYTES = _limit("EXCEL_FILE_BYTES", 64 * MIB, "bytes", "all workbooks of such a call")
EXCEL_OUTPUT_BYTES = _limit("EXCEL_OUTPUT_BYTES", 64 * KIB, "bytes", "what the code of such a call prints")
EXCEL_DUMP_CHARS = _limit("EXCEL_DUMP_CHARS", 8_000, "characters", "a workbook as text, for a model")
EXCEL_TOOL_CELLS = _limit("EXCEL_TOOL_CELLS", 10_000, "cells", "read or written by one call of a cell tool")
EXCEL_ANSWER_CELLS = _limit("EXCEL_ANSWER_CELLS", 200_000, "cells", "compared in one area of an answer")

# Search
INDEX_FILE_BYTES = _limit("INDEX_FILE_BYTES", 32 * MIB, "bytes", "largest file or article that is indexed")
CORPUS_SECONDS = _limit("CORPUS_SECONDS", 15.0, "seconds", "one answer of the platform about a corpus")
CORPUS_TRIES = _limit("CORPUS_TRIES", 4, "tries", "one search of a corpus of the platform, the first included")

# The Wikipedia environment
WIKIPEDIA_ARTICLE_CHARS = _limit("WIKIPEDIA_ARTICLE_CHARS", 10_000, "characters", "an article shown to the model")
WIKIPEDIA_LIVE_SECONDS = _limit("WIKIPEDIA_LIVE_SECONDS", 10.0, "seconds", "one answer of a live MediaWiki")
WIKIPEDIA_LIVE_TRIES = _limit("WIKIPEDIA_LIVE_TRIES", 4, "tries", "one call to a live MediaWiki, the first included")
WIKIPEDIA_LIVE_WAIT = _limit(
    "WIKIPEDIA_LIVE_WAIT", 50.0, "seconds", "one call to a live MediaWiki, its pauses included"
)
WIKIPEDIA_CACHED = _limit("WIKIPEDIA_CACHED", 20_000, "answers", "of a live MediaWiki that are remembered")

# The search environment
SEARCH_OUTPUT_CHARS = _limit("SEARCH_OUTPUT_CHARS", 10_000, "characters", "one search result shown to the model")

# Batches
ROLLOUTS_AT_ONCE = _limit("ROLLOUTS_AT_ONCE", 256, "rollouts", "in flight in one batch, unless set")
FAILED_BATCHES = _limit("FAILED_BATCHES", 8, "batches", "without a scored rollout in a row, in an outside trainer")
