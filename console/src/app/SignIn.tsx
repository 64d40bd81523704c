// Signing in: by the one-time link that `benchmax up` prints, or by e-mail and password. The address stays as it was.
import { useRouter, useRouterState } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { ApiError, request } from "../api/client";
import { queries } from "../api/queries";
import { session } from "../api/session";
import { Button, Command, ErrorNote, Field, Input } from "../ui";
import { Brand } from "./Shell";

/** The page a link leads to once its bearer is in: one of ours, whatever the link says. */
function ownPage(path: string | null): string | null {
  return path && /^\/[^/\\]/.test(path) ? path : null;
}

export function SignIn() {
  const { history } = useRouter();
  const location = useRouterState({ select: (state) => state.location });
  const asked = new URLSearchParams(location.pathname === "/login" ? location.searchStr : "");
  const token = asked.get("token") ?? "";
  const [byPassword, setByPassword] = useState(!token);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    const form = Object.fromEntries(new FormData(event.currentTarget));
    try {
      await request("POST", "/login", byPassword ? form : { token });
      queries.clear();
      if (location.pathname === "/login") history.replace(ownPage(asked.get("next")) ?? "/experiments");
      session.begin();
    } catch (problem) {
      setError(problem instanceof Error ? problem : new ApiError(0, String(problem)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="center">
      <div className="signin">
        <Brand />
        <h1>Sign in</h1>
        <form onSubmit={submit}>
          {byPassword ? (
            <>
              <Field label="E-mail">
                {(id) => (
                  <Input
                    id={id}
                    name="email"
                    type="text"
                    inputMode="email"
                    autoComplete="username"
                    required
                    autoFocus
                  />
                )}
              </Field>
              <Field label="Password">
                {(id) => <Input id={id} name="password" type="password" autoComplete="current-password" required />}
              </Field>
            </>
          ) : (
            <p className="muted">This link signs you in once, in this browser.</p>
          )}
          {error && <ErrorText error={error} />}
          <Button kind="primary" type="submit" busy={busy}>
            Sign in
          </Button>
        </form>
        {token && !byPassword ? (
          <Button kind="quiet" size="small" onClick={() => setByPassword(true)}>
            Use e-mail and password
          </Button>
        ) : (
          <div className="stack-tight muted small">
            <span>No password yet? On the server's machine, this command prints a link that signs you in:</span>
            <div>
              <Command text="benchmax up" />
            </div>
          </div>
        )}
      </div>
    </main>
  );
}

function ErrorText({ error }: { error: Error }) {
  return <ErrorNote error={new Error(error.message)} />;
}
