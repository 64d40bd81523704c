// What stands beside a conversation: reward, task, the facts of the rollout, its siblings and its past.
import type { Details, Scope } from "../../api/rollouts";
import { useExample } from "../../api/rollouts";
import { shownStep, stepName } from "../../api/steps";
import { cx, format, marked, Plain, Tip } from "../../ui";
import { textOf } from "./blocks";
import { type Range, rewardColour } from "./colour";
import { Rewards } from "./Rewards";
import { short } from "./Transcript";

const GOLD = ["ground_truth", "answer", "expected", "target", "reference", "gold", "solution"];

type Shown = { run: string; details: Details; scope: Scope; range: Range; onOpen: (id: string) => void };

export function Aside({ run, details, scope, range, onOpen }: Shown) {
  return (
    <aside className="ro-aside" aria-label="About this rollout">
      <section>
        <h3>Reward</h3>
        <Rewards details={details} />
      </section>
      <Task task={details.task} />
      <Facts details={details} />
      <Across run={run} details={details} scope={scope} range={range} onOpen={onOpen} />
    </aside>
  );
}

/** What is known of a task. `only` the gold answer, where there is one: beside two transcripts there is no room. */
export function Task({ task, only }: { task: Details["task"]; only?: boolean }) {
  const entries = Object.entries(task ?? {});
  const gold = entries.filter(([name]) => GOLD.includes(name));
  const rest = only ? [] : entries.filter(([name]) => !GOLD.includes(name));
  if (!gold.length && !rest.length) return null;
  return (
    <section>
      <h3>{gold.length ? "Gold answer" : "Task"}</h3>
      {[...gold, ...rest].map(([name, value]) => (
        <div key={name} className={cx("ro-task", GOLD.includes(name) && "ro-gold")}>
          {!(GOLD.includes(name) && gold.length === 1) && (
            <div className="muted small">
              <Plain text={name.slice(0, 200)} />
            </div>
          )}
          <pre>{marked(limited(value))}</pre>
        </div>
      ))}
    </section>
  );
}

function limited(value: unknown): string {
  const text =
    typeof value === "string"
      ? value
      : typeof value === "number" || typeof value === "boolean"
        ? String(value)
        : textOf(value);
  return text.length > 4000 ? `${text.slice(0, 4000)}… (${format.bytes(text.length)}; all of it is under Raw)` : text;
}

function Facts({ details }: { details: Details }) {
  const facts: [string, string][] = [
    ["Step", shownStep(details.mode, details.step).toLocaleString("en-US")],
    ["Sample", `#${details.sample}`],
    ["Turns", String(details.turns)],
    ["Tokens written", details.tokens.toLocaleString("en-US")],
  ];
  if (details.advantage !== null) facts.push(["Advantage", format.gain(details.advantage)]);
  if (details.toolEvents.length) facts.push(["Tool calls", String(details.toolEvents.length)]);
  const phases = Object.entries(details.seconds).filter(([name]) => name !== "total");
  const total = details.seconds.total;
  return (
    <section>
      <h3>Facts</h3>
      <dl className="ro-facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="num">{value}</dd>
          </div>
        ))}
        {total !== undefined && (
          <div>
            <dt>Time</dt>
            <dd className="num">{short(total)}</dd>
          </div>
        )}
        {phases.map(([name, value]) => (
          <div key={name} className="ro-phase">
            <dt>
              <Plain text={name} />
            </dt>
            <dd className="num">{short(value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

const MOST_CELLS = 400;

/** The same example at every step: each sample a square. */
function Across({ run, details, scope, range, onOpen }: Shown) {
  const cells = useExample(run, scope, details.promptMessageId).data ?? [];
  if (cells.length < 2) return null;
  const steps = new Map<number, typeof cells>();
  for (const cell of cells.slice(-MOST_CELLS)) steps.set(cell.step, [...(steps.get(cell.step) ?? []), cell]);
  return (
    <section>
      <h3>This example across steps</h3>
      <div className="ro-across">
        {[...steps].map(([step, found]) => (
          <div key={step} className="ro-across-step">
            {found.map((cell) => (
              <Tip
                key={cell.id}
                text={`${stepName(scope.mode, step)}, sample #${cell.sample}: ${format.reward(cell.totalReward)}`}
              >
                <button
                  type="button"
                  className={cx("ro-square", cell.id === details.id && "ro-square-on")}
                  style={{ background: rewardColour(cell.totalReward, range) }}
                  aria-label={`Open step ${shownStep(scope.mode, step)}, sample ${cell.sample}`}
                  aria-current={cell.id === details.id}
                  onClick={() => onOpen(cell.id)}
                />
              </Tip>
            ))}
          </div>
        ))}
      </div>
      <div className="spread muted small num">
        <span>step {shownStep(scope.mode, Math.min(...steps.keys()))}</span>
        <span>{shownStep(scope.mode, Math.max(...steps.keys()))}</span>
      </div>
    </section>
  );
}
