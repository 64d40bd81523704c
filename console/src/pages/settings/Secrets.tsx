// Secrets: environment variables of every run of yours. Write-only.
import { type FormEvent, useState } from "react";
import { type Secret, useDeleteSecret, usePutSecret, useSecrets } from "../../api/account";
import { Button, Card, type Column, Empty, ErrorNote, Field, Input, Note, Pill, Plain, Time } from "../../ui";
import { Intro } from "./Intro";
import { act, Listed, Removal } from "./parts";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

export default function Secrets() {
  const secrets = useSecrets();
  const [removing, setRemoving] = useState<Secret | null>(null);
  return (
    <>
      <Intro>
        Your runs get each secret as an environment variable. Values are stored encrypted and removed from logs and
        rollouts; nobody can read them back, not even you.
      </Intro>
      <Card title="Add or replace a secret">
        <NewSecret known={secrets.data ?? []} />
      </Card>
      <Listed
        asked={secrets}
        rows={secrets.data}
        columns={columns(setRemoving)}
        rowKey={(row) => row.name}
        label="Secrets"
        minWidth={480}
        empty={
          <Empty title="No secrets yet" icon="key">
            Environments that call a paid API read its key from a secret, for example <code>SEARCH_API_KEY</code>.
          </Empty>
        }
      />
      <Remove secret={removing} onClose={() => setRemoving(null)} />
    </>
  );
}

function columns(onRemove: (row: Secret) => void): Column<Secret>[] {
  return [
    {
      id: "name",
      head: "Name",
      width: "minmax(200px, 2fr)",
      cell: (row) => (
        <code className="strong">
          <Plain text={row.name} />
        </code>
      ),
      sort: (row) => row.name,
    },
    { id: "value", head: "Value", width: "110px", cell: () => <Pill>hidden</Pill> },
    {
      id: "created",
      head: "Stored",
      width: "120px",
      cell: (row) => <Time at={row.createdAt} />,
      sort: (row) => row.createdAt,
    },
    act("Remove", (row) => `Remove the secret ${row.name}`, onRemove),
  ];
}

function NewSecret({ known }: { known: Secret[] }) {
  const put = usePutSecret();
  const [name, setName] = useState("");
  const wrong = name !== "" && !NAME.test(name);
  const replaces = known.some((secret) => secret.name === name);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const done = () => {
      form.reset();
      setName("");
    };
    put.mutate({ name, value: String(new FormData(form).get("value") ?? "") }, { onSuccess: done });
  };
  return (
    <form className="stack" onSubmit={submit}>
      <div className="settings-line">
        <Field
          label="Name"
          error={wrong && "Letters, digits and _ only; no digit first."}
          hint={replaces && "Replaces the secret of that name."}
        >
          {(id) => (
            <Input
              id={id}
              className="mono"
              value={name}
              required
              maxLength={200}
              placeholder="SEARCH_API_KEY"
              onChange={(event) => setName(event.target.value.trim())}
            />
          )}
        </Field>
        <Field label="Value">
          {(id) => <Input id={id} name="value" type="password" autoComplete="new-password" required />}
        </Field>
        <Button kind="primary" type="submit" busy={put.isPending} disabled={wrong}>
          {replaces ? "Replace" : "Store"}
        </Button>
      </div>
      {put.isError && <ErrorNote error={put.error} />}
      {put.isSuccess && !name && <Note tone="good">Stored. Runs that start from now on get it.</Note>}
    </form>
  );
}

function Remove({ secret, onClose }: { secret: Secret | null; onClose: () => void }) {
  return (
    <Removal
      row={secret}
      id={(row) => row.name}
      removal={useDeleteSecret()}
      title="Remove this secret?"
      action="Remove it"
      onClose={onClose}
    >
      {(row) => (
        <>
          Runs that start from now on do not get{" "}
          <code>
            <Plain text={row.name} />
          </code>
          .
        </>
      )}
    </Removal>
  );
}
