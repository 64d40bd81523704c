// Addresses that are notified when a run ends or raises an alert, and what came of each message.
import { useState } from "react";
import {
  type Delivery,
  useCreateWebhook,
  useDeleteWebhook,
  useDeliveries,
  useTestWebhook,
  useWebhooks,
  type Webhook,
} from "../../api/account";
import {
  Button,
  type Column,
  Copy,
  Dialog,
  Empty,
  ErrorNote,
  Field,
  Icon,
  Input,
  Link,
  Note,
  Num,
  Pill,
  Plain,
  Time,
  type Tone,
} from "../../ui";
import { Intro } from "./Intro";
import { act, Choices, FormDialog, Listed, Removal } from "./parts";

type Event = "run.ended" | "run.alert";
const EVENTS: { id: Event; label: string; text: string }[] = [
  { id: "run.ended", label: "Ends", text: "a run finishes, fails, stalls or is stopped" },
  { id: "run.alert", label: "Alerts", text: "a watchdog raises an alert" },
];

export default function Webhooks() {
  const webhooks = useWebhooks();
  const [adding, setAdding] = useState(false);
  const [opened, setOpened] = useState<Webhook | null>(null);
  const [removing, setRemoving] = useState<Webhook | null>(null);
  return (
    <>
      <Intro
        action={
          <Button kind="primary" icon={<Icon name="plus" />} onClick={() => setAdding(true)}>
            New webhook
          </Button>
        }
      >
        An address that gets a signed POST when one of your runs ends or triggers an alert: a chat channel, a script, a
        pager. Its JSON body has a one-line <code>text</code>.
      </Intro>
      <Listed
        asked={webhooks}
        rows={webhooks.data}
        columns={columns(setOpened, setRemoving)}
        rowKey={(row) => row.id}
        label="Webhooks"
        minWidth={720}
        empty={
          <Empty title="No webhooks yet" icon="link">
            Add one to be notified without watching this page.
          </Empty>
        }
      />
      {adding && <NewWebhook onClose={() => setAdding(false)} />}
      {opened && <Deliveries webhook={opened} onClose={() => setOpened(null)} />}
      <Remove webhook={removing} onClose={() => setRemoving(null)} />
    </>
  );
}

function columns(onOpen: (row: Webhook) => void, onRemove: (row: Webhook) => void): Column<Webhook>[] {
  return [
    {
      id: "url",
      head: "Address",
      width: "minmax(220px, 2fr)",
      cell: (row) => (
        <code className="soft clip">
          <Plain text={row.url} />
        </code>
      ),
      sort: (row) => row.url,
    },
    {
      id: "events",
      head: "Events",
      width: "140px",
      cell: (row) => (
        <span className="row-tight">
          {EVENTS.filter((event) => row.events.includes(event.id)).map((event) => (
            <Pill key={event.id} title={event.text}>
              {event.label.toLowerCase()}
            </Pill>
          ))}
        </span>
      ),
    },
    {
      id: "last",
      head: "Latest message",
      width: "190px",
      cell: (row) =>
        row.last ? (
          <span className="row-tight">
            <State delivery={row.last} /> <Time at={row.last.createdAt} />
          </span>
        ) : (
          <span className="muted">none so far</span>
        ),
    },
    {
      id: "log",
      head: <span className="offscreen">Messages</span>,
      width: "96px",
      cell: (row) => (
        <Button size="small" kind="quiet" aria-label={`Messages to ${row.url}`} onClick={() => onOpen(row)}>
          Messages
        </Button>
      ),
    },
    act("Remove", (row) => `Remove the webhook ${row.url}`, onRemove),
  ];
}

const STATES: Record<Delivery["status"], { word: string; tone: Tone }> = {
  queued: { word: "on its way", tone: "live" },
  delivered: { word: "delivered", tone: "good" },
  failed: { word: "given up", tone: "bad" },
};

function State({ delivery }: { delivery: Delivery }) {
  const again = delivery.status === "queued" && delivery.problem !== "";
  const { word, tone } = again ? { word: "retrying", tone: "warn" as const } : STATES[delivery.status];
  return (
    <Pill tone={tone} title={delivery.problem}>
      {word}
    </Pill>
  );
}

function NewWebhook({ onClose }: { onClose: () => void }) {
  const create = useCreateWebhook();
  const [events, setEvents] = useState<Event[]>(["run.ended", "run.alert"]);
  if (create.data) return <Made secret={create.data.secret} onClose={onClose} />;
  return (
    <FormDialog
      title="New webhook"
      action="Add it"
      sending={create}
      disabled={!events.length}
      onSend={(text) => create.mutate({ url: text("url").trim(), events })}
      onClose={onClose}
    >
      <Field label="Address" hint="Receives a POST with a JSON body, signed according to Standard Webhooks.">
        {(id) => (
          <Input
            id={id}
            name="url"
            type="url"
            required
            maxLength={2000}
            placeholder="https://hooks.example.org/…"
            autoFocus
          />
        )}
      </Field>
      <Choices legend="Notify when" all={EVENTS} chosen={events} onChange={setEvents} />
    </FormDialog>
  );
}

function Made({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <Dialog
      open
      onClose={onClose}
      title="Signing secret"
      actions={
        <Button kind="primary" onClick={onClose}>
          Done
        </Button>
      }
    >
      <div className="settings-form">
        <Note tone="info">
          The receiver uses it to verify that a message is from here. It is not shown again; a receiver that does not
          verify messages does not need it.
        </Note>
        <div className="settings-once">
          <code data-testid="webhook-secret">{secret}</code>
          <Copy text={secret} label="Copy the secret" />
        </div>
      </div>
    </Dialog>
  );
}

/** What was sent, and trying it. */
function Deliveries({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const found = useDeliveries(webhook.id);
  const test = useTestWebhook();
  return (
    <Dialog
      open
      wide
      onClose={onClose}
      title="Messages"
      actions={
        <Button busy={test.isPending} onClick={() => test.mutate(webhook.id)}>
          Send a test message
        </Button>
      }
    >
      <div className="settings-form">
        <code className="soft settings-url">
          <Plain text={webhook.url} />
        </code>
        {test.isError && <ErrorNote error={test.error} />}
        <Listed
          asked={found}
          rows={found.data}
          columns={DELIVERIES}
          rowKey={(row) => row.id}
          label="Messages"
          minWidth={640}
          empty={<Empty title="Nothing sent yet">Send a test message to see whether it arrives.</Empty>}
        />
      </div>
    </Dialog>
  );
}

const DELIVERIES: Column<Delivery>[] = [
  { id: "time", head: "Time", width: "92px", cell: (row) => <Time at={row.createdAt} /> },
  { id: "event", head: "Event", width: "100px", cell: (row) => <code>{row.event}</code> },
  {
    id: "run",
    head: "Run",
    width: "60px",
    cell: (row) =>
      row.runId ? <Link href={`/experiments/${encodeURIComponent(row.runId)}`}>open</Link> : <span>–</span>,
  },
  { id: "state", head: "State", width: "104px", cell: (row) => <State delivery={row} /> },
  { id: "attempts", head: "Attempts", width: "76px", cell: (row) => <Num value={row.attempts} /> },
  {
    id: "problem",
    head: "Answer",
    width: "minmax(160px, 1fr)",
    cell: (row) => <Plain className="clip" text={row.problem || (row.answer === null ? "–" : String(row.answer))} />,
  },
];

function Remove({ webhook, onClose }: { webhook: Webhook | null; onClose: () => void }) {
  return (
    <Removal
      row={webhook}
      id={(row) => row.id}
      removal={useDeleteWebhook()}
      title="Remove this webhook?"
      action="Remove it"
      onClose={onClose}
    >
      {(row) => (
        <>
          <strong>
            <Plain text={row.url} />
          </strong>{" "}
          is no longer notified; pending messages are not sent.
        </>
      )}
    </Removal>
  );
}
