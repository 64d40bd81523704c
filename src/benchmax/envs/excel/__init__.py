"""Tasks on workbooks, solved with formulas, cell tools and Python code, and judged by value after recalculation.

excel_env          the environments; start reading here
tools              the tools
reward             how a workbook is scored
row_shapes, levels/   rows and examples, those of spreadsheetbench among them; generated tasks
mcp_server, workdir/   the tools as an MCP server
workbook_sandbox   workbooks are opened inside the sandbox alone, by libreoffice_client too
workbooks/         what runs there: recalculation, edits, text dumps
"""

from benchmax.envs.excel.excel_env import ExcelEnv, ExcelEnvInProcess, ExcelEnvLocal, ExcelEnvSkypilot

__all__ = ["ExcelEnv", "ExcelEnvInProcess", "ExcelEnvLocal", "ExcelEnvSkypilot"]
