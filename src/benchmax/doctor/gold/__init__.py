"""What a good answer looks like, found by trying: the environment's reward is the only judge.

demonstrations  whole solutions, played through the environment's own tools; start reading here
answer_search   tries values in forms and keeps what earns most
ground_truths   the values of a task that may be the answer, each as the texts it could be written as
answer_formats  the forms a prompt asks for (tags, labels, JSON, code), in which an answer may have to be written
delimiters      marks around an answer, as the prompt shows them: doubled, turned round, around an example
templates       answers with several places to fill, as the prompt shows them
table_formats   tables, lists and grids as answers write them: CSV, XML, Markdown, lines
value_formats   values in the prompt's own words: names of a switch or a label, a date or a number as it shows one
tool_search     solutions by tool calls, where nothing shows one; `call_values` and `sql_queries` make the calls

Nothing here knows a trainer or a model: answers are played by scripts.
"""
