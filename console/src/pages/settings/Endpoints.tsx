// Model servers to compare with: any that speaks the OpenAI way. Keys go in and never come out.
import { type FormEvent, useState } from "react";
import { type Endpoint, useCreateEndpoint, useDeleteEndpoint, useEndpoints } from "../../api/account";
import {
  Button,
  Card,
  type Column,
  Confirm,
  Dialog,
  Empty,
  ErrorNote,
  Field,
  Icon,
  Input,
  Pill,
  Plain,
  Skeleton,
  Table,
  Time,
} from "../../ui";
import { Intro } from "./Intro";

export default function Endpoints() {
  const endpoints = useEndpoints();
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Endpoint | null>(null);
  return (
    <>
      <Intro
        action={
          <Button kind="primary" icon={<Icon name="plus" />} onClick={() => setAdding(true)}>
            New endpoint
          </Button>
        }
      >
        A model elsewhere that your runs can be compared with: any server that speaks the OpenAI chat API, such as vLLM,
        SGLang, Ollama or a provider.
      </Intro>
      {endpoints.isError && <ErrorNote error={endpoints.error} onRetry={() => endpoints.refetch()} />}
      {endpoints.isPending && <Skeleton lines={4} />}
      {endpoints.data && (
        <Card flush>
          {endpoints.data.length ? (
            <Table
              rows={endpoints.data}
              columns={columns(setRemoving)}
              rowKey={(row) => row.id}
              label="Endpoints"
              rowHeight={46}
              minWidth={760}
            />
          ) : (
            <Empty title="No endpoints yet" icon="link">
              Add one, then choose it on a run's Compare tab.
            </Empty>
          )}
        </Card>
      )}
      {adding && <NewEndpoint onClose={() => setAdding(false)} />}
      <Remove endpoint={removing} onClose={() => setRemoving(null)} />
    </>
  );
}

function columns(onRemove: (row: Endpoint) => void): Column<Endpoint>[] {
  return [
    {
      id: "name",
      head: "Name",
      width: "minmax(120px, 1fr)",
      cell: (row) => <Plain className="strong" text={row.name} />,
      sort: (row) => row.name,
    },
    {
      id: "model",
      head: "Model",
      width: "minmax(140px, 1.2fr)",
      cell: (row) => (
        <code>
          <Plain text={row.model} />
        </code>
      ),
      sort: (row) => row.model,
    },
    {
      id: "url",
      head: "Base URL",
      width: "minmax(200px, 2fr)",
      cell: (row) => (
        <code className="soft">
          <Plain text={row.baseUrl} />
        </code>
      ),
    },
    {
      id: "key",
      head: "Key",
      width: "90px",
      cell: (row) => (row.hasKey ? <Pill tone="good">stored</Pill> : <span className="muted">none</span>),
    },
    {
      id: "created",
      head: "Added",
      width: "100px",
      cell: (row) => <Time at={row.createdAt} />,
      sort: (row) => row.createdAt,
    },
    {
      id: "act",
      head: <span className="offscreen">Actions</span>,
      width: "90px",
      align: "right",
      cell: (row) => (
        <Button size="small" kind="quiet" aria-label={`Remove the endpoint ${row.name}`} onClick={() => onRemove(row)}>
          Remove
        </Button>
      ),
    },
  ];
}

function NewEndpoint({ onClose }: { onClose: () => void }) {
  const create = useCreateEndpoint();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    create.mutate(
      { name: text("name"), baseUrl: text("url"), model: text("model"), apiKey: text("key") },
      { onSuccess: onClose },
    );
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title="New endpoint"
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form="new-endpoint" busy={create.isPending}>
            Add it
          </Button>
        </>
      }
    >
      <form id="new-endpoint" className="settings-form" onSubmit={submit}>
        <Field label="Name" hint="As it is called in comparisons.">
          {(id) => <Input id={id} name="name" required maxLength={200} placeholder="the big one" autoFocus />}
        </Field>
        <Field label="Base URL" hint="Ends in /v1 for most servers.">
          {(id) => (
            <Input id={id} name="url" type="url" required maxLength={500} placeholder="http://127.0.0.1:8000/v1" />
          )}
        </Field>
        <Field label="Model" hint="The name that server knows it by.">
          {(id) => <Input id={id} name="model" required maxLength={200} placeholder="qwen3-8b" />}
        </Field>
        <Field
          label="API key"
          hint="Kept encrypted and never given back. Leave it empty when the server asks for none."
        >
          {(id) => <Input id={id} name="key" type="password" autoComplete="new-password" />}
        </Field>
        {create.isError && <ErrorNote error={create.error} />}
      </form>
    </Dialog>
  );
}

function Remove({ endpoint, onClose }: { endpoint: Endpoint | null; onClose: () => void }) {
  const remove = useDeleteEndpoint();
  return (
    <Confirm
      open={endpoint !== null}
      onClose={onClose}
      title="Remove this endpoint?"
      action="Remove it"
      busy={remove.isPending}
      onConfirm={() => endpoint && remove.mutate(endpoint.id, { onSuccess: onClose })}
    >
      <div className="stack">
        <p>
          <strong>{endpoint && <Plain text={endpoint.name} />}</strong> and its key are forgotten. Comparisons made with
          it stay.
        </p>
        {remove.isError && <ErrorNote error={remove.error} />}
      </div>
    </Confirm>
  );
}
