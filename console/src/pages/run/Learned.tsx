// What was learned: the held-out reward from the model as it came to the last step, and the same questions answered
// before and after.
import { useLayoutEffect, useRef, useState } from "react";
import { type Answer, type Pair, type Summary, useTraining } from "../../api/training";
import { Button, Card, cx, format, Icon, Link, Pill, Plain } from "../../ui";
import { useRun } from "./context";
import "./training.css";

export function Learned() {
  const { id, live } = useRun();
  const { summary } = useTraining(id);
  // One that was resumed is summed up anew at its end.
  if (!summary || live) return null;
  return (
    <Card title="What was learned">
      <div className="stack">
        <Way summary={summary} />
        {summary.pairs.length > 0 && (
          <div className="pairs">
            {summary.pairs.map((pair, index) => (
              <PairView key={pair.example || index} pair={pair} />
            ))}
          </div>
        )}
      </div>
    </Card>
  );
}

function Way({ summary }: { summary: Summary }) {
  const { before, warm, best, bestStep, last, endedByThemselves } = summary;
  const gained = before === null || best === null ? null : best - before;
  return (
    <dl className="way">
      <Station name="Original model" value={before} />
      {warm !== null && <Station name="After the warm start" value={warm} />}
      <Station name={bestStep === null ? "Best" : `Best, after ${format.plural(bestStep, "step")}`} value={best}>
        {gained !== null && <Pill tone={gained > 0 ? "good" : "warn"}>{format.gain(gained)}</Pill>}
      </Station>
      <Station name="Last" value={last} />
      <div className="way-aside">
        <dt>Held-out answers that ended by themselves</dt>
        <dd>{format.percent(endedByThemselves, 0)}</dd>
      </div>
    </dl>
  );
}

function Station({ name, value, children }: { name: string; value: number | null; children?: React.ReactNode }) {
  return (
    <div className="way-station">
      <dt>{name}</dt>
      <dd>
        {format.reward(value)} {children}
      </dd>
    </div>
  );
}

/** One question, with what the model said to it before and after. */
function PairView({ pair }: { pair: Pair }) {
  const { tabHref } = useRun();
  const [open, setOpen] = useState(false);
  const [whole, setWhole] = useState(false);
  const body = useRef<HTMLDivElement>(null);
  const [long, setLong] = useState(false);
  useLayoutEffect(() => {
    const texts = [...(body.current?.querySelectorAll(".pair-text > *") ?? [])];
    if (open) setLong((before) => before || texts.some((each) => each.scrollHeight > each.clientHeight));
  }, [open]);
  return (
    <section className="pair">
      <button type="button" className="pair-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="chevron" className={cx("fold-mark", open && "fold-open")} />
        <Plain text={inShort(pair.question)} className="clip grow" />
        <span className="num muted">
          {format.reward(pair.before.reward, 2)} → {format.reward(pair.after.reward, 2)}
        </span>
      </button>
      {open && (
        <div ref={body} className={cx("pair-body", whole && "pair-whole")} data-transcript="">
          {pair.question.includes("\n") && <Text text={pair.question} />}
          <div className="pair-sides">
            <Side name="Before" answer={pair.before} />
            <Side name="After" answer={pair.after} better={(pair.after.reward ?? 0) > (pair.before.reward ?? 0)} />
          </div>
          <div className="row">
            {long && (
              <Button size="small" aria-expanded={whole} onClick={() => setWhole(!whole)}>
                {whole ? "Show less" : "Show all"}
              </Button>
            )}
            <Link href={tabHref("rollouts", { mode: "eval", example: pair.example })} className="small">
              Every answer to this question
            </Link>
          </div>
        </div>
      )}
    </section>
  );
}

function Side({ name, answer, better }: { name: string; answer: Answer; better?: boolean }) {
  return (
    <section className="pair-side" aria-label={name}>
      <div className="row">
        <h3>{name}</h3>
        <Pill tone={better ? "good" : "neutral"}>
          {answer.reward === null ? "not scored" : `reward ${format.reward(answer.reward)}`}
        </Pill>
        {answer.cutOff && <Pill tone="warn">cut off</Pill>}
      </div>
      {answer.text ? <Text text={answer.text} /> : <p className="muted">The answer is empty.</p>}
    </section>
  );
}

function Text({ text }: { text: string }) {
  return (
    <pre className="pair-text">
      <Plain text={text} />
    </pre>
  );
}

/** What is asked, in a line: of a long prompt the last line that asks. */
function inShort(question: string): string {
  const asked = question.split("\n").findLast((line) => line.trimEnd().endsWith("?"));
  return (asked ?? question).replaceAll(/\s+/g, " ").trim();
}
