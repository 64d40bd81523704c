"""SOQL and SOSL, the query languages of Salesforce: the part of them that the embedded org understands.

syntax     what a query is, as dataclasses
parser     text → tokens → a SOQL query
sql        a SOQL query → SQL with parameters; every name is looked up in the schema, every value is bound
date_literals   TODAY, LAST_N_DAYS:30 and their like, as spans of days
search     SOSL: text → a search, and which records it finds
quoting    values → literals, for those who write queries

Covered: SELECT of fields, paths to related records, COUNT() and aggregates; WHERE with AND, OR, NOT, brackets,
= != < <= > >= LIKE IN NOT IN, semi-joins, date literals and functions; GROUP BY, HAVING, ORDER BY, LIMIT, OFFSET;
FIND … IN … FIELDS RETURNING object(fields WHERE … ORDER BY … LIMIT …) with AND, OR, AND NOT, phrases and wildcards.
Not covered: subqueries in the field list, TYPEOF, polymorphic fields, geolocation, currencies, time zones, FOR, USING,
WITH, ALL ROWS, multi-select picklists; relevance and synonyms in searches. They are refused by name.
"""
