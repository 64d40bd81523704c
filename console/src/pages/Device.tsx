// A terminal asks to act as you: look at what asks and where from, then say yes or no.
import { type FormEvent, useState } from "react";
import { useDecideDevice, useDevice } from "../api/account";
import { ApiError, type Schemas } from "../api/client";
import {
  Button,
  Command,
  ErrorNote,
  Field,
  format,
  Icon,
  Input,
  Note,
  Page,
  Plain,
  Skeleton,
  Time,
  useNow,
  useSearch,
} from "../ui";
import "./device.css";

type Waiting = Schemas["DeviceWaiting"];

export default function Device() {
  const search = useSearch();
  const given = tidy(search.get("user_code"));
  const [answer, setAnswer] = useState<"approved" | "denied" | null>(null);
  const isWhole = given.length === 9;
  const device = useDevice(isWhole && !answer ? given : null);
  const again = () => {
    setAnswer(null);
    search.set({ user_code: null });
  };
  const unknown = device.isError && device.error instanceof ApiError && device.error.status === 404;
  return (
    <Page title="Approve a device">
      <div className="device">
        {answer ? (
          <Answered answer={answer} onAgain={again} />
        ) : device.data ? (
          <Decide device={device.data} onAnswer={setAnswer} onAgain={again} />
        ) : device.isFetching ? (
          <Skeleton lines={4} />
        ) : (
          <Enter
            key={given}
            initial={given}
            problem={unknown ? device.error : null}
            onCode={(code) => (code === given ? device.refetch() : search.set({ user_code: code }))}
          />
        )}
        {device.isError && !unknown && <ErrorNote error={device.error} onRetry={() => device.refetch()} />}
      </div>
    </Page>
  );
}

/** A code as the server writes it, however it was typed. */
function tidy(text: string): string {
  const letters = text
    .toUpperCase()
    .replace(/[^A-Z]/g, "")
    .slice(0, 8);
  return letters.length > 4 ? `${letters.slice(0, 4)}-${letters.slice(4)}` : letters;
}

function Enter({
  initial,
  problem,
  onCode,
}: {
  initial: string;
  problem: Error | null;
  onCode: (code: string) => void;
}) {
  const [code, setCode] = useState(initial);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (code.length === 9) onCode(code);
  };
  return (
    <>
      <p className="muted">
        After this command, a terminal on another machine shows a code of eight letters. Enter it here to sign that
        machine in as you.
      </p>
      <Command text={`benchmax login --url ${window.location.origin}`} />
      <form className="device-form" onSubmit={submit}>
        <Field label="Code" error={problem && <Plain text={problem.message} />}>
          {(id) => (
            <Input
              id={id}
              className="device-code"
              value={code}
              placeholder="····-····"
              autoCapitalize="characters"
              maxLength={12}
              autoFocus
              onChange={(event) => setCode(tidy(event.target.value))}
            />
          )}
        </Field>
        <Button kind="primary" type="submit" disabled={code.length !== 9}>
          Continue
        </Button>
      </form>
    </>
  );
}

function Decide({
  device,
  onAnswer,
  onAgain,
}: {
  device: Waiting;
  onAnswer: (answer: "approved" | "denied") => void;
  onAgain: () => void;
}) {
  const decide = useDecideDevice();
  const now = useNow(1000);
  const left = Math.max(0, Math.ceil((new Date(device.expiresAt).getTime() - now) / 60_000));
  const say = (approve: boolean) =>
    decide.mutate(
      { userCode: device.userCode, approve },
      { onSuccess: () => onAnswer(approve ? "approved" : "denied") },
    );
  return (
    <>
      <div className="device-shown">{device.userCode}</div>
      <dl className="device-facts">
        <dt>Client</dt>
        <dd>
          <Plain text={device.clientId} />
        </dd>
        <dt>From</dt>
        <dd>
          <code>
            <Plain text={device.address || "unknown"} />
          </code>
        </dd>
        <dt>Requested</dt>
        <dd>
          <Time at={device.createdAt} />
        </dd>
        <dt>Access</dt>
        <dd>a key with all your permissions, valid for 90 days. You can revoke it in the settings.</dd>
      </dl>
      {left > 0 ? (
        <Note tone="warn">
          Approve it only if your own terminal shows this code now. {format.plural(left, "minute")} left.
        </Note>
      ) : (
        <Note tone="bad">This code has expired. Start the sign-in again in the terminal.</Note>
      )}
      {decide.isError && <ErrorNote error={decide.error} />}
      <div className="row">
        <Button
          kind="primary"
          busy={decide.isPending && decide.variables?.approve}
          disabled={left === 0 || decide.isPending}
          onClick={() => say(true)}
        >
          Approve
        </Button>
        <Button kind="danger" disabled={decide.isPending} onClick={() => say(false)}>
          Deny
        </Button>
        <Button kind="quiet" onClick={onAgain}>
          Another code
        </Button>
      </div>
    </>
  );
}

function Answered({ answer, onAgain }: { answer: "approved" | "denied"; onAgain: () => void }) {
  const yes = answer === "approved";
  return (
    <div className="device-done" role="status">
      <span className={yes ? "device-mark good" : "device-mark bad"}>
        <Icon name={yes ? "check" : "close"} size={22} />
      </span>
      <h2>{yes ? "The device is signed in" : "The device is denied"}</h2>
      <p className="muted">
        {yes
          ? "Return to its terminal; it continues by itself within seconds."
          : "It has no access. If you did not start this sign-in, somebody else tried to."}
      </p>
      <Button onClick={onAgain}>Another code</Button>
    </div>
  );
}
