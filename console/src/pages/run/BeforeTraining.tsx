// Before training: whether the model can learn here, what was done about it, and what the run will take. It stands open
// until the first step is done, then it is a line.
import { type Chosen, type Plan, useTraining, type WarmStart } from "../../api/training";
import { Facts, Fold, format, Pill, Plain, Spinner, Ticked } from "../../ui";
import { SignalView } from "../environments/SignalView";
import { useRun } from "./context";
import { Doses } from "./Doses";
import "./training.css";
import { before, doing, sentence, shownRows } from "./words";

export function BeforeTraining() {
  const { id, run, live } = useRun();
  const training = useTraining(id);
  const { signal, chosen, doses, warmStart, plan } = training;
  const now = doing(training);
  if (now === null) return null;
  const going = live && run.latestStep === null;
  return (
    <Fold key={going ? "going" : "past"} title="Before training" open={going} aside={going ? "" : before(training)}>
      <div className="phases">
        {going && (
          <p className="phase-now" role="status">
            <Spinner /> {now}
          </p>
        )}
        {signal && (
          <Phase title="Can it learn?">
            <SignalView signal={signal} />
          </Phase>
        )}
        {(warmStart || doses.length > 0) && (
          <Phase title="Warm start">
            {warmStart && <Helped warmStart={warmStart} said={signal?.forecast} />}
            <Doses training={training} />
          </Phase>
        )}
        {(plan || chosen.length > 0) && (
          <Phase title="What will happen">
            {plan && <Takes plan={plan} />}
            <Settings chosen={chosen} />
            {plan?.cutOff && (
              <p className="muted">
                <Ticked text={sentence(plan.cutOff)} />
              </p>
            )}
          </Phase>
        )}
      </div>
    </Fold>
  );
}

function Phase({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <section className="phase">
      <h3>{title}</h3>
      <div className="phase-body">{children}</div>
    </section>
  );
}

function Helped({ warmStart, said }: { warmStart: WarmStart; said: string | undefined }) {
  if (!warmStart.steps)
    return (
      <p>
        {warmStart.how === "off" ? "Switched off. " : "None. "}
        <Ticked text={warmStart.why} />
      </p>
    );
  const gained = warmStart.before === null || warmStart.after === null ? null : warmStart.after - warmStart.before;
  return (
    <>
      {warmStart.why !== said && (
        <p>
          <Ticked text={warmStart.why} />
        </p>
      )}
      <Facts
        items={[
          {
            name: "Held-out reward",
            value: (
              <span className="row-tight">
                {format.reward(warmStart.before)} → {format.reward(warmStart.after)}
                {gained !== null && <Pill tone={gained > 0 ? "good" : "warn"}>{format.gain(gained)}</Pill>}
              </span>
            ),
          },
          { name: "The model was shown", value: <Plain text={shownRows(warmStart)} /> },
          { name: "Supervised steps", value: format.number(warmStart.steps) },
          { name: "Doses", value: format.number(warmStart.doses) },
        ]}
      />
    </>
  );
}

function Takes({ plan }: { plan: Plan }) {
  const { number } = format;
  const items = [
    { name: "Model", value: <Plain text={plan.model.split("/").at(-1) ?? ""} />, hint: plan.model },
    { name: "Trained weights", value: `${format.compact(plan.trained)} of ${format.compact(plan.weights)}` },
    { name: "Rows", value: `${number(plan.rows)} + ${number(plan.heldOut)} held out` },
    { name: "Each step", value: `${number(plan.prompts)} prompts × ${number(plan.samples)} samples` },
    {
      name: "Tokens per step",
      value: `${format.compact(plan.sampledTokens)} sampled, ${format.compact(plan.computedTokens)} in the update`,
      hint: "Prefixes that answers share are counted once in the update.",
    },
    { name: "Time per step", value: seconds(plan.stepSeconds) },
    {
      name: "The whole run",
      value: `${number(plan.steps)} steps, about ${format.duration(plan.totalSeconds)}`,
      hint: "Includes evaluations; less if everything is solved sooner.",
    },
    { name: "Memory so far", value: format.bytes(plan.memoryBytes) },
    { name: "Device", value: plan.device.toUpperCase() },
  ];
  return <Facts items={items} />;
}

/** Steps are often shorter than a second. */
function seconds(value: number | null): string {
  return value !== null && value < 60 ? `${value.toFixed(1)} s` : format.duration(value);
}

function Settings({ chosen }: { chosen: Chosen[] }) {
  if (chosen.length === 0) return null;
  return (
    <dl className="chosen-settings" aria-label="Settings the trainer chose">
      {chosen.map((each) => (
        <div key={each.name}>
          <dt className="mono">
            <Plain text={`${each.name} = ${each.value}`} />
          </dt>
          <dd className="muted">
            <Ticked text={each.why} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
