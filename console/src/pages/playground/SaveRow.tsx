// A turn becomes a row of a dataset: its columns are guessed from the rows that are there, and can be changed first.
import { useState } from "react";
import { datasetHref, datasetName, useAddRow, useDatasets, usePreview } from "../../api/datasets";
import { MIN_ROWS } from "../../api/launch";
import type { Turn } from "../../api/playground";
import {
  Button,
  Dialog,
  ErrorNote,
  Field,
  format,
  HIDDEN,
  Input,
  Link,
  Note,
  Plain,
  Select,
  TextArea,
  useStored,
} from "../../ui";
import { inWords } from "./Messages";

type Message = { role: string; content?: unknown };
type SaveRowProps = { turn: Turn; context: Message[]; runId: string; onClose: () => void };

const ASKED = ["prompt", "question", "instruction", "input", "query"];
const ANSWERED = ["ground_truth", "answer", "gold", "target", "output", "completion", "response", "solution"];

/** The choice that makes a dataset. */
const NEW = "";

export function SaveRow({ turn, context, runId, onClose }: SaveRowProps) {
  const datasets = useDatasets();
  const add = useAddRow();
  const [path, setPath] = useStored("row-goes-to", NEW);
  const [name, setName] = useState("saved-turns.jsonl");
  const chosen = datasets.data?.some((each) => each.path === path) ? path : NEW;
  const preview = usePreview(chosen || null, undefined, 1);
  const [edited, setEdited] = useState<string | null>(null);
  const text = edited ?? written(rowOf(turn, context, preview.data?.sample[0]));
  const choose = (other: string) => {
    setPath(other);
    setEdited(null); // another dataset has other columns
  };
  const row = parsed(text);
  const save = () =>
    row &&
    add.mutate(chosen === NEW ? { path: fileName(name), row, create: true } : { path: chosen, row, create: false }, {
      onSuccess: (made) => setPath(made.path),
    });
  if (add.data) return <Saved path={add.data.path} rows={add.data.rows} onClose={onClose} />;
  return (
    <Dialog
      open
      onClose={onClose}
      title="Save as a dataset row"
      wide
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind="primary"
            busy={add.isPending}
            disabled={!row || !datasets.data || (chosen === NEW && !name.trim())}
            onClick={save}
          >
            Add the row
          </Button>
        </>
      }
    >
      <div className="stack">
        <Field label="Dataset" hint="The row is added at the end. Runs already launched keep the rows they had.">
          {(id) => (
            <Select id={id} value={chosen} onChange={(event) => choose(event.target.value)}>
              <option value={NEW}>A new dataset</option>
              {datasets.data?.map((each) => (
                <option key={each.path} value={each.path}>
                  {datasetName(each.path)}
                  {each.rows === null ? "" : ` · ${format.plural(each.rows, "row")}`}
                </option>
              ))}
            </Select>
          )}
        </Field>
        {chosen === NEW && (
          <Field label="Name" hint={`You can launch a run with it once it has ${MIN_ROWS} rows.`}>
            {(id) => <Input id={id} value={name} maxLength={150} onChange={(event) => setName(event.target.value)} />}
          </Field>
        )}
        <Field
          label="Row"
          error={row ? undefined : "This is not a JSON object."}
          hint="Check the answer before you save it: a model trained on it takes it as correct."
        >
          {(id) => (
            <TextArea
              id={id}
              className="mono"
              rows={10}
              value={text}
              onChange={(event) => setEdited(event.target.value)}
            />
          )}
        </Field>
        <span className="muted small">
          From run <code>{runId.slice(0, 12)}</code>
        </span>
        {add.isError && <ErrorNote error={add.error} />}
      </div>
    </Dialog>
  );
}

function fileName(name: string): string {
  return /\.jsonl$/i.test(name.trim()) ? name.trim() : `${name.trim()}.jsonl`;
}

/** As JSON in which nothing is invisible or turns the text around: such characters are escaped, and read back as such. */
function written(row: Record<string, unknown>): string {
  return JSON.stringify(row, null, 2).replace(new RegExp(HIDDEN.source, "gu"), (found) =>
    [...Array(found.length).keys()].map((at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""),
  );
}

function Saved({ path, rows, onClose }: { path: string; rows: number; onClose: () => void }) {
  return (
    <Dialog open onClose={onClose} title="Saved" actions={<Button onClick={onClose}>Close</Button>}>
      <Note tone="good">
        <Plain text={datasetName(path)} /> now has {format.plural(rows, "row")}.{" "}
        <Link href={datasetHref(path)}>Open it</Link>
      </Note>
    </Dialog>
  );
}

/** The turn in the columns the dataset has; `prompt` and `ground_truth` when it has none we know. */
function rowOf(turn: Turn, context: Message[], like: Record<string, unknown> | undefined): Record<string, unknown> {
  const asked = turn.said || inWords(context.filter((each) => each.role === "user").at(-1)?.content);
  const last = turn.messages.filter((each) => each.role === "assistant").at(-1);
  const answer = inWords(last?.content);
  const names = Object.keys(like ?? {});
  const ask = ASKED.find((name) => names.includes(name)) ?? "prompt";
  const gold = ANSWERED.find((name) => names.includes(name)) ?? "ground_truth";
  return { [ask]: asked, [gold]: answer };
}

function parsed(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
