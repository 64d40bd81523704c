import { useMemo, useState } from "react";
import { type Dataset, datasetHref, datasetName, useDatasets, useUpload } from "../../api/datasets";
import {
  Button,
  Card,
  type Column,
  Empty,
  ErrorNote,
  Icon,
  Link,
  Menu,
  Num,
  Page,
  Plain,
  SearchBox,
  Skeleton,
  Table,
  Time,
  useGo,
  useSearch,
} from "../../ui";
import { DeleteDataset } from "./Delete";
import { Drop } from "./Drop";

export function DatasetList() {
  const datasets = useDatasets();
  const upload = useUpload();
  const search = useSearch();
  const go = useGo();
  const [removing, setRemoving] = useState<Dataset | null>(null);
  const wanted = search.get("q").toLowerCase();
  const shown = useMemo(
    () => (datasets.data ?? []).filter((each) => each.path.toLowerCase().includes(wanted)),
    [datasets.data, wanted],
  );
  const take = async (files: File[]) => {
    let last = "";
    for (const file of files) last = (await upload.mutateAsync({ file })).path;
    go(datasetHref(last));
  };
  return (
    <Page
      title="Datasets"
      actions={
        (datasets.data?.length ?? 0) > 6 && (
          <SearchBox
            label="Filter datasets"
            placeholder="Filter by name"
            defaultValue={search.get("q")}
            onChange={(event) => search.set({ q: event.target.value })}
          />
        )
      }
    >
      <Drop onFiles={(files) => take(files).catch(() => undefined)} busy={upload.isPending} error={upload.error} />
      {datasets.isError && <ErrorNote error={datasets.error} onRetry={() => datasets.refetch()} />}
      {datasets.isPending && <Skeleton lines={5} />}
      {datasets.data && (
        <Card flush>
          {shown.length ? (
            <Table
              rows={shown}
              columns={columns(go, setRemoving)}
              rowKey={(row) => row.path}
              label="Datasets"
              rowHeight={44}
              minWidth={640}
              onOpen={(row) => go(datasetHref(row.path))}
            />
          ) : (
            <Empty title={wanted ? "No dataset matches" : "No datasets yet"} icon="data" command="benchmax launch">
              Drop a file above, or launch a project from its folder: its rows are uploaded and listed here.
            </Empty>
          )}
        </Card>
      )}
      {removing && <DeleteDataset path={removing.path} onClose={() => setRemoving(null)} />}
    </Page>
  );
}

function columns(go: (href: string) => void, onRemove: (row: Dataset) => void): Column<Dataset>[] {
  return [
    {
      id: "name",
      head: "Name",
      width: "minmax(220px, 3fr)",
      sort: (row) => datasetName(row.path),
      cell: (row) => (
        <Link href={datasetHref(row.path)} className="strong">
          <Plain text={datasetName(row.path)} />
        </Link>
      ),
    },
    {
      id: "rows",
      head: "Rows",
      width: "90px",
      align: "right",
      cell: (row) => <Num value={row.rows} />,
      sort: (row) => row.rows,
    },
    {
      id: "size",
      head: "Size",
      width: "90px",
      align: "right",
      cell: (row) => <Num value={row.bytes} as="bytes" />,
      sort: (row) => row.bytes,
    },
    {
      id: "time",
      head: "Changed",
      width: "110px",
      cell: (row) => <Time at={row.updatedAt} />,
      sort: (row) => row.updatedAt,
    },
    {
      id: "act",
      head: <span className="offscreen">Actions</span>,
      width: "150px",
      align: "right",
      cell: (row) => (
        <span className="row-tight dataset-actions">
          <Button size="small" onClick={() => go(newRunHref(row.path))} icon={<Icon name="play" />}>
            New run
          </Button>
          <Menu
            size="small"
            kind="quiet"
            label={`More for ${datasetName(row.path)}`}
            items={[{ label: "Delete", icon: "trash", danger: true, onSelect: () => onRemove(row) }]}
          />
        </span>
      ),
    },
  ];
}

export function newRunHref(path: string, environment?: string): string {
  return `/experiments/new?${new URLSearchParams({ dataset: path, ...(environment ? { environment } : {}) })}`;
}
