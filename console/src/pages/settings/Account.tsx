// Your own way in: the password, and ending every session at once.
import { type FormEvent, useEffect, useState } from "react";
import { useChangePassword, useSignOutEverywhere } from "../../api/account";
import { ApiError } from "../../api/client";
import { queries, useMe } from "../../api/queries";
import { session } from "../../api/session";
import { Button, Card, Check, Confirm, ErrorNote, Facts, Field, Input, Note, Plain, Skeleton } from "../../ui";
import { Intro } from "./Intro";

const FEWEST = 10;

export default function Account() {
  const me = useMe();
  const stranger = me.error instanceof ApiError && me.error.status === 401;
  useEffect(() => {
    if (stranger) session.end();
  }, [stranger]);
  if (me.isError) return <ErrorNote error={me.error} onRetry={() => me.refetch()} />;
  if (!me.data) return <Skeleton lines={5} />;
  return (
    <>
      <Intro>How you sign in to this platform, in a browser. Programs use API keys.</Intro>
      <Card title="You">
        <Facts
          items={[
            { name: "E-mail", value: <Plain text={me.data.email} /> },
            { name: "Role", value: me.data.role === "admin" ? "administrator" : "member" },
            { name: "Signs in by", value: me.data.hasPassword ? "password" : "link only" },
          ]}
        />
      </Card>
      <Password hasOne={me.data.hasPassword ?? false} email={me.data.email} />
      <Everywhere />
    </>
  );
}

function Password({ hasOne, email }: { hasOne: boolean; email: string }) {
  const change = useChangePassword();
  const [differ, setDiffer] = useState(false);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const text = (name: string) => String(new FormData(form).get(name) ?? "");
    setDiffer(text("new") !== text("again"));
    if (text("new") === text("again"))
      change.mutate({ currentPassword: text("current"), newPassword: text("new") }, { onSuccess: () => form.reset() });
  };
  return (
    <Card title={hasOne ? "Change the password" : "Set a password"}>
      <form className="settings-form settings-narrow" onSubmit={submit}>
        <input type="hidden" name="username" autoComplete="username" value={email} readOnly />
        {hasOne && (
          <Field label="Current password">
            {(id) => <Input id={id} name="current" type="password" autoComplete="current-password" required />}
          </Field>
        )}
        <Field label="New password" hint={`At least ${FEWEST} characters.`}>
          {(id) => <NewPassword id={id} name="new" />}
        </Field>
        <Field label="Repeat the new password" error={differ && "The passwords do not match."}>
          {(id) => <NewPassword id={id} name="again" />}
        </Field>
        {change.isError && <ErrorNote error={change.error} />}
        {change.isSuccess && <Note tone="good">{change.data.message}</Note>}
        <div>
          <Button kind="primary" type="submit" busy={change.isPending}>
            {hasOne ? "Change it" : "Set it"}
          </Button>
        </div>
      </form>
    </Card>
  );
}

function NewPassword({ id, name }: { id: string; name: string }) {
  return (
    <Input
      id={id}
      name={name}
      type="password"
      autoComplete="new-password"
      required
      minLength={FEWEST}
      maxLength={1000}
    />
  );
}

function Everywhere() {
  const out = useSignOutEverywhere();
  const [asking, setAsking] = useState(false);
  const [keys, setKeys] = useState(false);
  const leave = () =>
    out.mutate(
      { keys },
      {
        onSuccess: () => {
          queries.clear();
          session.end();
        },
      },
    );
  return (
    <Card title="Sign out everywhere">
      <div className="settings-form settings-narrow">
        <p className="muted">
          Ends all your sessions, in this and every other browser, and cancels pending sign-in links and devices.
        </p>
        <Check label="Revoke all my API keys too" checked={keys} onChange={(event) => setKeys(event.target.checked)} />
        <div>
          <Button kind="danger" onClick={() => setAsking(true)}>
            Sign out everywhere
          </Button>
        </div>
      </div>
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title="Sign out everywhere?"
        action="Sign out"
        busy={out.isPending}
        onConfirm={leave}
      >
        <div className="stack">
          <p>
            You have to sign in again in each browser.
            {keys &&
              " Programs that use your API keys are refused from now on, including the commands on this machine."}
          </p>
          {out.isError && <ErrorNote error={out.error} />}
        </div>
      </Confirm>
    </Card>
  );
}
