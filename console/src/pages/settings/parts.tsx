// What every part of the settings is made of: a table of things, a form that makes one, a question before one goes.
import type { UseMutationResult, UseQueryResult } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useId } from "react";
import { Button, Card, Check, type Column, Confirm, Dialog, ErrorNote, Skeleton, Table } from "../../ui";

type Asked = Pick<UseQueryResult, "isError" | "isPending" | "error" | "refetch">;

/** Rows in a table, and what stands there while they come, when they do not, and when there are none. */
export function Listed<Row>({
  asked,
  rows,
  empty,
  ...table
}: {
  asked: Asked;
  rows: readonly Row[] | undefined;
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  label: string;
  minWidth: number;
  rowHeight?: number;
  rowClass?: (row: Row) => string | undefined;
  empty?: ReactNode;
}) {
  if (asked.isError) return <ErrorNote error={asked.error} onRetry={() => asked.refetch()} />;
  if (!rows) return <Skeleton lines={4} />;
  return <Card flush>{rows.length || !empty ? <Table rows={rows} rowHeight={46} {...table} /> : empty}</Card>;
}

/** Some of a few things, each with a word on what it means. */
export function Choices<Id extends string>({
  legend,
  all,
  chosen,
  onChange,
}: {
  legend: string;
  all: readonly { id: Id; label: string; text: string }[];
  chosen: Id[];
  onChange: (chosen: Id[]) => void;
}) {
  return (
    <fieldset className="settings-choices">
      <legend>{legend}</legend>
      {all.map(({ id, label, text }) => (
        <Check
          key={id}
          checked={chosen.includes(id)}
          onChange={(event) => onChange(event.target.checked ? [...chosen, id] : chosen.filter((each) => each !== id))}
          label={
            <>
              <strong>{label}</strong> <span className="muted">{text}</span>
            </>
          }
        />
      ))}
    </fieldset>
  );
}

/** The last column: the one thing that can be done to a row. */
export function act<Row>(
  word: string,
  label: (row: Row) => string,
  onAct: (row: Row) => void,
  may: (row: Row) => boolean = () => true,
): Column<Row> {
  return {
    id: "act",
    head: <span className="offscreen">Actions</span>,
    width: "90px",
    align: "right",
    cell: (row) =>
      may(row) && (
        <Button size="small" kind="quiet" aria-label={label(row)} onClick={() => onAct(row)}>
          {word}
        </Button>
      ),
  };
}

type Sending = Pick<UseMutationResult, "isPending" | "isError" | "error">;

/** Fields in a dialog and a button that sends them: `onSend` gets the text of a field by its name. */
export function FormDialog({
  title,
  action,
  sending,
  disabled,
  onSend,
  onClose,
  children,
}: {
  title: string;
  action: string;
  sending: Sending;
  disabled?: boolean;
  onSend: (text: (name: string) => string) => void;
  onClose: () => void;
  children: ReactNode;
}) {
  const id = useId();
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    onSend((name) => String(form.get(name) ?? ""));
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title={title}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form={id} busy={sending.isPending} disabled={disabled}>
            {action}
          </Button>
        </>
      }
    >
      <form id={id} className="settings-form" onSubmit={submit}>
        {children}
        {sending.isError && <ErrorNote error={sending.error} />}
      </form>
    </Dialog>
  );
}

/** The question before a thing goes; `children` says what that means. */
export function Removal<Row, Id, Answer>({
  row,
  id,
  removal,
  title,
  action,
  onClose,
  children,
}: {
  row: Row | null;
  id: (row: Row) => Id;
  removal: UseMutationResult<Answer, Error, Id>;
  title: string;
  action: string;
  onClose: () => void;
  children: (row: Row) => ReactNode;
}) {
  return (
    <Confirm
      open={row !== null}
      onClose={onClose}
      title={title}
      action={action}
      busy={removal.isPending}
      onConfirm={() => row !== null && removal.mutate(id(row), { onSuccess: onClose })}
    >
      <div className="stack">
        <p>{row !== null && children(row)}</p>
        {removal.isError && <ErrorNote error={removal.error} />}
      </div>
    </Confirm>
  );
}
