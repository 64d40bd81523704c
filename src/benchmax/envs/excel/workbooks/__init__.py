"""What runs inside the sandbox: reading, recalculating, editing and dumping workbooks.

operations   the entry: one request, one result; start reading here
engine       values after recalculation by ironcalc, and where it is not to be relied on (`doubts`)
libreoffice  a warm LibreOffice, as a second opinion; a program of its own
typed_values what a typed text becomes: `12`, `=A1`, `2024-03-05`
formulas     what the text of a formula tells: functions, references, whether ironcalc can be relied on
dump         a workbook as text
ranges, values   cells named by text; values as JSON

These modules import nothing of benchmax: in the sandbox only this folder can be read. `ranges` and `values` need the
standard library alone, and are used outside as well.
"""
