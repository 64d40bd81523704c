// What the run uses of the machine, and how fast it works.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api, type Schemas, unwrap } from "../../api/client";
import { useScalars } from "../../api/scalars";
import { Chart, type Line, type View } from "../../chart/Chart";
import { metric } from "../../chart/metrics";
import { Card, ErrorNote, Facts, format, Plain, Skeleton } from "../../ui";
import { useRun } from "./context";

type Point = Schemas["SystemPoint"];

export default function System() {
  const { id, live } = useRun();
  const system = useQuery({
    queryKey: ["run", id, "system"],
    queryFn: () => unwrap(api.GET("/v1/train/runs/{run_id}/system", { params: { path: { run_id: id } } })),
    refetchInterval: live ? 5_000 : false,
  });
  if (system.isError) return <ErrorNote error={system.error} onRetry={() => system.refetch()} />;
  if (system.isPending) return <Skeleton lines={6} />;
  const { points, now } = system.data;
  return (
    <div className="stack">
      {now ? (
        <Now now={now} />
      ) : (
        <p className="muted">
          There are no samples of the machine; the runner takes one every few seconds while a run trains.
        </p>
      )}
      {points.length > 1 && <Machine points={points} />}
      <Speed />
    </div>
  );
}

function Now({ now }: { now: Schemas["SystemNow"] }) {
  const gpus = now.gpu ?? [];
  return (
    <Card>
      <Facts
        items={[
          { name: "Processor", value: `${format.number(now.cpuPercent / 100, 2)} of ${now.cores} cores` },
          { name: "Memory", value: `${format.bytes(now.memoryBytes)} of ${format.bytes(now.memoryTotal)}` },
          { name: "Processes", value: String(now.processes) },
          { name: "Machine load", value: format.number(now.load, 2) },
          ...gpus.map((gpu, i) => ({
            name: gpus.length > 1 ? `GPU ${i}` : "GPU",
            value: (
              <>
                {Math.round(gpu.percent)}% · {format.bytes(gpu.memoryBytes)} of {format.bytes(gpu.memoryTotal)}{" "}
                <span className="muted small">
                  <Plain text={gpu.name} />
                </span>
              </>
            ),
          })),
        ]}
      />
    </Card>
  );
}

function useOwnView(time: boolean): View {
  const [range, onRange] = useState<[number, number] | null>(null);
  return useMemo(() => ({ smoothing: 0, log: false, outliers: true, time, range, onRange }), [time, range]);
}

function Machine({ points }: { points: Point[] }) {
  const view = useOwnView(true);
  const began = new Date(points[0]!.time).getTime();
  const charts = useMemo(() => {
    const x = Float64Array.from(points, (point) => (new Date(point.time).getTime() - began) / 1000);
    const line = (id: string, label: string, color: string, of: (point: Point) => number): Line => ({
      id,
      label,
      color,
      series: { x, y: Float64Array.from(points, of) },
    });
    const gpus = points[0]!.gpu?.length ?? 0;
    const each = (of: (gpu: NonNullable<Point["gpu"]>[number]) => number) =>
      Array.from({ length: gpus }, (_, i) =>
        line(`gpu${i}`, gpus > 1 ? `GPU ${i}` : "GPU", `--series-${(i % 8) + 1}`, (point) =>
          point.gpu?.[i] ? of(point.gpu[i]!) : Number.NaN,
        ),
      );
    return [
      {
        title: "Processor",
        lines: [line("cpu", "cores", "--series-4", (point) => point.cpuPercent / 100)],
        unit: format.number,
      },
      {
        title: "Memory",
        lines: [line("memory", "resident", "--series-3", (point) => point.memoryBytes / 1e9)],
        unit: (value: number) => `${format.number(value)} GB`,
      },
      ...(gpus
        ? [
            { title: "GPU busy", lines: each((gpu) => gpu.percent), unit: (value: number) => `${Math.round(value)}%` },
            {
              title: "GPU memory",
              lines: each((gpu) => gpu.memoryBytes / 1e9),
              unit: (value: number) => `${format.number(value)} GB`,
            },
          ]
        : []),
    ];
  }, [points, began]);
  return (
    <div className="chart-grid">
      {charts.map((chart) => (
        <Chart
          key={chart.title}
          title={chart.title}
          lines={chart.lines}
          view={view}
          group="system"
          grounded
          min={0}
          unit={chart.unit}
          height={170}
        />
      ))}
    </div>
  );
}

const SPEED = ["tokens_per_second", "seconds/sample", "seconds/update", "rollouts"];

function Speed() {
  const { id } = useRun();
  const scalars = useScalars(id, "train");
  const view = useOwnView(false);
  const charts = useMemo(
    () =>
      SPEED.flatMap((key) =>
        scalars.data?.get(key)
          ? [
              {
                key,
                lines: [
                  { id: key, label: "train", color: "--series-1", series: scalars.data.get(key)! },
                ] satisfies Line[],
              },
            ]
          : [],
      ),
    [scalars.data],
  );
  if (charts.length === 0) return null;
  return (
    <div className="chart-grid">
      {charts.map(({ key, lines }) => (
        <Chart
          key={key}
          title={metric(key).name}
          info={metric(key).about}
          lines={lines}
          view={view}
          group="speed"
          grounded
          min={0}
          height={150}
        />
      ))}
    </div>
  );
}
