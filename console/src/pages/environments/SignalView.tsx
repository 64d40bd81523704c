// Can this model learn from this environment? What its first samples show, in bars and in words.
import type { Signal } from "../../api/training";
import { cx, format, Info, Pill, Plain, Ticked } from "../../ui";
import "./signal.css";

export function SignalView({ signal }: { signal: Signal }) {
  const lazy = Object.entries(signal.lazy).sort((a, b) => b[1] - a[1]);
  const rewards = [signal.reward, signal.best, signal.gold, signal.floor, 0, ...lazy.map(([, value]) => value)];
  const known = rewards.filter((value) => value !== null);
  const scale = { low: Math.min(...known), high: Math.max(...known) };
  return (
    <div className="signal">
      <div className="signal-said">
        <Pill tone={signal.learns ? "good" : "warn"} dot>
          {signal.learns ? "can learn" : "needs help"}
        </Pill>
        <p>
          <Ticked text={signal.forecast} />{" "}
          {signal.advice && (
            <span className="muted">
              <Ticked text={signal.advice} />
            </span>
          )}
        </p>
      </div>
      <div className="signal-parts">
        <Part title={`In ${signal.groups} × ${signal.samples} samples`}>
          <Share name="Groups with a difference" value={signal.spread}>
            Prompts whose answers earn different rewards. Only these teach something.
          </Share>
          <Share name="Groups with a solution" value={signal.passAtK}>
            Prompts for which at least one answer earned the full reward.
          </Share>
          <Chance value={signal.chance ?? null} />
          <Share name="Cut off by length" value={signal.cutOff} poor={signal.cutOff > 0.5}>
            Answers that reached the token limit before they ended.
          </Share>
          <Share name="In the form that is paid" value={signal.inForm}>
            Answers in the form the reward looks for, right or wrong.
          </Share>
          <Share name="First tool call works" value={signal.firstCalls}>
            Rollouts whose first tool call raised no error.
          </Share>
          {signal.unscored > 0 && (
            <Share name="Unscored" value={signal.unscored} poor>
              Answers whose reward could not be computed.
            </Share>
          )}
        </Part>
        <Part title="What answers earn">
          <Reward name="On average" value={signal.reward} scale={scale} />
          <Reward name="Best of each group" value={signal.best} scale={scale} />
          <Reward name="A good answer" value={signal.gold} scale={scale} kind="good" />
        </Part>
        {lazy.length > 0 && (
          <Part title="What trivial strategies earn">
            {lazy.map(([name, value]) => (
              <Reward key={name} name={name} value={value} scale={scale} kind="lazy" />
            ))}
          </Part>
        )}
      </div>
    </div>
  );
}

function Part({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl className="measures">{children}</dl>
    </section>
  );
}

/** A share of the samples; nothing where it was not measured. */
function Share({
  name,
  value,
  poor,
  children,
}: {
  name: string;
  value: number | null;
  poor?: boolean;
  children: React.ReactNode;
}) {
  if (value === null) return null;
  return (
    <Measure
      name={name}
      info={children}
      shown={format.percent(value, 0)}
      part={value}
      kind={poor ? "poor" : undefined}
    />
  );
}

/** Often too small for a percentage to say it. */
function Chance({ value }: { value: number | null }) {
  if (value === null) return null;
  const shown =
    value >= 0.01 ? format.percent(value, 0) : value < 1e-9 ? "almost none" : `1 in ${format.compact(1 / value)}`;
  const info = "How probable the known good answers are to this model, whether or not they are among its samples.";
  return <Measure name="Chance of a good answer" info={info} shown={shown} part={value} />;
}

function Reward({
  name,
  value,
  scale,
  kind,
}: {
  name: string;
  value: number | null;
  scale: { low: number; high: number };
  kind?: "good" | "lazy";
}) {
  if (value === null) return null;
  const part = (value - scale.low) / (scale.high - scale.low || 1);
  return <Measure name={name} shown={format.reward(value, 2)} part={part} kind={kind} />;
}

function Measure({
  name,
  info,
  shown,
  part,
  kind,
}: {
  name: string;
  info?: React.ReactNode;
  shown: string;
  part: number;
  kind?: "good" | "lazy" | "poor";
}) {
  return (
    <div className="measure">
      <dt>
        <Plain text={name} />
        {info && <Info label={`About ${name}`}>{info}</Info>}
      </dt>
      <dd className="num">{shown}</dd>
      <span className={cx("measure-bar", kind && `measure-${kind}`)} aria-hidden="true">
        <i style={{ width: `${Math.max(0, Math.min(1, part)) * 100}%` }} />
      </span>
    </div>
  );
}
