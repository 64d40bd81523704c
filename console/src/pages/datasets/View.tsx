// One dataset: how many rows are usable, the first of them, and every problem with its reason.
import { useState } from "react";
import { datasetName, usePreview } from "../../api/datasets";
import { isNamed, useEnvironments } from "../../api/environments";
import {
  Card,
  Empty,
  ErrorNote,
  format,
  Icon,
  Link,
  Menu,
  Note,
  Page,
  Plain,
  Select,
  Skeleton,
  Tabs,
  useGo,
  useSearch,
} from "../../ui";
import { DeleteDataset } from "./Delete";
import { newRunHref } from "./List";
import { Counts, Issues, Sample } from "./Rows";

/** Rows with a prompt or messages, of no environment's own columns. */
const PLAIN = "plain";

export function DatasetView({ path }: { path: string }) {
  const search = useSearch();
  const go = useGo();
  const chosen = search.get("environment") || undefined;
  const preview = usePreview(path, chosen === PLAIN ? "" : chosen);
  const environment = chosen ?? preview.data?.environment ?? undefined;
  const [removing, setRemoving] = useState(false);
  const data = preview.data;
  const problems = data ? data.errors + data.warnings : 0;
  const tab = search.get("tab", "rows");
  return (
    <Page
      title={<Plain text={datasetName(path)} />}
      name={datasetName(path)}
      crumbs={[{ label: "Datasets", href: "/datasets" }]}
      actions={
        <>
          <ReadAs value={environment} onChange={(name) => search.set({ environment: name || PLAIN })} />
          <Link
            href={newRunHref(path, environment === PLAIN ? undefined : environment)}
            className="button button-primary"
          >
            <Icon name="play" /> Use in a new run
          </Link>
          <Menu
            kind="quiet"
            label="More"
            items={[{ label: "Delete", icon: "trash", danger: true, onSelect: () => setRemoving(true) }]}
          />
        </>
      }
    >
      {preview.isError && <ErrorNote error={preview.error} onRetry={() => preview.refetch()} />}
      {preview.isPending && <Skeleton lines={8} />}
      {data && (
        <>
          <Card>
            <Counts preview={data} />
          </Card>
          {data.usable === 0 && data.rows > 0 && (
            <WrongColumns environment={environment === PLAIN ? undefined : environment} />
          )}
          <Tabs
            label="Parts of the dataset"
            current={tab}
            onChange={(id) => search.set({ tab: id === "rows" ? null : id })}
            tabs={[
              { id: "rows", label: "Rows" },
              { id: "problems", label: "Problems", count: problems },
            ]}
          />
          {tab === "problems" ? (
            <Card flush>
              {problems ? <Issues preview={data} /> : <Empty title="No problems in these rows" icon="check" />}
            </Card>
          ) : (
            <Card flush>
              <Sample preview={data} />
            </Card>
          )}
          {tab === "rows" && data.rows > data.sample.length && (
            <p className="muted small">
              The first {format.plural(data.sample.length, "row")} of {format.number(data.rows)}.
            </p>
          )}
        </>
      )}
      {removing && <DeleteDataset path={path} onClose={() => setRemoving(false)} onDone={() => go("/datasets")} />}
    </Page>
  );
}

/** The environment that reads the rows: it decides which of them are usable. */
function ReadAs({ value, onChange }: { value: string | undefined; onChange: (name: string) => void }) {
  const environments = useEnvironments();
  // Those that every dataset may be read as, and the one that this one was used with.
  const offered = (environments.data ?? []).filter((each) => isNamed(each) || each.id === value);
  return (
    <Select
      aria-label="Read the rows as"
      value={value === PLAIN ? "" : (value ?? "")}
      onChange={(event) => onChange(event.target.value)}
    >
      <option value="">Read as: prompt or messages</option>
      {value && value !== PLAIN && offered.length === 0 && <option value={value}>Read as: {value}</option>}
      {offered.map((each) => (
        <option key={each.id} value={each.id}>
          Read as: {isNamed(each) ? each.id : each.name}
        </option>
      ))}
    </Select>
  );
}

function WrongColumns({ environment }: { environment: string | undefined }) {
  return (
    <Note tone="warn">
      {environment
        ? "This environment cannot read any of these rows."
        : "No row has a prompt or messages column. If your environment has its own dataset_preprocess, the rows may still be right for it; run the doctor to find out."}
    </Note>
  );
}
