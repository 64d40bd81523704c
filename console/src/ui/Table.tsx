// A table that holds a hundred thousand rows: only those in view are in the page. Columns sort when they say how.
import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { cx } from "./format";

export type Column<Row> = {
  id: string;
  head: ReactNode;
  cell: (row: Row, index: number) => ReactNode;
  /** A CSS grid track: "minmax(160px, 2fr)", "90px". */
  width?: string;
  align?: "left" | "right";
  /** What it sorts by; null goes last either way. */
  sort?: (row: Row) => number | string | null | undefined;
  title?: string;
};

export type TableProps<Row> = {
  rows: readonly Row[];
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  label: string;
  onOpen?: (row: Row) => void;
  rowClass?: (row: Row) => string | undefined;
  /** The row that j, k and the arrows moved to, by key. */
  current?: string | null;
  onCurrent?: (key: string) => void;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
  rowHeight?: number;
  /** Rows beyond this scroll inside the table; default: as high as the window allows. */
  maxHeight?: string;
  minWidth?: number;
};

export function Table<Row>(props: TableProps<Row>) {
  const {
    rows,
    columns,
    rowKey,
    label,
    onOpen,
    rowClass,
    current,
    onCurrent,
    rowHeight = 40,
    maxHeight = "70vh",
    minWidth,
  } = props;
  const [ownSort, setOwnSort] = useState<Sort>(null);
  const sort = props.sort !== undefined ? props.sort : ownSort;
  const setSort = props.onSort ?? setOwnSort;
  const shown = useMemo(() => sorted(rows, columns, sort), [rows, columns, sort]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  const grid: CSSProperties = {
    gridTemplateColumns: columns.map((column) => column.width ?? "minmax(80px, 1fr)").join(" "),
  };
  const at = current ? shown.findIndex((row) => rowKey(row) === current) : -1;
  useEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at);
  }, [at, virtual]);
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    const row = shown[step ? Math.min(shown.length - 1, Math.max(0, at + step)) : at];
    if (!row || event.target !== event.currentTarget) return;
    if (step && onCurrent) onCurrent(rowKey(row));
    else if (event.key === "Enter" && onOpen) onOpen(row);
    else return;
    event.preventDefault();
  };
  return (
    <div
      className="table"
      ref={scroller}
      style={{ maxHeight }}
      role="table"
      aria-label={label}
      aria-rowcount={shown.length + 1}
      tabIndex={0}
      onKeyDown={keys}
    >
      <div className="table-head" role="rowgroup" style={{ minWidth }}>
        <div role="row" className="table-row" style={grid}>
          {columns.map((column) => (
            <Head key={column.id} column={column} sort={sort} setSort={setSort} />
          ))}
        </div>
      </div>
      <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize(), minWidth }}>
        {virtual.getVirtualItems().map((item) => {
          const row = shown[item.index] as Row;
          const key = rowKey(row);
          return (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the table itself takes Enter, and a cell holds a link
            <div
              key={key}
              role="row"
              tabIndex={-1}
              aria-rowindex={item.index + 2}
              className={cx(
                "table-row",
                onOpen && "table-row-open",
                key === current && "table-row-current",
                rowClass?.(row),
              )}
              style={{ ...grid, height: rowHeight, transform: `translateY(${item.start}px)` }}
              onClick={onOpen ? (event) => !isControl(event.target) && onOpen(row) : undefined}
            >
              {columns.map((column) => (
                <div role="cell" key={column.id} className={cx("cell", column.align === "right" && "cell-right")}>
                  {column.cell(row, item.index)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

export type Sort = { id: string; down: boolean } | null;

function Head<Row>({ column, sort, setSort }: { column: Column<Row>; sort: Sort; setSort: (sort: Sort) => void }) {
  const on = sort?.id === column.id;
  const state = on ? (sort.down ? "descending" : "ascending") : undefined;
  return (
    <div
      role="columnheader"
      className={cx("cell", column.align === "right" && "cell-right")}
      aria-sort={state}
      title={column.title}
    >
      {column.sort ? (
        <button type="button" onClick={() => setSort(on && !sort.down ? null : { id: column.id, down: !on })}>
          {column.head}
          <span aria-hidden="true" className="sort-mark">
            {on ? (sort.down ? "↓" : "↑") : ""}
          </span>
        </button>
      ) : (
        column.head
      )}
    </div>
  );
}

/** The rows in the order of a column. */
export function sorted<Row>(rows: readonly Row[], columns: Column<Row>[], sort: Sort): readonly Row[] {
  const by = sort && columns.find((column) => column.id === sort.id)?.sort;
  if (!by) return rows;
  const sign = sort.down ? -1 : 1;
  return [...rows].sort((left, right) => {
    const a = by(left);
    const b = by(right);
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return (a < b ? -1 : 1) * sign;
  });
}

function isControl(target: EventTarget): boolean {
  return target instanceof Element && target.closest("a, button, input, select, label") !== null;
}
