// Who did what, newest first.
import { useMemo } from "react";
import { type AuditLine, useAudit, useUsers } from "../../api/account";
import { useMe } from "../../api/queries";
import { Button, type Column, Empty, Plain, SearchBox, Time, useSearch } from "../../ui";
import { Intro } from "./Intro";
import { Listed } from "./parts";

export default function Audit() {
  const audit = useAudit();
  const users = useUsers();
  const me = useMe();
  const search = useSearch();
  const wanted = search.get("q").toLowerCase();
  const names = useMemo(() => new Map((users.data ?? []).map((user) => [user.id, user.name])), [users.data]);
  const lines = useMemo(() => (audit.data?.pages ?? []).flatMap((page) => page.entries), [audit.data]);
  const shown = useMemo(() => lines.filter((line) => words(line, names).includes(wanted)), [lines, names, wanted]);
  return (
    <>
      <Intro
        action={
          <SearchBox
            label="Filter the audit log"
            placeholder="launch, an address, an id …"
            defaultValue={search.get("q")}
            onChange={(event) => search.set({ q: event.target.value })}
          />
        }
      >
        {me.data?.role === "admin" ? "What everyone did" : "What you did"}, with which browser, key or device, and from
        where.
      </Intro>
      <Listed
        asked={audit}
        rows={audit.data && shown}
        columns={columns(names)}
        rowKey={(line) => String(line.id)}
        label="Audit log"
        rowHeight={36}
        minWidth={900}
        empty={<Empty title={lines.length ? "No matching entries" : "No entries yet"} />}
      />
      {audit.hasNextPage && (
        <div>
          <Button busy={audit.isFetchingNextPage} onClick={() => audit.fetchNextPage()}>
            Show older entries
          </Button>
        </div>
      )}
    </>
  );
}

function words(line: AuditLine, names: Map<string, string>): string {
  const who = names.get(line.userId ?? "") ?? "";
  return `${line.action} ${line.target} ${line.actor} ${line.address} ${who} ${JSON.stringify(line.details)}`.toLowerCase();
}

function columns(names: Map<string, string>): Column<AuditLine>[] {
  return [
    { id: "time", head: "When", width: "100px", cell: (line) => <Time at={line.createdAt} /> },
    {
      id: "who",
      head: "Who",
      width: "minmax(120px, 1fr)",
      cell: (line) => <Plain text={names.get(line.userId ?? "") ?? line.userId ?? "nobody"} />,
    },
    {
      id: "by",
      head: "By",
      width: "90px",
      cell: (line) => (
        <span className="muted">
          <Plain text={line.actor.replace(/^key:.*/, "key")} />
        </span>
      ),
      title: "A browser's session, a key or a device",
    },
    {
      id: "action",
      head: "Action",
      width: "minmax(130px, 1fr)",
      cell: (line) => (
        <code className="strong">
          <Plain text={line.action} />
        </code>
      ),
    },
    {
      id: "target",
      head: "Target",
      width: "minmax(120px, 1.2fr)",
      cell: (line) => (
        <code className="soft">
          <Plain text={line.target} />
        </code>
      ),
    },
    {
      id: "address",
      head: "From",
      width: "110px",
      cell: (line) => (
        <code className="soft">
          <Plain text={line.address} />
        </code>
      ),
    },
    {
      id: "details",
      head: "Details",
      width: "minmax(120px, 1.4fr)",
      cell: (line) => <Details details={line.details} />,
    },
  ];
}

function Details({ details }: { details: Record<string, unknown> }) {
  const text = Object.entries(details)
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" · ");
  return (
    <span className="settings-detail" title={text}>
      <Plain text={text} />
    </span>
  );
}
