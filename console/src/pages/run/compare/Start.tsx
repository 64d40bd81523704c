// Choose another model and play it on the run's held-out rows.
import { useState } from "react";
import { useEndpoints } from "../../../api/account";
import { useStartEval } from "../../../api/evals";
import { useCheckpoints } from "../../../api/queries";
import { Button, Card, ErrorNote, Field, Input, Link, Select } from "../../../ui";
import { modelName } from "./words";

export function Start({ run, onStarted, first }: { run: string; onStarted: (id: string) => void; first: boolean }) {
  const checkpoints = useCheckpoints(run).data?.checkpoints ?? [];
  const endpoints = useEndpoints().data ?? [];
  const start = useStartEval(run);
  const [model, setModel] = useState("base");
  const [rows, setRows] = useState("");
  const [samples, setSamples] = useState("1");
  const begin = async () => {
    const wanted = {
      model,
      name: modelName(model, endpoints),
      rows: rows ? Number(rows) : null,
      samples: Number(samples) || 1,
    };
    const made = await start.mutateAsync(wanted).catch(() => null);
    if (made) onStarted(made.id);
  };
  return (
    <Card title={first ? "Compare with another model" : "New comparison"}>
      <form
        className="cm-start"
        onSubmit={(event) => {
          event.preventDefault();
          begin();
        }}
      >
        <Field label="Model" hint="It plays the same held-out rows as this run.">
          {(id) => (
            <Select id={id} value={model} onChange={(event) => setModel(event.target.value)}>
              <option value="base">Base model, before training</option>
              {checkpoints.length > 0 && (
                <optgroup label="Checkpoints of this run">
                  {[...checkpoints].reverse().map((each) => (
                    <option key={each.name} value={`checkpoint:${each.name}`}>
                      {each.name}
                      {each.best ? " (best)" : ""}
                      {each.latest ? " (latest)" : ""}
                    </option>
                  ))}
                </optgroup>
              )}
              {endpoints.length > 0 && (
                <optgroup label="Your endpoints">
                  {endpoints.map((each) => (
                    <option key={each.id} value={`endpoint:${each.id}`}>
                      {each.name} ({each.model})
                    </option>
                  ))}
                </optgroup>
              )}
            </Select>
          )}
        </Field>
        <Field label="Rows" hint="Leave empty for all.">
          {(id) => (
            <Input
              id={id}
              type="number"
              min={1}
              max={10000}
              value={rows}
              placeholder="all"
              onChange={(event) => setRows(event.target.value)}
            />
          )}
        </Field>
        <Field label="Samples per row" hint="More samples narrow the interval.">
          {(id) => (
            <Input
              id={id}
              type="number"
              min={1}
              max={64}
              value={samples}
              onChange={(event) => setSamples(event.target.value)}
            />
          )}
        </Field>
        <Button kind="primary" type="submit" busy={start.isPending}>
          Start
        </Button>
      </form>
      <p className="muted small cm-hint">
        Any model behind an OpenAI-compatible API can be compared too:{" "}
        <Link href="/settings/endpoints">add an endpoint in Settings</Link>.
      </p>
      {start.error && <ErrorNote error={start.error} />}
    </Card>
  );
}
