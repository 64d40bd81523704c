"""Where the records are: the port that the tools speak to, and what stands behind it.

base         `Org`, the port: SOQL and SOSL in, rows out; `QueryError`, the errors of both
schema       the objects, their fields, and what refers to what
embedded     `EmbeddedOrg`: a generated company in SQLite, read-only, shared by all rollouts
salesforce   `SalesforceOrg`: a live org, by simple-salesforce
"""
