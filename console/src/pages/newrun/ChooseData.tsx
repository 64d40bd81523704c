// Rows to train on: the environment's own, a dataset that is here, or a file that is uploaded now.
import { datasetHref, datasetName, useDatasets, useUpload } from "../../api/datasets";
import { GOOD_ROWS, MIN_ROWS } from "../../api/launch";
import { ErrorNote, Field, Fold, format, Link, Note, Segments, Select, Skeleton } from "../../ui";
import { Drop } from "../datasets/Drop";
import { Counts, Issues, Sample } from "../datasets/Rows";
import { type Form, HELD_OUT, LEAST_HELD_OUT } from "./form";

export function ChooseData({ form }: { form: Form }) {
  const own = form.environment?.bringsRows ?? false;
  const source = form.fromDataset || !own ? "dataset" : "own";
  return (
    <div className="stack">
      {own && (
        <div>
          <Segments
            label="Where the rows come from"
            value={source}
            onChange={(value) => form.choose({ dataset: null, from: value === "own" ? null : value })}
            options={[
              { value: "own", label: "Its own rows" },
              { value: "dataset", label: "One of your datasets" },
            ]}
          />
        </div>
      )}
      {source === "own" ? (
        <p className="muted">
          {form.environment?.name} comes with {format.plural(form.environment?.ownRows ?? 0, "row")}.
        </p>
      ) : (
        <FromDataset form={form} />
      )}
      {form.counts && form.rows !== null && form.rows >= MIN_ROWS && <Split form={form} />}
    </div>
  );
}

function FromDataset({ form }: { form: Form }) {
  const datasets = useDatasets();
  const upload = useUpload();
  const { dataset, preview } = form;
  const known = datasets.data?.some((each) => each.path === dataset);
  const take = ([file]: File[]) => {
    if (!file) return;
    upload.mutate(
      { file, environment: form.environment?.id },
      { onSuccess: (seen) => form.choose({ dataset: seen.path }) },
    );
  };
  return (
    <>
      {(datasets.data?.length ?? 0) > 0 && (
        <Field label="Dataset">
          {(id) => (
            <Select
              id={id}
              value={known ? (dataset ?? "") : ""}
              onChange={(event) => form.choose({ dataset: event.target.value || null })}
            >
              <option value="">Choose one …</option>
              {datasets.data?.map((each) => (
                <option key={each.path} value={each.path}>
                  {datasetName(each.path)}
                  {each.rows === null ? "" : ` · ${format.plural(each.rows, "row")}`}
                </option>
              ))}
            </Select>
          )}
        </Field>
      )}
      <Drop
        compact
        onFiles={take}
        busy={upload.isPending}
        error={upload.error}
        text={datasets.data?.length ? "Or drop a file here" : undefined}
      />
      {dataset && preview.isError && <ErrorNote error={preview.error} onRetry={() => preview.refetch()} />}
      {dataset && preview.isPending && <Skeleton lines={3} />}
      {preview.data && <Seen form={form} />}
    </>
  );
}

/** What was found in the file. */
function Seen({ form }: { form: Form }) {
  const preview = form.preview.data;
  if (!preview) return null;
  const problems = preview.errors + preview.warnings;
  return (
    <>
      <Counts preview={preview} />
      {preview.rows < MIN_ROWS && (
        <Note tone="bad">
          A training run needs at least {MIN_ROWS} training rows; there are {preview.rows}. Add{" "}
          {MIN_ROWS - preview.rows} or more; {GOOD_ROWS} and up is better.
        </Note>
      )}
      {form.unusable > 0 && (
        <Note tone="bad">
          {form.unusable === preview.rows
            ? "No row"
            : `${format.number(form.unusable)} of ${format.plural(preview.rows, "row")}`}{" "}
          can{form.unusable === preview.rows ? "" : "not"} be used by this environment, and a run uses the whole
          dataset. Correct or remove them.
        </Note>
      )}
      {problems > 0 && (
        <Fold
          title={`${format.plural(problems, "problem")} in the rows`}
          aside="causes and fixes"
          open={preview.errors > 0}
        >
          <Issues preview={preview} />
        </Fold>
      )}
      <Fold title="First rows" aside={format.plural(Math.min(5, preview.sample.length), "row")}>
        <div className="stack-tight">
          <Sample preview={preview} rows={5} />
          <Link href={datasetHref(preview.path, form.environment?.id)} className="small">
            See the whole dataset
          </Link>
        </div>
      </Fold>
    </>
  );
}

function Split({ form }: { form: Form }) {
  const { counts, percent, rows } = form;
  if (!counts || rows === null) return null;
  const bounded = Math.round((rows * percent) / 100) > counts.held;
  return (
    <div className="split">
      <div className="spread">
        <label htmlFor="held-out" className="strong">
          Held out for evaluation
        </label>
        <span className="num">{percent}%</span>
      </div>
      <input
        id="held-out"
        type="range"
        min={LEAST_HELD_OUT}
        max={50}
        step={5}
        value={percent}
        aria-valuetext={`${percent} percent: ${counts.held} rows`}
        onChange={(event) => form.set({ held: Number(event.target.value) === HELD_OUT ? null : event.target.value })}
      />
      <div className="split-bar" aria-hidden="true">
        <span className="split-train" style={{ flexGrow: counts.train }} />
        {counts.held > 0 && <span className="split-held" style={{ flexGrow: counts.held }} />}
      </div>
      <div className="spread small" aria-live="polite">
        <span>
          <strong className="num">{counts.train.toLocaleString("en-US")}</strong> to train on
        </span>
        <span>
          <strong className="num">{counts.held.toLocaleString("en-US")}</strong> held out, evenly spread
        </span>
      </div>
      {counts.held === 0 && (
        <span className="muted small">
          Nothing is held out: you will not see whether the model learned or only memorised.
        </span>
      )}
      {bounded && <span className="muted small">At least {MIN_ROWS} rows are kept for training.</span>}
      {counts.train < GOOD_ROWS && counts.held > 0 && (
        <span className="muted small">{GOOD_ROWS} rows or more is better.</span>
      )}
    </div>
  );
}
