// What is chosen so far. All of it lives in the address: a link opens the form as its sender left it.
import { useMemo } from "react";
import { usePreview } from "../../api/datasets";
import { type Environment, isNamed, useEnvironments } from "../../api/environments";
import { fault, type LaunchArg, parsed, split, useLaunchArgs, useLikeRun, type Value } from "../../api/launch";
import { useSearch } from "../../ui";

const ARG = "arg.";
const EMBEDDED = "embedded";
export const HELD_OUT = 20;
/** The least percentage: without held-out rows the platform holds out a fifth by itself. */
export const LEAST_HELD_OUT = 5;

export type Form = ReturnType<typeof useForm>;

export function useForm() {
  const search = useSearch();
  const environments = useEnvironments();
  const served = useLaunchArgs();
  const like = search.get("like") || null;
  const likeRun = useLikeRun(like);
  const given = likeRun.data?.given;
  const trainer = search.get(`${ARG}backend`) || given?.backend || EMBEDDED;
  const args = useMemo(
    () => ({ ...served, data: modelsOf(trainer, asGiven(served.data, given)) }),
    [served, given, trainer],
  );
  const named = (id: string | null | undefined) => find(environments.data ?? [], id);
  const dataset = search.get("dataset") || null;
  const chosen = named(search.get("environment"));
  const preview = usePreview(dataset, chosen?.id, 20);
  // Rows bring along the environment they were used with, or the built-in one whose columns they have.
  const environment = chosen ?? named(preview.data?.environment);
  const percent = Math.min(90, Math.max(LEAST_HELD_OUT, Number(search.get("held", String(HELD_OUT))) || 0));
  /** Whether rows come from a dataset rather than from the environment itself. */
  const fromDataset = dataset !== null || search.get("from") === "dataset" || environment?.bringsRows === false;
  /** Rows that the run could use. */
  const rows = fromDataset ? (preview.data?.usable ?? null) : (environment?.ownRows ?? null);
  /** Rows that make it refuse the dataset as a whole. */
  const unusable = fromDataset && preview.data ? preview.data.rows - preview.data.usable : 0;
  const typed = useMemo(() => typedArgs(search.values, args.data ?? []), [search.values, args.data]);
  return {
    /** The run it is to be like, when one was chosen: then environment and rows are that one's. */
    like,
    likeRun,
    environments,
    environment,
    dataset,
    fromDataset,
    preview,
    percent,
    rows,
    unusable,
    counts: rows === null ? null : split(rows, percent),
    args,
    /** What was typed, by name; the rest are defaults. */
    typed,
    name: search.get("name"),
    report: search.get("report") || null,
    set: search.set,
    setArg: (name: string, text: string | null) => search.set({ [ARG + name]: text }),
    /** Another environment or dataset makes the doctor's report worthless. */
    choose: (change: Record<string, string | null>) => search.set({ ...change, report: null }),
  };
}

/** One environment, or several with commas between their names. */
function find(all: readonly Environment[], id: string | null | undefined): Environment | null {
  const one = all.find((each) => each.id === id);
  if (one || !id?.includes(",")) return one ?? null;
  const parts = id.split(",").map((name) => all.find((each) => each.id === name && isNamed(each)));
  const known = parts.filter((each) => each !== undefined);
  if (known.length < parts.length || !known[0]) return null;
  const rows = known.map((each) => each.ownRows ?? 0);
  return {
    ...known[0],
    id,
    name: known.map((each) => each.name).join(", "),
    path: id,
    description: "",
    bringsRows: known.every((each) => each.bringsRows),
    ownRows: Math.min(...rows) * rows.length,
  };
}

/** The arguments with what another run was given as their defaults. */
function asGiven(args: LaunchArg[] | undefined, given: Record<string, Value> = {}): LaunchArg[] | undefined {
  return args?.map((arg) => (Object.hasOwn(given, arg.name) ? { ...arg, default: given[arg.name] } : arg));
}

/** Only the embedded trainer's models are on the server's list; another knows its own. */
function modelsOf(trainer: Value, args: LaunchArg[] | undefined): LaunchArg[] | undefined {
  if (trainer === EMBEDDED) return args;
  return args?.map((arg) => (arg.name === "model" ? { ...arg, enum: null } : arg));
}

function typedArgs(values: Readonly<Record<string, string>>, args: LaunchArg[]): Record<string, string> {
  const known = new Set(args.map((arg) => arg.name));
  const given = Object.entries(values).filter(([name]) => name.startsWith(ARG) && known.has(name.slice(ARG.length)));
  return Object.fromEntries(given.map(([name, text]) => [name.slice(ARG.length), text]));
}

/** Every argument's value: what was typed, else the default. */
export function valuesOf(args: LaunchArg[], typed: Record<string, string>): Record<string, Value> {
  return Object.fromEntries(
    args.map((arg) => {
      const text = typed[arg.name];
      return [arg.name, text === undefined ? ((arg.default ?? null) as Value) : (parsed(arg, text) ?? null)];
    }),
  );
}

/** Arguments with a value that is refused. */
export function faulty(form: Form): LaunchArg[] {
  return (form.args.data ?? []).filter((arg) => {
    const text = form.typed[arg.name];
    return text !== undefined && fault(arg, text) !== null;
  });
}

/** What keeps the run from being launched, in words; empty when nothing does. */
export function missing(form: Form): string[] {
  const found: string[] = [];
  if (form.like) {
    if (!form.likeRun.data) found.push("Choose a run that exists, or an environment and rows.");
  } else if (!form.environment) found.push("Choose an environment.");
  else if (!form.dataset && form.fromDataset) found.push("Choose or upload a dataset.");
  if (!form.args.data) found.push("Wait until the settings have loaded.");
  if (form.dataset && form.preview.isError) found.push("Choose a dataset that can be read.");
  if (form.unusable) found.push("Correct or remove the unusable rows.");
  const wrong = faulty(form);
  if (wrong.length) found.push(`Correct ${wrong.map((arg) => arg.label.toLowerCase()).join(", ")}.`);
  return found;
}

/** Environment and rows: those of the run it is to be like, else those that were chosen. */
function sources(form: Form): Record<string, unknown> {
  if (form.like) return form.likeRun.data?.paths ?? {};
  const rows = form.dataset ? { dataset_path: form.dataset } : {};
  return { environment: form.environment?.id, ...rows, eval_share: form.percent / 100 };
}

export function launchBody(form: Form): { name?: string; args: Record<string, unknown> } {
  const given = Object.entries(form.typed).map(([name, text]) => {
    const arg = form.args.data?.find((each) => each.name === name);
    return [name, arg ? parsed(arg, text) : text] as const;
  });
  return {
    ...(form.name.trim() ? { name: form.name.trim() } : {}),
    args: { ...form.likeRun.data?.given, ...Object.fromEntries(given), ...sources(form) },
  };
}
