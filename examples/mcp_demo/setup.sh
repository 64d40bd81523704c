# Runs once on each machine before the first server starts. The demo needs nothing but benchmax[mcp]; another would say:
# pip install openpyxl
