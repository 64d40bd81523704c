// Launch arguments, drawn from what the server serves: its defaults, its ranges, its words.
import { fault, isHigh, type LaunchArg, shown, shownRange } from "../../api/launch";
import { Button, ErrorNote, Field, Fold, format, Info, Input, Plain, Select, Skeleton } from "../../ui";
import type { Form } from "./form";

/** Those a newcomer should see; the rest are folded. */
const FIRST = ["model", "num_epochs", "max_minutes", "learning_rate", "prompts_per_step", "group_size", "warm_start"];

/** What a choice means, where its word alone does not say it. */
const CHOICES: Record<string, Record<string, string>> = {
  warm_start: {
    auto: "Shows the model solutions only if its own answers teach nothing.",
    off: "The model explores by itself from the first step.",
    gold: "Shows the model solutions that earn, whether it needs them or not.",
    hint: "Shows the model its own answers to prompts that include the solution.",
  },
  recipe: { plain: "GRPO and nothing else: no warm start, no guidance, no mending." },
};

/** What may happen above `warnAbove`, in the server's words. */
const WHEN_HIGH: Record<string, string> = {
  learning_rate: "training may diverge",
  max_rollout_len: "it may not fit in memory",
};

export function Arguments({ form }: { form: Form }) {
  const { args, typed } = form;
  if (args.isError) return <ErrorNote error={args.error} onRetry={() => args.refetch()} />;
  if (!args.data) return <Skeleton lines={5} />;
  const first = args.data.filter((arg) => FIRST.includes(arg.name));
  const rest = args.data.filter((arg) => !FIRST.includes(arg.name));
  const changed = rest.filter((arg) => typed[arg.name] !== undefined);
  return (
    <div className="stack">
      <div className="args">
        {first.map((arg) => (
          <Argument key={arg.name} arg={arg} form={form} />
        ))}
      </div>
      <Fold
        title="Advanced"
        open={changed.length > 0}
        aside={changed.length ? `${changed.length} changed` : format.plural(rest.length, "more argument")}
      >
        <div className="args">
          {rest.map((arg) => (
            <Argument key={arg.name} arg={arg} form={form} />
          ))}
        </div>
      </Fold>
    </div>
  );
}

function Argument({ arg, form }: { arg: LaunchArg; form: Form }) {
  const text = form.typed[arg.name];
  const wrong = text === undefined ? null : fault(arg, text);
  const high = text !== undefined && !wrong && isHigh(arg, text);
  const range = shownRange(arg);
  const means = CHOICES[arg.name]?.[text ?? String(arg.default)];
  const hint = high ? (
    <span className="warn">
      Above {arg.warnAbove?.toLocaleString("en-US")}: {WHEN_HIGH[arg.name] ?? "this may be too much"}.
    </span>
  ) : (
    // What was not touched shows its default in the field itself.
    (means || text !== undefined) && (
      <>
        {means}
        {text !== undefined && (
          <span className="arg-hint">
            Default: {shown(arg.default)}
            <Button
              kind="quiet"
              size="small"
              aria-label={`Reset ${arg.label}`}
              onClick={() => form.setArg(arg.name, null)}
            >
              Reset
            </Button>
          </span>
        )}
      </>
    )
  );
  return (
    <div className="arg">
      <Field label={arg.label} error={wrong} hint={hint}>
        {(id) => (
          <Control
            id={id}
            arg={arg}
            text={text}
            wrong={wrong !== null}
            onText={(value) => form.setArg(arg.name, value)}
          />
        )}
      </Field>
      <span className="arg-info">
        <Info label={`About ${arg.label}`}>
          <Plain text={arg.description} />
          {range && ` Allowed: ${range}.`} <code>{arg.name}</code>
        </Info>
      </span>
    </div>
  );
}

type ControlProps = {
  id: string;
  arg: LaunchArg;
  text: string | undefined;
  wrong: boolean;
  onText: (text: string | null) => void;
};

function Control({ id, arg, text, wrong, onText }: ControlProps) {
  const initial = arg.default === null || arg.default === undefined ? "" : String(arg.default);
  const choices = arg.enum ?? (arg.type === "boolean" ? ["true", "false"] : null);
  if (choices) {
    return (
      <Select
        id={id}
        value={text ?? initial}
        onChange={(event) => onText(event.target.value === initial ? null : event.target.value)}
      >
        {choices.map((choice) => (
          <option key={choice}>{choice}</option>
        ))}
      </Select>
    );
  }
  return (
    <Input
      id={id}
      inputMode={arg.type === "integer" ? "numeric" : arg.type === "number" ? "decimal" : undefined}
      value={text ?? ""}
      placeholder={initial || "chosen for you"}
      aria-invalid={wrong || undefined}
      onChange={(event) => onText(event.target.value === "" ? null : event.target.value)}
    />
  );
}
