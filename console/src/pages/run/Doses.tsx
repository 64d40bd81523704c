import type { Signal, Training } from "../../api/training";
import { format, Plain } from "../../ui";

const COLUMNS: { name: string; value: (signal: Signal) => string | null }[] = [
  { name: "Reward", value: (signal) => format.reward(signal.reward) },
  { name: "Best of each group", value: (signal) => format.reward(signal.best) },
  { name: "Groups with a difference", value: (signal) => format.percent(signal.spread, 0) },
  { name: "Groups with a solution", value: (signal) => format.percent(signal.passAtK, 0) },
  { name: "Cut off", value: (signal) => format.percent(signal.cutOff, 0) },
  { name: "In form", value: (signal) => share(signal.inForm) },
  { name: "First call works", value: (signal) => share(signal.firstCalls) },
];

/** The samples of the model as it came and after each dose of the warm start, below each other. */
export function Doses({ training: { signal, doses } }: { training: Training }) {
  if (doses.length === 0) return null;
  const rows = [
    ...(signal ? [{ name: "Original model", signal }] : []),
    ...doses.map((dose) => ({ name: `After dose ${dose.number}`, signal: dose.signal })),
  ];
  const columns = COLUMNS.filter((column) => rows.some((row) => column.value(row.signal) !== null));
  return (
    <section className="doses" tabIndex={0} aria-label="What the model's samples earn after each dose">
      <table>
        <thead>
          <tr>
            <th scope="col">Its samples</th>
            {columns.map((column) => (
              <th key={column.name} scope="col">
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <th scope="row">
                <Plain text={row.name} />
              </th>
              {columns.map((column) => (
                <td key={column.name}>{column.value(row.signal) ?? "–"}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function share(value: number | null): string | null {
  return value === null ? null : format.percent(value, 0);
}
