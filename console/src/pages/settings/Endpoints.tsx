// Model servers to compare with: any that speaks the OpenAI way. Keys go in and never come out.
import { useState } from "react";
import { type Endpoint, useCreateEndpoint, useDeleteEndpoint, useEndpoints } from "../../api/account";
import { Button, type Column, Empty, Field, Icon, Input, Pill, Plain, Time } from "../../ui";
import { Intro } from "./Intro";
import { act, FormDialog, Listed, Removal } from "./parts";

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
        A model server that your runs can be compared with: any that speaks the OpenAI chat API, such as vLLM, SGLang,
        Ollama or a provider.
      </Intro>
      <Listed
        asked={endpoints}
        rows={endpoints.data}
        columns={columns(setRemoving)}
        rowKey={(row) => row.id}
        label="Endpoints"
        minWidth={760}
        empty={
          <Empty title="No endpoints yet" icon="link">
            Add one, then choose it on a run's Compare tab.
          </Empty>
        }
      />
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
    act("Remove", (row) => `Remove the endpoint ${row.name}`, onRemove),
  ];
}

function NewEndpoint({ onClose }: { onClose: () => void }) {
  const create = useCreateEndpoint();
  const send = (text: (name: string) => string) =>
    create.mutate(
      {
        name: text("name").trim(),
        baseUrl: text("url").trim(),
        model: text("model").trim(),
        apiKey: text("key").trim(),
      },
      { onSuccess: onClose },
    );
  return (
    <FormDialog title="New endpoint" action="Add it" sending={create} onSend={send} onClose={onClose}>
      <Field label="Name" hint="Shown in comparisons.">
        {(id) => <Input id={id} name="name" required maxLength={200} placeholder="the big one" autoFocus />}
      </Field>
      <Field label="Base URL" hint="Ends in /v1 for most servers.">
        {(id) => (
          <Input id={id} name="url" type="url" required maxLength={500} placeholder="http://127.0.0.1:8000/v1" />
        )}
      </Field>
      <Field label="Model" hint="The model's name on that server.">
        {(id) => <Input id={id} name="model" required maxLength={200} placeholder="qwen3-8b" />}
      </Field>
      <Field label="API key" hint="Stored encrypted and never shown again. Leave empty if the server needs none.">
        {(id) => <Input id={id} name="key" type="password" autoComplete="new-password" />}
      </Field>
    </FormDialog>
  );
}

function Remove({ endpoint, onClose }: { endpoint: Endpoint | null; onClose: () => void }) {
  return (
    <Removal
      row={endpoint}
      id={(row) => row.id}
      removal={useDeleteEndpoint()}
      title="Remove this endpoint?"
      action="Remove it"
      onClose={onClose}
    >
      {(row) => (
        <>
          <strong>
            <Plain text={row.name} />
          </strong>{" "}
          and its key are deleted. Comparisons made with it stay.
        </>
      )}
    </Removal>
  );
}
