// What is talked to, in which environment, and how freely it speaks.
import { type SessionInfo, useExamples } from "../../api/playground";
import { Button, Check, Field, Fold, Input, Plain, Select, useSearch } from "../../ui";

type OptionsProps = {
  runId: string;
  live: boolean;
  names: string[];
  first: string;
  example: string | null;
  about: SessionInfo | undefined;
};

export function Options({ runId, live, names, first, example, about }: OptionsProps) {
  const search = useSearch();
  const second = search.get("with");
  const plain = search.get("plain") === "1";
  return (
    <aside className="room-options" aria-label="Options">
      <Field
        label="Checkpoint"
        hint={live ? "The run is still training; answers come from the weights saved last." : undefined}
      >
        {(id) => <Choice id={id} names={names} value={first} onChange={(value) => search.set({ checkpoint: value })} />}
      </Field>
      {second ? (
        <div className="room-second">
          <Field label="Compared with">
            {(id) => <Choice id={id} names={names} value={second} onChange={(value) => search.set({ with: value })} />}
          </Field>
          <Button kind="quiet" size="small" aria-label="Stop comparing" onClick={() => search.set({ with: null })}>
            Remove
          </Button>
        </div>
      ) : (
        <Button
          size="small"
          onClick={() => search.set({ with: first === "base" ? "best" : "base" })}
          disabled={!names.length}
        >
          Compare with another
        </Button>
      )}
      <Check
        label="In its environment, with its tools"
        checked={!plain}
        onChange={(event) => search.set({ plain: event.target.checked ? null : 1, example: null })}
      />
      {!plain && <ExampleChoice runId={runId} chosen={example ?? ""} shown={hasShown(about)} />}
      <div className="room-numbers">
        <Amount label="Temperature" name="temperature" placeholder="0.7" step="0.1" max={10} />
        <Amount label="Max tokens" name="tokens" placeholder="512" step="1" max={131_072} />
        <Amount label="Seed" name="seed" placeholder="any" step="1" />
      </div>
      {about && <About info={about} />}
    </aside>
  );
}

type ChoiceProps = { id: string; names: string[]; value: string; onChange: (value: string) => void };

function Choice({ id, names, value, onChange }: ChoiceProps) {
  const known = [...(names.length ? ["best", "latest", ...names] : []), "base"];
  return (
    <Select id={id} value={value} onChange={(event) => onChange(event.target.value)}>
      {(known.includes(value) ? known : [value, ...known]).map((name) => (
        <option key={name} value={name}>
          {checkpointWords(name)}
        </option>
      ))}
    </Select>
  );
}

const WORDS: Record<string, string> = {
  latest: "latest",
  best: "best in evaluation",
  base: "base: before training",
};

/** The checkpoint's name as people say it. */
export function checkpointWords(name: string): string {
  return WORDS[name] ?? name.replace("-", " ");
}

/** No row: in the address, since one is chosen by default. */
const NONE = "none";

/** The row to play: the one in the address, else the first that was held out. Undefined until the rows are known. */
export function useExampleId(runId: string, rows: boolean): string | null | undefined {
  const search = useSearch();
  const held = useExamples(runId, "eval");
  const given = search.get("example");
  if (search.get("plain") === "1" || given === NONE) return null;
  if (given || !rows) return given || null;
  return held.isPending ? undefined : (held.data?.[0]?.promptMessageId ?? null);
}

/** Whether prompts begin with worked examples: questions with an answer. */
function hasShown(about: SessionInfo | undefined): boolean {
  return about?.promptMessages.some((message) => message.role === "assistant") ?? false;
}

function ExampleChoice({ runId, chosen, shown }: { runId: string; chosen: string; shown: boolean }) {
  const search = useSearch();
  const held = useExamples(runId, "eval");
  const trained = useExamples(runId, "train");
  const all = [...(held.data ?? []), ...(trained.data ?? [])];
  const known = all.some((each) => each.promptMessageId === chosen);
  return (
    <Field
      label="Task"
      hint={
        chosen
          ? `Play it to have the answer scored.${shown ? " What you ask instead comes after the same worked examples." : ""}`
          : "Choose a row to have the answer scored."
      }
    >
      {(id) => (
        <Select id={id} value={chosen} onChange={(event) => search.set({ example: event.target.value || NONE })}>
          <option value="">none: just chat</option>
          {chosen && !known && <option value={chosen}>{chosen.slice(0, 12)}</option>}
          <Examples label="Held out" examples={held.data} />
          <Examples label="Trained on" examples={trained.data} />
        </Select>
      )}
    </Field>
  );
}

function Examples({
  label,
  examples,
}: {
  label: string;
  examples: { promptMessageId: string; promptText: string }[] | undefined;
}) {
  if (!examples?.length) return null;
  return (
    <optgroup label={label}>
      {examples.map((each) => (
        <option key={each.promptMessageId} value={each.promptMessageId}>
          {each.promptText.replace(/\s+/g, " ").slice(0, 60)}
        </option>
      ))}
    </optgroup>
  );
}

type AmountProps = { label: string; name: string; placeholder: string; step: string; max?: number };

function Amount({ label, name, placeholder, step, max }: AmountProps) {
  const search = useSearch();
  return (
    <Field label={label}>
      {(id) => (
        <Input
          id={id}
          type="number"
          min={0}
          max={max}
          step={step}
          value={search.get(name)}
          placeholder={placeholder}
          onChange={(event) => search.set({ [name]: event.target.value })}
        />
      )}
    </Field>
  );
}

/** The system prompt and the tools, as the model gets them. */
function About({ info }: { info: SessionInfo }) {
  return (
    <>
      <Fold
        title="System prompt"
        aside={info.systemPrompt ? undefined : "none"}
        open={info.systemPrompt.length > 0 && info.systemPrompt.length < 240}
      >
        <pre className="room-system">
          {info.systemPrompt ? <Plain text={info.systemPrompt} /> : "The environment has no system prompt."}
        </pre>
      </Fold>
      <Fold title="Tools" aside={info.tools.length || "none"} open={info.tools.length > 0 && info.tools.length < 4}>
        {info.tools.length ? (
          <ul className="room-tools">
            {info.tools.map((tool, index) => (
              <li key={index}>
                <code>
                  <Plain text={String(tool.name ?? "")} />
                </code>
                <span className="muted small">
                  <Plain text={String(tool.description ?? "")} />
                </span>
              </li>
            ))}
          </ul>
        ) : (
          <span className="muted small">The environment has no tools.</span>
        )}
      </Fold>
    </>
  );
}
