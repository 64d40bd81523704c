"""Every table, one module for each subject; importing this package puts all of them into `Base.metadata`.

    base               what every table is made of
    accounts           users, keys, sign-ins, secrets, endpoints, webhooks, the audit log
    uploads            files and corpora
    runs, queue        runs and what they recorded; work for the runner

Times are Unix seconds; ids are random text, or counters where order matters. A change here needs a migration in
`store/migrations`. Tables hold no queries: those are in the rooms beside this one.
"""

from benchmax.platform.store.tables.accounts import (
    ApiKey,
    Audit,
    Delivery,
    DeviceCode,
    Endpoint,
    Login,
    LoginFailure,
    LoginLink,
    Secret,
    User,
    Webhook,
)
from benchmax.platform.store.tables.base import BIG, Base, new_id
from benchmax.platform.store.tables.queue import Job, OneOffJob
from benchmax.platform.store.tables.runs import (
    Cursor,
    EnvLog,
    Eval,
    Event,
    MetricName,
    MetricValue,
    RolloutRow,
    Run,
)
from benchmax.platform.store.tables.uploads import Blob, BlobPath, Chunk, Corpus, Upload

__all__ = [
    "BIG",
    "ApiKey",
    "Audit",
    "Base",
    "Blob",
    "BlobPath",
    "Chunk",
    "Corpus",
    "Cursor",
    "Delivery",
    "DeviceCode",
    "Endpoint",
    "EnvLog",
    "Eval",
    "Event",
    "Job",
    "Login",
    "LoginFailure",
    "LoginLink",
    "MetricName",
    "MetricValue",
    "OneOffJob",
    "RolloutRow",
    "Run",
    "Secret",
    "Upload",
    "User",
    "Webhook",
    "new_id",
]
