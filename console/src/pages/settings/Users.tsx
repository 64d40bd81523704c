// Users: who may sign in. An administrator adds and removes them; others see themselves.
import { useState } from "react";
import { type User, useCreateUser, useDeleteUser, useUsers } from "../../api/account";
import { useMe } from "../../api/queries";
import { Button, type Column, Field, format, Icon, Input, Num, Pill, Plain, Select, Time } from "../../ui";
import { Intro } from "./Intro";
import { act, FormDialog, Listed, Removal } from "./parts";

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
          : "Only an administrator can see and change other users. This is you."}
      </Intro>
      <Listed
        asked={users}
        rows={users.data}
        columns={columns(me.data?.id, isAdmin ? setRemoving : null)}
        rowKey={(user) => user.id}
        label="Users"
        minWidth={640}
      />
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
    act(
      "Remove",
      (user) => `Remove the user ${user.name}`,
      (user) => onRemove?.(user),
      (user) => onRemove !== null && user.id !== mine,
    ),
  ];
}

function NewUser({ onClose }: { onClose: () => void }) {
  const create = useCreateUser();
  const send = (text: (name: string) => string) =>
    create.mutate(
      {
        name: text("name").trim(),
        password: text("password"),
        role: text("role") === "admin" ? "admin" : "member",
      },
      { onSuccess: onClose },
    );
  return (
    <FormDialog title="New user" action="Add the user" sending={create} onSend={send} onClose={onClose}>
      <Field label="E-mail">
        {(id) => <Input id={id} name="name" type="email" required maxLength={320} autoFocus />}
      </Field>
      <Field label="Password" hint="At least 10 characters. Share it in person or over a channel you trust.">
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
    </FormDialog>
  );
}

function Remove({ user, onClose }: { user: User | null; onClose: () => void }) {
  return (
    <Removal
      row={user}
      id={(row) => row.id}
      removal={useDeleteUser()}
      title="Remove this user?"
      action="Remove the user"
      onClose={onClose}
    >
      {(row) => (
        <>
          <strong>
            <Plain text={row.name} />
          </strong>{" "}
          can no longer sign in; their keys
          {row.runs ? `, secrets and ${format.plural(row.runs, "run")}` : " and secrets"} are deleted. This cannot be
          undone.
        </>
      )}
    </Removal>
  );
}
