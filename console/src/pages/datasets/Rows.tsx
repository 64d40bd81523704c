// The first rows of a dataset, and what is wrong with any: the words are those of the SDK.
import { useMemo, useState } from "react";
import type { Preview, RowIssue } from "../../api/datasets";
import { Button, Copy, cx, Dialog, Facts, format, Num, Pill, Plain } from "../../ui";

type Row = Record<string, unknown>;

/** Every column of the rows, in the order they first appear. */
function columnsOf(rows: Row[]): string[] {
  return [...new Set(rows.flatMap((row) => Object.keys(row)))].slice(0, 40);
}

function inWords(value: unknown): string {
  return typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
}

export function Counts({ preview }: { preview: Preview }) {
  const unusable = preview.rows - preview.usable;
  return (
    <Facts
      items={[
        { name: "Rows", value: <Num value={preview.rows} /> },
        { name: "Usable", value: <span className={unusable ? "warn" : "good"}>{format.number(preview.usable)}</span> },
        { name: "Unusable", value: <span className={unusable ? "bad" : "muted"}>{format.number(unusable)}</span> },
        {
          name: "Duplicates",
          value: <Num value={preview.duplicates} />,
          hint: "Same prompt and task as an earlier row",
        },
        { name: "Warnings", value: <Num value={preview.warnings} /> },
        { name: "Size", value: <Num value={preview.bytes} as="bytes" /> },
      ]}
    />
  );
}

/** The sample as a table; a row opens whole. */
export function Sample({ preview, rows = preview.sample.length }: { preview: Preview; rows?: number }) {
  const shown = preview.sample.slice(0, rows) as Row[];
  const columns = useMemo(() => columnsOf(shown), [shown]);
  const [open, setOpen] = useState<number | null>(null);
  return (
    <>
      <section className="grid-scroll" tabIndex={0} aria-label="First rows">
        <table className="grid">
          <thead>
            <tr>
              <th className="grid-number">#</th>
              <th title="The example this row becomes: the same for rows with the same prompt and task">Example</th>
              {columns.map((column) => (
                <th key={column}>
                  <Plain text={column} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row, index) => (
              <tr key={index} className={cx(preview.ids?.[index] === null && "grid-bad")}>
                <td className="grid-number">{index + 1}</td>
                <td className="grid-id">
                  <Button
                    kind="quiet"
                    size="small"
                    aria-label={`Open row ${index + 1}: ${preview.ids?.[index]?.slice(0, 8) ?? "unusable"}`}
                    onClick={() => setOpen(index)}
                  >
                    <ExampleId id={preview.ids?.[index]} />
                  </Button>
                </td>
                {columns.map((column) => (
                  <td key={column}>
                    <span className={cx("grid-cell", typeof row[column] === "object" && "grid-json")}>
                      <Plain text={inWords(row[column]).slice(0, 600)} />
                    </span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {open !== null && (
        <RowDialog row={shown[open] ?? {}} number={open + 1} id={preview.ids?.[open]} onClose={() => setOpen(null)} />
      )}
    </>
  );
}

function ExampleId({ id }: { id: string | null | undefined }) {
  return id ? <code>{id.slice(0, 8)}</code> : <Pill tone="bad">unusable</Pill>;
}

type RowDialogProps = { row: Row; number: number; id: string | null | undefined; onClose: () => void };

function RowDialog({ row, number, id, onClose }: RowDialogProps) {
  const text = JSON.stringify(row, null, 2);
  return (
    <Dialog open onClose={onClose} title={`Row ${number}`} wide actions={<Copy text={text}>Copy as JSON</Copy>}>
      <div className="row-view">
        {id && (
          <span className="muted small">
            Example <code>{id}</code>
          </span>
        )}
        {Object.entries(row).map(([name, value]) => (
          <div key={name} className="stack-tight">
            <h3>
              <Plain text={name} />
            </h3>
            <pre>
              <Plain text={typeof value === "string" ? value : JSON.stringify(value, null, 2)} />
            </pre>
          </div>
        ))}
      </div>
    </Dialog>
  );
}

/** What is wrong, errors first. */
export function Issues({ preview }: { preview: Preview }) {
  const more = preview.errors + preview.warnings - preview.issues.length;
  return (
    <div className="issues">
      {preview.issues.map((issue, index) => (
        <Issue key={index} issue={issue} />
      ))}
      {more > 0 && <p className="issue muted">… and {format.plural(more, "more problem")}.</p>}
    </div>
  );
}

function Issue({ issue }: { issue: RowIssue }) {
  const [why = "", fix = ""] = issue.message.split(" → ");
  return (
    <div className="issue">
      <span className="num">row {issue.row}</span>
      <span>
        <Pill tone={issue.severity === "error" ? "bad" : "warn"}>{issue.severity}</Pill>
      </span>
      <code className="clip">{issue.field && <Plain text={issue.field} />}</code>
      <span className="issue-why">
        <Plain text={why} />
        {fix && (
          <span className="issue-fix">
            {" → "}
            <Plain text={fix} />
          </span>
        )}
      </span>
    </div>
  );
}
