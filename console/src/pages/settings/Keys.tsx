// API keys: made with a scope and an end, shown once, revoked for good.
import { useState } from "react";
import { type KeyInfo, useApiKeys, useCreateKey, useRevokeKey } from "../../api/account";
import {
  Button,
  Check,
  type Column,
  Copy,
  Dialog,
  Empty,
  Field,
  format,
  Icon,
  Input,
  Note,
  Pill,
  Plain,
  Select,
  Time,
  useNow,
  useSearch,
} from "../../ui";
import { Intro } from "./Intro";
import { act, Choices, FormDialog, Listed, Removal } from "./parts";

const SCOPES = [
  { id: "read", label: "Read", text: "see runs, datasets and environments" },
  { id: "write", label: "Write", text: "upload, launch, change and delete" },
  { id: "admin", label: "Admin", text: "keys, secrets, users and the audit log" },
] as const;
type Scope = (typeof SCOPES)[number]["id"];

export default function Keys() {
  const keys = useApiKeys();
  const search = useSearch();
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<KeyInfo | null>(null);
  const now = useNow(30_000);
  const all = keys.data ?? [];
  const dead = all.filter((key) => !isUsable(key, now)).length;
  const withDead = search.get("old") === "1";
  const shown = withDead ? all : all.filter((key) => isUsable(key, now));
  return (
    <>
      <Intro
        action={
          <Button kind="primary" icon={<Icon name="plus" />} onClick={() => setMaking(true)}>
            New key
          </Button>
        }
      >
        A key lets a program act as you. The server stores only its digest, so a key is shown once, when it is created.
      </Intro>
      <Listed
        asked={keys}
        rows={keys.data && shown}
        columns={columns(now, setRevoking)}
        rowKey={(key) => key.id}
        label="API keys"
        minWidth={860}
        rowClass={(key) => (isUsable(key, now) ? undefined : "settings-gone")}
        empty={
          <Empty title="No keys yet" icon="key" command="benchmax login">
            Create one for a script or another machine. This machine needs none, and this command signs in another one
            without a key.
          </Empty>
        }
      />
      {dead > 0 && (
        <div>
          <Check
            label={`Show revoked and expired keys (${dead})`}
            checked={withDead}
            onChange={(event) => search.set({ old: event.target.checked ? 1 : null })}
          />
        </div>
      )}
      {making && <NewKey onClose={() => setMaking(false)} />}
      <Revoke keyInfo={revoking} onClose={() => setRevoking(null)} />
    </>
  );
}

function isUsable(key: KeyInfo, now: number): boolean {
  return !key.revoked && (!key.expiresAt || new Date(key.expiresAt).getTime() > now);
}

function columns(now: number, onRevoke: (key: KeyInfo) => void): Column<KeyInfo>[] {
  return [
    {
      id: "name",
      head: "Name",
      width: "minmax(140px, 2fr)",
      cell: (key) => (
        <span className="clip strong">
          {key.name ? <Plain text={key.name} /> : <span className="muted">no name</span>}
        </span>
      ),
      sort: (key) => key.name,
    },
    { id: "prefix", head: "Begins with", width: "130px", cell: (key) => <code>sk_{key.prefix}_…</code> },
    { id: "scopes", head: "Scopes", width: "190px", cell: (key) => <Scopes scopes={key.scopes} /> },
    {
      id: "created",
      head: "Created",
      width: "100px",
      cell: (key) => <Time at={key.createdAt} />,
      sort: (key) => key.createdAt,
    },
    {
      id: "used",
      head: "Last used",
      width: "100px",
      cell: (key) => (key.lastUsedAt ? <Time at={key.lastUsedAt} /> : <span className="muted">never</span>),
      sort: (key) => key.lastUsedAt,
    },
    {
      id: "ends",
      head: "Expires",
      width: "110px",
      cell: (key) => <Ends keyInfo={key} now={now} />,
      sort: (key) => key.expiresAt,
    },
    act(
      "Revoke",
      (key) => `Revoke the key ${key.name || key.prefix}`,
      onRevoke,
      (key) => isUsable(key, now),
    ),
  ];
}

function Scopes({ scopes }: { scopes: string[] }) {
  return (
    <span className="row-tight">
      {SCOPES.filter((scope) => scopes.includes(scope.id)).map((scope) => (
        <Pill key={scope.id} tone={scope.id === "admin" ? "warn" : "neutral"} title={scope.text}>
          {scope.label.toLowerCase()}
        </Pill>
      ))}
    </span>
  );
}

function Ends({ keyInfo, now }: { keyInfo: KeyInfo; now: number }) {
  if (keyInfo.revoked) return <Pill tone="bad">revoked</Pill>;
  if (!keyInfo.expiresAt) return <span className="muted">never</span>;
  const left = new Date(keyInfo.expiresAt).getTime() - now;
  if (left <= 0) return <Pill tone="warn">expired</Pill>;
  const days = Math.max(1, Math.round(left / 86_400_000));
  return <span className={days <= 7 ? "warn" : undefined}>in {format.plural(days, "day")}</span>;
}

function NewKey({ onClose }: { onClose: () => void }) {
  const create = useCreateKey();
  const [scopes, setScopes] = useState<Scope[]>(["read", "write"]);
  const made = create.data;
  const send = (text: (name: string) => string) =>
    create.mutate({ name: text("name").trim(), scopes, days: Number(text("days")) || null });
  if (made) return <Made text={made.key} onClose={onClose} />;
  return (
    <FormDialog
      title="New API key"
      action="Create key"
      sending={create}
      disabled={!scopes.length}
      onSend={send}
      onClose={onClose}
    >
      <Field label="Name" hint="What uses it, so that you know what stops when you revoke it.">
        {(id) => (
          <Input
            id={id}
            name="name"
            maxLength={200}
            placeholder="laptop, nightly job …"
            required
            pattern=".*\S.*"
            title="A name that tells this key from the others"
            autoFocus
          />
        )}
      </Field>
      <Choices legend="Scopes" all={SCOPES} chosen={scopes} onChange={setScopes} />
      <Field label="Expires after">
        {(id) => (
          <Select id={id} name="days" defaultValue="90">
            <option value="7">7 days</option>
            <option value="30">30 days</option>
            <option value="90">90 days</option>
            <option value="365">1 year</option>
            <option value="">never</option>
          </Select>
        )}
      </Field>
    </FormDialog>
  );
}

function Made({ text, onClose }: { text: string; onClose: () => void }) {
  return (
    <Dialog
      open
      onClose={onClose}
      title="Your new key"
      actions={
        <Button kind="primary" onClick={onClose}>
          I have copied it
        </Button>
      }
    >
      <div className="settings-form">
        <Note tone="warn">Copy it now. It is not shown again; if you lose it, revoke it and create another.</Note>
        <div className="settings-once">
          <code data-testid="new-key">{text}</code>
          <Copy text={text} label="Copy the key" />
        </div>
        <div className="stack-tight">
          <span className="muted small">In a shell:</span>
          <div className="settings-once">
            <code>export BENCHMAX_API_KEY={text}</code>
            <Copy text={`export BENCHMAX_API_KEY=${text}`} label="Copy the shell command" />
          </div>
        </div>
      </div>
    </Dialog>
  );
}

function Revoke({ keyInfo, onClose }: { keyInfo: KeyInfo | null; onClose: () => void }) {
  return (
    <Removal
      row={keyInfo}
      id={(key) => key.id}
      removal={useRevokeKey()}
      title="Revoke this key?"
      action="Revoke it"
      onClose={onClose}
    >
      {(key) => (
        <>
          Programs that use <strong>{key.name ? <Plain text={key.name} /> : <code>sk_{key.prefix}_…</code>}</strong> are
          refused from now on. This cannot be undone.
        </>
      )}
    </Removal>
  );
}
