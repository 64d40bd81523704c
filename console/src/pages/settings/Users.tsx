// Users: who may sign in. An administrator adds and removes them; others see themselves.
import { type FormEvent, useState } from "react";
import { type User, useCreateUser, useDeleteUser, useUsers } from "../../api/account";
import { useMe } from "../../api/queries";
import {
  Button,
  Card,
  type Column,
  Confirm,
  Dialog,
  ErrorNote,
  Field,
  format,
  Icon,
  Input,
  Num,
  Pill,
  Plain,
  Select,
  Skeleton,
  Table,
  Time,
} from "../../ui";
import { Intro } from "./Intro";

export default function Users() {
  const users = useUsers();
  const me = useMe();
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<User | null>(null);
  const isAdmin = me.data?.role === "admin";
  return (
    <>
      <Intro
        action={
          isAdmin && (
            <Button kind="primary" icon={<Icon name="plus" />} onClick={() => setAdding(true)}>
              New user
            </Button>
          )
        }
      >
        {isAdmin
          ? "Each user sees only their own runs, datasets, keys and secrets, and the runs others made public."
          : "Only an administrator sees and changes others. This is you."}
      </Intro>
      {users.isError && <ErrorNote error={users.error} onRetry={() => users.refetch()} />}
      {users.isPending && <Skeleton lines={4} />}
      {users.data && (
        <Card flush>
          <Table
            rows={users.data}
            columns={columns(me.data?.id, isAdmin ? setRemoving : null)}
            rowKey={(user) => user.id}
            label="Users"
            rowHeight={44}
            minWidth={640}
          />
        </Card>
      )}
      {adding && <NewUser onClose={() => setAdding(false)} />}
      <Remove user={removing} onClose={() => setRemoving(null)} />
    </>
  );
}

function columns(mine: string | undefined, onRemove: ((user: User) => void) | null): Column<User>[] {
  return [
    {
      id: "name",
      head: "E-mail",
      width: "minmax(180px, 2fr)",
      sort: (user) => user.name,
      cell: (user) => (
        <span className="row-tight">
          <Plain className="clip strong" text={user.name} /> {user.id === mine && <Pill>you</Pill>}
        </span>
      ),
    },
    {
      id: "role",
      head: "Role",
      width: "120px",
      cell: (user) => (
        <Pill tone={user.role === "admin" ? "info" : "neutral"}>
          {user.role === "admin" ? "administrator" : "member"}
        </Pill>
      ),
      sort: (user) => user.role,
    },
    {
      id: "signin",
      head: "Signs in by",
      width: "110px",
      cell: (user) => (user.hasPassword ? "password" : <span className="muted">link only</span>),
    },
    {
      id: "runs",
      head: "Runs",
      width: "70px",
      align: "right",
      cell: (user) => <Num value={user.runs} />,
      sort: (user) => user.runs,
    },
    {
      id: "created",
      head: "Added",
      width: "110px",
      cell: (user) => <Time at={user.createdAt} />,
      sort: (user) => user.createdAt,
    },
    {
      id: "act",
      head: <span className="offscreen">Actions</span>,
      width: "90px",
      align: "right",
      cell: (user) =>
        onRemove &&
        user.id !== mine && (
          <Button size="small" kind="quiet" aria-label={`Remove the user ${user.name}`} onClick={() => onRemove(user)}>
            Remove
          </Button>
        ),
    },
  ];
}

function NewUser({ onClose }: { onClose: () => void }) {
  const create = useCreateUser();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const role = form.get("role") === "admin" ? "admin" : "member";
    create.mutate(
      { name: String(form.get("name")).trim(), password: String(form.get("password")), role },
      { onSuccess: onClose },
    );
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title="New user"
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form="new-user" busy={create.isPending}>
            Add the user
          </Button>
        </>
      }
    >
      <form id="new-user" className="settings-form" onSubmit={submit}>
        <Field label="E-mail">
          {(id) => <Input id={id} name="name" type="email" required maxLength={320} autoFocus />}
        </Field>
        <Field label="Password" hint="Ten letters or more. Tell it to them in person, or by a channel you trust.">
          {(id) => (
            <Input
              id={id}
              name="password"
              type="password"
              autoComplete="new-password"
              required
              minLength={10}
              maxLength={1000}
            />
          )}
        </Field>
        <Field label="Role" hint="An administrator adds users and sees the whole audit log.">
          {(id) => (
            <Select id={id} name="role" defaultValue="member">
              <option value="member">member</option>
              <option value="admin">administrator</option>
            </Select>
          )}
        </Field>
        {create.isError && <ErrorNote error={create.error} />}
      </form>
    </Dialog>
  );
}

function Remove({ user, onClose }: { user: User | null; onClose: () => void }) {
  const remove = useDeleteUser();
  return (
    <Confirm
      open={user !== null}
      onClose={onClose}
      title="Remove this user?"
      action="Remove the user"
      busy={remove.isPending}
      onConfirm={() => user && remove.mutate(user.id, { onSuccess: onClose })}
    >
      <div className="stack">
        <p>
          <strong>{user && <Plain text={user.name} />}</strong> can no longer sign in; their keys and secrets are
          forgotten
          {user?.runs ? `, and ${format.plural(user.runs, "run")} deleted` : ""}. This cannot be undone.
        </p>
        {remove.isError && <ErrorNote error={remove.error} />}
      </div>
    </Confirm>
  );
}
